"""A system's place on a board in a few words, as a picture for elsewhere and as data for shields.io."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

from leaderboard.boards.system.rank import RankedBoard, ranked_boards
from leaderboard.core.measures import better
from leaderboard.core.text.plain import for_xml
from leaderboard.models import Dataset, Entry, System
from leaderboard.results.kinds import CLOSED, REPORTED, SCORED, STALE

#: Widths of signs in thousandths of the size, near to Verdana's; `textLength` makes up for what a font differs by.
_WIDTHS: Mapping[str, int] = {
    **dict.fromkeys("ijlI'|", 300),
    **dict.fromkeys(" frt/.,·:;()-", 400),
    **dict.fromkeys("csvxyzkJ", 560),
    **dict.fromkeys("CDGHNOQU", 750),
    **dict.fromkeys("ABEKPRSVXZ&", 690),
    **dict.fromkeys("mwMW@%+=#<>~", 900),
}
_OTHER, _WIDE, _SIZE, _PADDING, _HEIGHT = 630, 1000, 11, 6, 20

#: Grounds on which white has a contrast of 4.5 and more: the name, and the value as shields.io calls it.
_NAME_GROUND = "#4a4d52"
_GROUNDS = {"blue": "#1c4f9c", "grey": "#62656b"}


class Badge(NamedTuple):
    """`color` is a name that shields.io knows; it says nothing that the words do not."""

    label: str
    message: str
    color: str


def badge_of(system_slug: str, dataset_slug: str, measure: str) -> Badge | None:
    """The system's place on a dataset's board, the first by name where none is named. Five queries at most.

    None where there is no such system with anything public, no such dataset, or no such measure of it.
    """
    entries = Entry.objects.filter(visibility__in=Entry.SEEN).exclude(dataset__state="preparing")
    system = System.objects.filter(slug=system_slug, pk__in=entries.values("system_id")).first()
    if system is None:
        return None
    datasets = Dataset.objects.listed().order_by("name")
    if dataset_slug:
        dataset = datasets.filter(slug=dataset_slug).first()
    else:
        dataset = datasets.filter(entries__system=system, entries__visibility__in=Entry.SEEN).first()
    if dataset is None or (measure and measure not in (dataset.measures or [dataset.primary_measure])):
        return None
    measure = measure or dataset.primary_measure
    return _badge(system, dataset, measure, ranked_boards([dataset.pk])[dataset.pk])


def _badge(system: System, dataset: Dataset, measure: str, field: RankedBoard) -> Badge:
    label = f"{measure} on {dataset.name}"
    sign = -1 if better(measure) == "lower" else 1
    own = [entry for entry in field.entries if entry.system_id == system.pk and measure in entry.scores]
    if not own:
        off = system.entries.filter(dataset=dataset, visibility=Entry.Visibility.QUARANTINED)
        return Badge(label, "quarantined" if off.exists() else "no result", "grey")
    # The present judgements first, then what papers report, then what is stale.
    kinds = (STALE, REPORTED, CLOSED, SCORED)
    mine = max(own, key=lambda entry: (kinds.index(field.kind(entry)), sign * entry.scores[measure]))
    value, standing = mine.scores[measure], field.standing(mine, measure)
    if standing.rank is None:
        return Badge(label, f"{value:.3f}, earlier judgements", "grey")
    kind = "" if standing.ranked_in == SCORED else f" {standing.ranked_in}"
    return Badge(label, f"{value:.3f} · {standing.rank} of {standing.of}{kind}", "blue")


def width(text: str) -> int:
    """How wide a text is set, in pixels; signs of East Asian scripts are as wide as they are high."""
    return round(
        sum(_WIDTHS.get(sign, _WIDE if ord(sign) > 0x2E7F else _OTHER) for sign in text) * _SIZE / 1000
    )


def as_svg(badge: Badge) -> str:
    """The badge as a picture that says what it shows; texts keep their widths in whatever font there is."""
    badge = Badge(for_xml(badge.label), for_xml(badge.message), badge.color)
    first, second = width(badge.label), width(badge.message)
    left, right = first + 2 * _PADDING, second + 2 * _PADDING
    name = escape(f"{badge.label}: {badge.message}")
    common = f'y="14" font-family="Verdana,DejaVu Sans,sans-serif" font-size="{_SIZE}" fill="#fff"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f'aria-labelledby="name"><title id="name">{name}</title>'
        f'<rect width="{left + right}" height="{_HEIGHT}" rx="3" fill="{_NAME_GROUND}"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z" '
        f'fill="{_GROUNDS[badge.color]}"/>'
        f'<text x="{_PADDING}" {common} textLength="{first}">{escape(badge.label)}</text>'
        f'<text x="{left + _PADDING}" {common} textLength="{second}">{escape(badge.message)}</text></svg>'
    )


def as_shields(badge: Badge) -> dict[str, Any]:
    """The badge as shields.io's endpoint schema has it."""
    return {"schemaVersion": 1, "label": badge.label, "message": badge.message, "color": badge.color}
