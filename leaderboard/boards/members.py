"""What a board needs to know of a benchmark and its datasets, and which of these a view chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leaderboard.boards.dataset_board import DatasetFacts
from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.state import BoardState, UnknownChoice


@dataclass(frozen=True, slots=True)
class Part:
    """A dataset that another one is the mean of: a forum of CQADupStack."""

    dataset_id: int
    slug: str
    facts: DatasetFacts
    revision: str
    #: Whether it is published; until all are, the whole has no score.
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of the benchmark, in a `revision`. `stand_ins` names the measures it shows instead of others.

    `parts` are those of a dataset whose scores are means of others' scores.
    """

    dataset_id: int
    slug: str
    facts: DatasetFacts
    counted: bool
    stand_ins: Mapping[str, str]
    revision: str
    language: str = ""
    domain: str = ""
    task: str = ""
    parts: Sequence[Part] = ()

    def measure(self, wanted: str) -> str:
        """The measure that it shows where the board shows `wanted`."""
        return self.stand_ins.get(wanted, wanted)

    @property
    def facets(self) -> dict[str, str]:
        """Its values of OF_DATASETS."""
        return {"language": self.language, "domain": self.domain, "task": self.task}


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """What a board needs of its benchmark. `source_id` is the publication whose reported figures it shows, if one.

    `efficiency_from` is the dataset whose measured costs it shows, None for the one that most systems share. `left_out`
    are the datasets that a view does not choose.
    """

    name: str
    measure: str
    members: Sequence[Member]
    source_id: int | None = None
    efficiency_from: int | None = None
    left_out: Sequence[Member] = ()

    @property
    def counted(self) -> list[Member]:
        """The members that aggregates are over."""
        return [member for member in self.members if member.counted]

    @property
    def all_counted(self) -> int:
        """How many members count where the view chooses none."""
        return sum(member.counted for member in (*self.members, *self.left_out))


def chosen(facts: BenchmarkFacts, state: BoardState) -> BenchmarkFacts:
    """The benchmark with the datasets that the view's facets choose.

    Raises UnknownChoice for a language, domain or task that none of its datasets has.
    """
    wanted = {facet: state.chosen(facet) for facet in OF_DATASETS if state.chosen(facet)}
    for facet, values in wanted.items():
        known = sorted({member.facets[facet] for member in facts.members} - {""})
        for value in values:
            if value not in known:
                raise UnknownChoice(facet, value, known)
    if not wanted:
        return facts

    def fits(member: Member) -> bool:
        return all(member.facets[facet] in values for facet, values in wanted.items())

    return replace(
        facts,
        members=[member for member in facts.members if fits(member)],
        left_out=[member for member in facts.members if not fits(member)],
    )


def without_left_out(facts: BenchmarkFacts, state: BoardState) -> BoardState:
    """The view without orders and ranges by datasets that it does not show."""
    gone = {member.slug for member in facts.left_out}
    if not gone:
        return state
    return replace(
        state,
        sorts=tuple(sort for sort in state.sorts if sort.key not in gone),
        ranges=tuple(each for each in state.ranges if each.key not in gone),
    )
