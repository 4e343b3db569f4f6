"""Which view of a board is meant: read from the query string, written back into links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol
from urllib.parse import urlencode

from leaderboard.models import Architecture, Entry

Order = Literal["asc", "desc", ""]

ARCHITECTURES = tuple(Architecture.values)
PROVENANCES = tuple(Entry.Provenance.values)

#: The longest text that a board is searched for; more is cut.
LONGEST_QUERY = 100


class Parameters(Protocol):
    """What is used of a query string; Django's QueryDict is one."""

    def getlist(self, key: str) -> list[str]:
        """All values of a parameter, in order."""


class UnknownChoice(Exception):
    """A parameter has a value that the board does not have; `choices` are those that it has."""

    def __init__(self, parameter: str, value: str, choices: Iterable[str]) -> None:
        self.parameter, self.value, self.choices = parameter, value, list(choices)
        super().__init__(
            f"“{value[:60]}” is no {parameter} of this board. It has: {', '.join(self.choices)}."
        )


@dataclass(frozen=True, slots=True)
class BoardState:
    """A view: empty fields mean the board's own default. Equal views have equal query strings."""

    measure: str = ""
    sort: str = ""
    order: Order = ""
    architectures: tuple[str, ...] = ()
    provenances: tuple[str, ...] = ()
    text: str = ""
    hardware: str = ""

    @classmethod
    def read(cls, parameters: Parameters) -> BoardState:
        """The view that a query string asks for. Raises UnknownChoice; parameters of other names are ignored."""
        order = _last(parameters, "order")
        if order not in ("", "asc", "desc"):
            raise UnknownChoice("order", order, ["asc", "desc"])
        return cls(
            measure=_last(parameters, "measure"),
            sort=_last(parameters, "sort"),
            order=order,  # type: ignore[arg-type]
            architectures=_several(parameters, "architecture", ARCHITECTURES),
            provenances=_several(parameters, "provenance", PROVENANCES),
            text=_last(parameters, "q").strip()[:LONGEST_QUERY],
            hardware=_last(parameters, "hardware"),
        )

    @property
    def filtered(self) -> bool:
        """Whether it hides rows."""
        return bool(self.architectures or self.provenances or self.text)

    def pairs(self) -> list[tuple[str, str]]:
        """Its parameters, in one fixed order."""
        single = {
            "measure": self.measure,
            "sort": self.sort,
            "order": self.order,
            "q": self.text,
            "hardware": self.hardware,
        }
        return [
            *((name, value) for name, value in single.items() if value),
            *(("architecture", value) for value in self.architectures),
            *(("provenance", value) for value in self.provenances),
        ]

    def query_string(self) -> str:
        """`?sort=…`, or nothing for the default view."""
        pairs = self.pairs()
        return "?" + urlencode(pairs, safe="@()=,'") if pairs else ""

    def but(self, **changes: object) -> BoardState:
        """The same view with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _last(parameters: Parameters, name: str) -> str:
    values = parameters.getlist(name)
    return values[-1] if values else ""


def _several(parameters: Parameters, name: str, known: Iterable[str]) -> tuple[str, ...]:
    wanted = sorted({value for value in parameters.getlist(name) if value})
    for value in wanted:
        if value not in known:
            raise UnknownChoice(name, value, known)
    return tuple(wanted)
