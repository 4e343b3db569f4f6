"""Boards of single datasets over a slice of the judged queries: scores and tests from the stored values by query."""

from collections.abc import Sequence
from dataclasses import replace

from leaderboard.boards.dataset_board import select_measures
from leaderboard.boards.model import DatasetFacts, Member
from leaderboard.boards.state import BoardState
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import EntryRow, present_group
from leaderboard.results.records import per_query_means
from leaderboard.results.significance.computing import Values, analyse_values
from leaderboard.results.significance.statements import BoardStatements, ComparedBoard
from leaderboard.results.significance.types import BoardCertainty, TestSettings
from leaderboard.results.slices import QuerySlice

#: Maximum number of values of a slice (systems × queries) that a page tests, which takes about two seconds.
MAX_TESTED_VALUES = 200_000


def slice_board(
    member: Member, queries: QuerySlice, entries: Sequence[EntryRow], state: BoardState
) -> tuple[DatasetFacts, list[EntryRow], BoardStatements]:
    """Return the facts, entries, and statements of a board whose scores are over a slice.

    Entries without values by query, which are reported or scored on other judgments, have no scores. Slices of few
    queries and of large boards have no intervals and tests.
    """
    facts = replace(member.facts, slice=queries, relevant_per_query=None)
    public_entries = [entry for entry in entries if entry.is_public]
    groups = [(entry.comparison_group, entry.is_baseline) for entry in public_entries]
    group = present_group(facts.version_id, facts.qrels_id, groups)
    scored_entries = [entry for entry in entries if group and entry.comparison_group == group]
    measure = select_measures(facts, scored_entries, state)[1]
    scores: dict[int, dict[str, float]] = {}
    columns: dict[int, Values] = {}
    rows = Entry.objects.filter(pk__in=[entry.pk for entry in scored_entries]).order_by("published_at", "pk")
    for entry in rows.select_related("evaluation").prefetch_related("seeds__evaluation").iterator(chunk_size=50):
        names, all_values = per_query_means(entry)
        values = all_values[queries.rows]
        scores[entry.pk] = dict(zip(names, values.mean(axis=0).tolist(), strict=True))
        if measure in names:
            columns[entry.pk] = values[:, names.index(measure)].copy()
    sliced_entries = [
        entry._replace(
            scores={name: scores[entry.pk][name] for name in entry.scores if name in scores.get(entry.pk, ())},
            deviations={},
            missing_queries=None,
        )
        for entry in entries
    ]
    compared = [entry for entry in public_entries if entry.pk in columns]
    board = ComparedBoard(
        member.dataset_id,
        group,
        [entry.pk for entry in compared],
        next((entry.pk for entry in reversed(compared) if entry.is_baseline), None),
        [measure],
        [entry.pk for entry in compared if entry.closed_api],
    )
    content = {}
    if compared and queries.is_tested and len(compared) * queries.count <= MAX_TESTED_VALUES:
        content[measure] = analyse_values(measure, {pk: columns[pk] for pk in board.entries}, board).as_dict()
    certainty = BoardCertainty(
        dataset=member.dataset_id,
        key="",
        comparison_group=group,
        from_revision=member.revision.number,
        computed_at=member.revision.at,
        settings=TestSettings(),
        current=True,
        baseline=board.baseline,
        content=content,
    )
    return facts, sliced_entries, BoardStatements(certainty)
