"""What every board says of its rows' systems: what they are, who made them, and what their teams declare of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from leaderboard.boards.facets import HOUSE
from leaderboard.boards.model import ABOUT, Cell, Column
from leaderboard.models import DECLARED_NUMBERS, Architecture
from leaderboard.results.kinds import REPORTED

SELF_REPORTED = "self-reported: what its team declared, or a publication says"

ARCHITECTURES = {value: str(label) for value, label in Architecture.choices}


@lru_cache(1024)
def _text(text: str) -> Cell:
    """The cell of a text that many rows have."""
    return Cell(text)


def _by(line: Any) -> Cell | None:
    about = line.about
    text = about.source if line.ranked_in == REPORTED else about.team or HOUSE
    return _text(text) if text else None


def _declared(name: str, per: float) -> Callable[[Any], Cell | None]:
    """The cell of a number that teams declare."""

    def cell(line: Any) -> Cell | None:
        found = getattr(line.about, name)
        return None if found is None else Cell(found / per)

    return cell


ABOUT_SYSTEM = (
    Column(
        "architecture",
        "Architecture",
        ABOUT,
        "text",
        cell=lambda line: _text(ARCHITECTURES.get(line.about.architecture, line.about.architecture)),
    ),
    Column(
        "provenance",
        "Provenance",
        ABOUT,
        "text",
        note="how the numbers were obtained",
        cell=lambda line: _text(line.provenance),
    ),
    Column("by", "By", ABOUT, "text", note="the team, or the publication that reports it", cell=_by),
)
#: By the name of what is declared.
DECLARED = {
    each.name: Column(
        each.key,
        each.head,
        ABOUT,
        "figure",
        unit=f"{each.unit}, declared",
        note=SELF_REPORTED,
        cell=_declared(each.name, each.per),
    )
    for each in DECLARED_NUMBERS
    if each.key
}
PARAMETERS = DECLARED["parameter_count"]


def declared_columns(systems: Iterable[Any]) -> Sequence[Column]:
    """The columns of what any of the systems declares."""
    every = list(systems)
    return [
        column
        for name, column in DECLARED.items()
        if any(getattr(system, name) is not None for system in every)
    ]
