"""Which comparison is meant: read from the query string, written back into links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from leaderboard.boards.state import Parameters
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import canonical_name

#: As many systems as fit side by side.
MOST_SYSTEMS = 6


@dataclass(frozen=True, slots=True)
class CompareState:
    """`systems`: slugs, the first of which the others are compared with. Empty fields mean the default.

    `dataset` and `other` choose the pair that is shown by query: the first system and `other`. `benchmark` says over
    which datasets means are.
    """

    systems: tuple[str, ...] = ()
    dataset: str = ""
    measure: str = ""
    other: str = ""
    benchmark: str = ""

    @classmethod
    def read(cls, parameters: Parameters) -> CompareState:
        """The comparison that a query string asks for. Raises UnknownChoice for more systems than fit."""
        systems = tuple(
            dict.fromkeys(value.strip() for value in parameters.getlist("system") if value.strip())
        )
        if len(systems) > MOST_SYSTEMS:
            raise UnknownChoice("number of systems", str(len(systems)), [f"2 to {MOST_SYSTEMS}"])
        last = {
            name: (parameters.getlist(name) or [""])[-1]
            for name in ("dataset", "measure", "with", "benchmark")
        }
        return cls(systems, last["dataset"], canonical_name(last["measure"]), last["with"], last["benchmark"])

    def query_string(self) -> str:
        """`?system=…&system=…`, or nothing where nothing was chosen."""
        pairs = [("system", slug) for slug in self.systems]
        single = {
            "dataset": self.dataset,
            "measure": self.measure,
            "with": self.other,
            "benchmark": self.benchmark,
        }
        pairs += [(name, value) for name, value in single.items() if value]
        return "?" + urlencode(pairs, safe="@()=,':") if pairs else ""

    def but(self, **changes: Any) -> CompareState:
        """The same comparison with other values."""
        return replace(self, **changes)

    def without(self, slug: str) -> CompareState:
        """The comparison without one of its systems."""
        other = "" if self.other == slug else self.other
        return self.but(systems=tuple(each for each in self.systems if each != slug), other=other)

    def anchored(self, slug: str) -> CompareState:
        """The same systems, all compared with this one."""
        others = [each for each in self.systems if each != slug]
        return self.but(systems=(slug, *others), other="")
