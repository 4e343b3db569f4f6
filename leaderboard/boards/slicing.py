"""Boards of single datasets over a slice of the judged queries: scores and tests from the stored per-query values."""

from collections.abc import Collection, Sequence

from evaluation.measures.registry import QUERY_SPANNING_MEASURES
from leaderboard.boards.dataset_board import select_measures
from leaderboard.boards.model import Member
from leaderboard.boards.state import BoardState
from leaderboard.models import Entry, can_be_best
from leaderboard.results.board_rows.entry_rows import EntryRow, present_group
from leaderboard.results.records import per_query_means
from leaderboard.results.significance.computing import Values, analyse_values
from leaderboard.results.significance.statements import BoardStatements, ComparedBoard
from leaderboard.results.significance.types import BoardCertainty, TestSettings
from leaderboard.results.slices import QuerySlice

#: Maximum number of values of a slice (systems × queries) that a page tests, which takes about two seconds.
MAX_TESTED_VALUES = 200_000


def slice_entries(
    member: Member, queries: QuerySlice, entries: Sequence[EntryRow], state: BoardState
) -> tuple[list[EntryRow], BoardStatements]:
    """Return the entries and statements of a board whose scores are over a slice of the queries.

    Entries without per-query values on the present judgments have no scores. Slices of few queries and of large boards
    have no intervals or tests.
    """
    facts, public_entries = member.facts, [entry for entry in entries if entry.is_public]
    groups = [(entry.comparison_group, entry.is_baseline) for entry in public_entries]
    group = present_group(facts.version_id, facts.qrels_id, groups)
    scored_entries = [entry for entry in entries if group and entry.comparison_group == group]
    measure = select_measures(facts, scored_entries, state)[1]
    scores, columns = _read_values([entry.pk for entry in scored_entries], queries, measure)
    compared_entries = [entry for entry in public_entries if entry.pk in columns]
    baseline = next((entry.pk for entry in reversed(compared_entries) if entry.is_baseline), None)
    closed = [entry.pk for entry in compared_entries if not can_be_best(entry.closed_api, entry.run_type)]
    board = ComparedBoard(member.dataset_id, group, [each.pk for each in compared_entries], baseline, [measure], closed)
    content = {}
    if (
        compared_entries
        and measure not in QUERY_SPANNING_MEASURES
        and queries.has_enough_queries
        and len(compared_entries) * queries.size <= MAX_TESTED_VALUES
    ):
        content[measure] = analyse_values(measure, {pk: columns[pk] for pk in board.entries}, board).as_dict()
    certainty = BoardCertainty(
        board.dataset, "", group, member.revision.number, member.revision.at, TestSettings(), True, baseline, content
    )
    sliced_entries = []
    for entry in entries:
        means = scores.get(entry.pk, {})
        sliced_scores = {key: means[key] for key in entry.scores if key in means and key not in QUERY_SPANNING_MEASURES}
        sliced_entries.append(entry._replace(scores=sliced_scores, deviations={}, missing_queries=None))
    return sliced_entries, BoardStatements(certainty)


def _read_values(
    ids: Collection[int], queries: QuerySlice, measure: str
) -> tuple[dict[int, dict[str, float]], dict[int, Values]]:
    """Return the means of all measures over a slice, and the values of one of them, by entry id."""
    scores, columns = {}, {}
    rows = Entry.objects.filter(pk__in=ids).order_by("published_at", "pk")
    for entry in rows.select_related("evaluation").prefetch_related("seeds__evaluation").iterator(chunk_size=50):
        names, all_values = per_query_means(entry)
        values = all_values[queries.rows]
        scores[entry.pk] = dict(zip(names, values.mean(axis=0).tolist(), strict=True))
        if measure in names:
            columns[entry.pk] = values[:, names.index(measure)].copy()
    return scores, columns
