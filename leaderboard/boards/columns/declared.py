"""The columns of what teams say of their systems, beside what was measured here: weights, and the longest text read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from leaderboard.boards.model import ABOUT, Column, Value

SELF_REPORTED = "self-reported: what its team declared, or a publication says"
PARAMETERS = Column(
    "declared-parameters", "Parameters", ABOUT, "figure", unit="M, declared", note=SELF_REPORTED
)
LONGEST = Column(
    "maximum-length", "Longest text", ABOUT, "figure", unit="tokens, declared", note=SELF_REPORTED
)
DECLARED = (PARAMETERS, LONGEST)
MILLION = 1e6


class Declaring(Protocol):
    """A system with what it declares; rows of `entry_rows` are."""

    @property
    def parameter_count(self) -> int | None: ...
    @property
    def maximum_length(self) -> int | None: ...


class DeclaredColumns(NamedTuple):
    """The columns that any of a board's systems fills."""

    columns: Sequence[Column]

    @classmethod
    def of(cls, systems: Collection[Declaring]) -> DeclaredColumns:
        """Those of these systems."""
        found = [PARAMETERS] if any(system.parameter_count is not None for system in systems) else []
        return cls([*found, *([LONGEST] if any(system.maximum_length for system in systems) else [])])

    def values(self, system: Declaring) -> list[Value]:
        """What the system has for each of them."""
        found: list[Value] = []
        for column in self.columns:
            if column is PARAMETERS:
                count = system.parameter_count
                found.append(None if count is None else count / MILLION)
            else:
                found.append(None if not system.maximum_length else float(system.maximum_length))
        return found
