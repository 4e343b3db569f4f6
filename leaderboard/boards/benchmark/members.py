"""What a board needs to know of a benchmark and its datasets, and which of these a view chooses."""

from __future__ import annotations

from dataclasses import replace

from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.state import BoardState
from leaderboard.core.http.choices import UnknownChoice


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
