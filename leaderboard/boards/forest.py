"""Forest plot on the first screen of a board or system: differences from the baseline, drawn as SVG.

The drawing has no size of its own. Horizontal positions are percentages, so that texts keep their size on every
screen. Names are HTML elements without the owner of a model; the style sheet cuts those that reach the first mark of
their row. Colors are those of static/css/board.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from leaderboard.core.text.numbers import signed

#: Maximum number of systems, so that the table's first row remains on the first screen.
MAX_ROWS = 6
_ROW_HEIGHT = 16
#: Horizontal range of the plot, in percent; names are to the left, differences to the right.
_LEFT, _RIGHT = 42.0, 84.0
#: Distance in percent between a name and the first mark of its row.
_MARK = 2.5
#: Distance of the outermost interval from the ends of the range, as a share of all differences.
_MARGIN = 0.04

#: A row that a publication reports is `untested`, whatever its rank. The legend has no entry for `gap`. The last three
#: are for results of one system.
Role = Literal["best", "tied", "baseline", "untested", "other", "gap", "better", "worse", "ns"]


class ForestRow(NamedTuple):
    """A system's difference from the baseline and the 95% interval of that difference, None if it was not tested.

    `is_lost` means that the difference is significant in the system's own test, but not after correction.
    """

    name: str
    difference: float
    interval: tuple[float, float] | None
    role: Role
    is_lost: bool = False


def draw_forest(
    rows: Sequence[ForestRow], measure: str, baseline: str, total: int = 0, threshold: float = 0.0
) -> SafeString:
    """Return a figure of the differences in `measure` as HTML; empty without rows. It says if `total` is larger.

    A band extends from 0 to `threshold`, the least significant difference on hidden judgments; it is negative if lower
    scores are better.
    """
    if not rows:
        return SafeString("")
    ends = [0.0, threshold, *(end for row in rows for end in (row.difference, *(row.interval or ())))]
    low, high = min(ends), max(ends)
    margin = _MARGIN * ((high - low) or 1.0)
    low, high = low - margin, high + margin

    def share(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - low) / (high - low)

    def position(value: float) -> str:
        return f"{share(value):.2f}%"

    roles = {row.role for row in rows}
    key = [
        ("best", "●", _("best")),
        ("tied", "◆", _("not separable")),
        ("untested", "×", _("not tested")),
        ("baseline", "■", _("baseline")),
        ("other", "•", _("other")),
        ("better", "●", _("significantly better")),
        ("worse", "●", _("significantly worse")),
        ("ns", "○", _("not significant")),
    ]
    context = {
        "measure": measure,
        "baseline": baseline,
        "has_intervals": any(row.interval is not None for row in rows),
        "key": [entry for entry in key if entry[0] in roles],
        "total": total if total > len(rows) else 0,
        "has_lost": any(row.is_lost for row in rows),
        "bottom": _ROW_HEIGHT * len(rows),
        "zero": position(0.0),
        "band": (position(min(0.0, threshold)), f"{abs(share(threshold) - share(0.0)):.2f}%") if threshold else None,
        "row_height": _ROW_HEIGHT,
        "rows": [
            {
                **row._asdict(),
                "label": row.name.rpartition("/")[2],
                "name_width": f"{share(min(0.0, row.difference, *(row.interval or ()))) - _MARK:.2f}%",
                "ends": [position(end) for end in row.interval or ()],
                "x": position(row.difference),
                "top": number * _ROW_HEIGHT,
                "value": signed(row.difference, 3),
            }
            for number, row in enumerate(rows)
        ],
    }
    return render_to_string("leaderboard/_forest.html", context)
