"""Forest plot on a board's first screen: the best systems' differences from the baseline, drawn as SVG.

The drawing has no size of its own. Horizontal positions are percentages, so that texts keep their size on every
screen. Names are HTML elements, which the style sheet cuts where they do not fit. Colors are those of
static/css/board.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from leaderboard.boards.wording import shorten
from leaderboard.core.text.numbers import signed

#: Maximum number of systems, so that the table's first row remains on the first screen.
MAX_ROWS = 7
#: Maximum length of the baseline's name below the zero line.
_MAX_NAME = 21
_ROW_HEIGHT = 17
#: Horizontal range of the plot, in percent; names are to the left, differences to the right.
_LEFT, _RIGHT = 35.0, 84.0
#: Distance of the outermost interval from the ends of the range, as a share of all differences.
_MARGIN = 0.04

#: A row that a publication reports is `untested`, whatever its rank.
Role = Literal["best", "tied", "baseline", "untested", "other"]
_SHAPES: dict[Role, str] = {
    "best": '<circle r="5.5"/>',
    "tied": '<path d="M0-6 6 0 0 6-6 0z"/>',
    "baseline": '<rect x="-4.5" y="-4.5" width="9" height="9"/>',
    "untested": '<path d="M-4-4 4 4M-4 4 4-4"/>',
    "other": '<circle r="4.5"/>',
}

_GLYPHS = {"best": "●", "tied": "◆", "untested": "×", "baseline": "■"}


class ForestRow(NamedTuple):
    """A system's difference from the baseline and the 95% interval of that difference, None if it was not tested."""

    name: str
    difference: float
    interval: tuple[float, float] | None
    role: Role


def draw_forest(rows: Sequence[ForestRow], measure: str, baseline: str) -> SafeString:
    """Return a figure of the differences in `measure` as HTML; empty without rows."""
    if not rows:
        return SafeString("")
    ends = [0.0, *(end for row in rows for end in (row.difference, *(row.interval or ())))]
    low, high = min(ends), max(ends)
    margin = _MARGIN * ((high - low) or 1.0)
    low, high = low - margin, high + margin

    def position(value: float) -> str:
        return f"{_LEFT + (_RIGHT - _LEFT) * (value - low) / (high - low):.2f}%"

    bottom, zero, caption = _ROW_HEIGHT * len(rows), position(0.0), _caption(rows, measure, baseline)
    parts = [
        f'<figure class="forest"><figcaption>{caption}</figcaption>',
        f'<svg class="forest-plot" width="100%" height="{bottom + 18}">',
        f'<line class="zero" x1="{zero}" x2="{zero}" y1="0" y2="{bottom}"/>',
        f'<text class="tick" x="{zero}" y="{bottom + 13}">{escape(shorten(baseline, _MAX_NAME))}</text>',
    ]
    for number, row in enumerate(rows):
        y = number * _ROW_HEIGHT + _ROW_HEIGHT // 2
        if row.interval is not None:
            start, end = map(position, row.interval)
            parts.append(f'<line class="interval" x1="{start}" x2="{end}" y1="{y}" y2="{y}"/>')
        value = "0" if row.role == "baseline" else signed(row.difference, 3)
        parts += [
            f'<foreignObject x="0" y="{y - _ROW_HEIGHT // 2}" width="{_LEFT - 1}%" height="{_ROW_HEIGHT}">'
            f'<div class="forest-name" title="{escape(row.name)}">{escape(row.name)}</div></foreignObject>',
            # A nested SVG element moves the mark: transformations do not accept percentages.
            f'<svg class="mark is-{row.role}" x="{position(row.difference)}" y="{y}" overflow="visible">'
            f"{_SHAPES[row.role]}</svg>",
            f'<text class="value" x="100%" y="{y + 4}">{value}</text>',
        ]
    return mark_safe("".join([*parts, "</svg></figure>"]))  # noqa: S308


def _caption(rows: Sequence[ForestRow], measure: str, baseline: str) -> str:
    """Return the caption with the key of the marks that occur."""
    caption = _("Δ %(measure)s from %(baseline)s") % {"measure": measure, "baseline": baseline}
    if any(row.interval is not None for row in rows):
        caption = _("%(caption)s, 95%% intervals") % {"caption": caption}
    labels = {"best": _("best"), "tied": _("not separable")}
    labels |= {"untested": _("reported, not tested"), "baseline": _("baseline")}
    roles = {row.role for row in rows}
    key = "".join(
        f' <span class="is-{role}">{_GLYPHS[role]}</span> {label}' for role, label in labels.items() if role in roles
    )
    return f'{escape(caption)} <span class="key">{key}</span>'
