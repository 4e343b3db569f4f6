"""The board of a benchmark: systems × datasets for one measure, with aggregates over the datasets that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from django.utils.translation import gettext_noop as _

from leaderboard.boards.benchmark.aggregates import Tables, means, plain
from leaderboard.boards.benchmark.columns import (
    AVERAGE,
    BORDA,
    COMMON,
    MEAN,
    OF_VIEW,
    RANKING,
    OverAll,
    columns_of,
    default_sort,
    over,
)
from leaderboard.boards.benchmark.costs import LineCosts, is_usual
from leaderboard.boards.benchmark.lines import BoardLines, available_measures, board_lines
from leaderboard.boards.benchmark.rows import NOTE, fill_common, private_rows, rows_of
from leaderboard.boards.benchmark.significance import add_significance
from leaderboard.boards.columns.baseline import difference_to, notes_on_baselines
from leaderboard.boards.columns.marks import DOUBTFUL, SEEDS, has_seeds, notes_on_challenges
from leaderboard.boards.columns.reported import has_doubtful
from leaderboard.boards.columns.weighted import fill_weighted
from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.filtering import SharedRows, apply_view, assign_ranks, leave_out_empty, resolved_sorts
from leaderboard.boards.model import Board, Column, Row
from leaderboard.boards.state import VIEWS, BoardState
from leaderboard.boards.summary import summarise
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.text.baselines import baselines_label
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import BoardRows
from leaderboard.results.kinds import CLOSED, CLOSED_NOTE, REPORTED
from leaderboard.results.significance.statements import NOTHING_SAID
from leaderboard.results.significance.types import BoardCertainty
from leaderboard.systems.baselines import BM25


def benchmark_board(
    facts: BenchmarkFacts,
    entries: Mapping[int, BoardRows],
    state: BoardState,
    private: Mapping[int, Sequence[EntryRow]] | None = None,
    certainty: Mapping[int, BoardCertainty] | None = None,
) -> Board:
    """The view that `state` asks for, of the entries that its datasets have by their ids.

    `private` are entries of the reader's own teams: they have rows of their own, and move nothing of the others.
    `certainty` is how sure scores are, by dataset.

    Raises UnknownChoice for a column, a measure or a dataset's facet that the board does not have.
    """
    measure, measures = _measure_in_focus(facts, entries, state)
    facts = _chosen(facts, state)
    state = _without_left_out(facts, state)
    base = board_lines(facts, entries, measure, zero_shot=state.zero_shot)
    lines, tables = base.lines, base.tables
    costs = LineCosts.of(base, entries, state)
    columns_for = partial(_columns, facts, measure, base, costs, state)
    columns = columns_for(OverAll(tables))
    board = Board(title=facts.name, columns=columns, rows=[], measure=measure, measures=measures)
    _give_rows(board, base, measure, costs, state)
    rows = board.rows
    board.views, board.view, board.baseline = VIEWS, state.view, baselines_label(_baseline_names(base))
    board.of_datasets = [member.facets for member in (*facts.members, *facts.left_out)]
    costs.shown.describe(board)
    on_weights = _weigh(board, tables, state)
    own = private_rows(facts, private, lines, columns_for, state, measure) if private else []
    ranked_by = _view(facts, board, tables, state, own)
    names = {place: name for place, (name, _) in base.baselines.items()}
    sure = add_significance(board, facts, certainty or {}, names, state.view)
    board.notes = [
        *notes_of(board, rows, ranked_by, state, base),
        *sure,
        *on_weights,
        *([NOTE] if own else []),
        *costs.shown.notes(),
    ]
    return board


def _give_rows(board: Board, base: BoardLines, measure: str, costs: LineCosts, state: BoardState) -> None:
    """Give the board its rows, with what they cost; those with the usual costs are remembered with these."""
    usual, keys = is_usual(base, state), {column.key for column in board.columns}
    known = base.rows.get((state.view, usual))
    if known is None:
        columns = [
            column
            for column in board.columns
            if column.key not in OF_VIEW and (usual or column not in costs.columns)
        ]
        of_lines = [column for column in columns if column not in costs.columns]
        rows = rows_of(base.facts, measure, of_lines, base.lines, base.tables, state.view)
        if usual:
            costs.place(base.lines, rows)
        by = default_sort(base.facts, keys)
        lower = any(column.better == "lower" for column in columns if column.key == by)
        assign_ranks(rows, by, lower_is_better=lower)
        known = base.rows[state.view, usual] = SharedRows.of(rows, columns)
    known.give_to(board, copies=not usual or bool(state.sorts) or not OF_VIEW.isdisjoint(keys))
    if not usual:
        costs.place(base.lines, board.rows)


def _measure_in_focus(
    facts: BenchmarkFacts, entries: Mapping[int, BoardRows], state: BoardState
) -> tuple[str, list[str]]:
    """The measure that the view asks for, and all that it can. Raises UnknownChoice."""
    measure = state.measure or facts.measure
    measures = available_measures(facts, entries)
    if measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    return measure, measures


def _columns(
    facts: BenchmarkFacts,
    measure: str,
    base: BoardLines,
    costs: LineCosts,
    state: BoardState,
    over_all: OverAll,
) -> list[Column]:
    return columns_of(
        facts,
        measure,
        over_all,
        state.view,
        difference=difference_to(_baseline_names(base)),
        weighted=bool(state.weights),
        costs=costs.columns,
    )


def _weigh(board: Board, tables: Tables, state: BoardState) -> list[str]:
    """Fill the weighted score where the view has weights; what is to be said of it."""
    if not state.weights:
        return []
    effectiveness = plain(means(tables.of_counted[0]))
    return fill_weighted(board, effectiveness, state, lower_is_better=tables.lower_is_better)


def _baseline_names(base: BoardLines) -> set[str]:
    """What differences are taken to; reported figures are always compared with their publication's BM25."""
    names = {name for name, _ in base.baselines.values()}
    reported = any(line.baseline_on and line.ranked_in == REPORTED for line in base.lines)
    return names | {BM25.name} if reported else names


def _view(
    facts: BenchmarkFacts, board: Board, tables: Tables, state: BoardState, own: Sequence[Row]
) -> Column:
    """Rank the rows, add the team's `own`, leave those in view, in its order; what they are ranked by."""
    columns = {column.key: column for column in board.columns}
    default = default_sort(facts, columns)
    sort = resolved_sorts(board, state, default)[0].key
    datasets = {member.slug for member in facts.members}
    ranked_by = columns[sort if sort in RANKING or sort in datasets else default]
    if state.sorts:
        assign_ranks(board.rows, ranked_by.key, lower_is_better=ranked_by.better == "lower")
    said_enough = COMMON not in columns or fill_common(facts, board, tables, state)
    leave_out_empty(board, board.rows, state, default, every_kind=False)
    if not said_enough:
        board.columns = [column for column in board.columns if column.key != COMMON]
    if own:
        board.rows, board.counted = [*board.rows, *own], None
    board.complete_by = _complete_by(board, facts, sort if sort == COMMON or sort in datasets else MEAN)
    board.summary = summarise(
        board,
        f"mean {board.measure}" if facts.all_counted > 1 else board.measure,
        NOTHING_SAID,
        lower_is_better=tables.lower_is_better,
        key=default,
        relative=AVERAGE,
        tested=False,
        filtered=state.filtered,
    )
    # Values that are not zero-shot are left out already, one by one.
    apply_view(board, replace(state, zero_shot=False), default, copies=True)
    return ranked_by


def _complete_by(board: Board, facts: BenchmarkFacts, key: str) -> str:
    """The column of this key, of which rows have a value that are not folded away; none where no row has one."""
    if facts.all_counted < 2 or all(row.value(key) is None for row in board.rows):
        return ""
    return key


def _chosen(facts: BenchmarkFacts, state: BoardState) -> BenchmarkFacts:
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


def _without_left_out(facts: BenchmarkFacts, state: BoardState) -> BoardState:
    """The view without orders and ranges by datasets that it does not show."""
    gone = {member.slug for member in facts.left_out}
    if not gone:
        return state
    return replace(
        state,
        sorts=tuple(sort for sort in state.sorts if sort.key not in gone),
        ranges=tuple(each for each in state.ranges if each.key not in gone),
    )


def notes_of(
    board: Board, rows: Sequence[Row], ranked_by: Column, state: BoardState, base: BoardLines
) -> list[str]:
    """The notes below the board; `rows` are all its rows, whatever the view leaves."""
    return [
        *_on_ranks(base.facts, board, ranked_by),
        *notes_on_baselines(base.facts, base.baselines),
        *_on_datasets(base.facts, board),
        *_on_kinds(board, rows, state, base),
    ]


def _on_ranks(facts: BenchmarkFacts, board: Board, ranked_by: Column) -> list[str]:
    keys = {column.key: column for column in board.columns}
    several = facts.all_counted > 1
    notes = [f"Ranked by {ranked_by.label}; equal values share a rank, missing values always sort last."]
    if several:
        notes.append(
            f"Means are {over(facts)}, for complete rows only; missing values are excluded, never 0."
        )
    if COMMON in keys:
        notes.append(f"Common mean: {keys[COMMON].note}; it changes with the filters.")
    notes.append(
        "Δ compares with the baseline of the same source, dataset version and judgements."
        + (
            " Δ mean (%) is the ratio of the two means, Mean of Δ (%) the mean of the ratios; W/T/L counts counted "
            "datasets won, tied and lost."
            if several
            else ""
        )
    )
    if BORDA in keys:
        notes.append(
            _(
                "Borda count and mean rank are among all complete rows of the same kind; filters do not change them."
            )
        )
    return notes


def _on_datasets(facts: BenchmarkFacts, board: Board) -> list[str]:
    notes = []
    if facts.left_out:
        notes.append(
            f"Filtered by language, domain or task: {len(facts.members)} of "
            f"{len(facts.members) + len(facts.left_out)} datasets; all aggregates are over these."
        )
    shown = [member.facts.name for member in facts.members if not member.counted]
    if shown:
        notes.append(f"Shown, but not part of any aggregate: {', '.join(shown)}.")
    for member in facts.members:
        stand_in = member.measure(board.measure)
        if stand_in != board.measure:
            notes.append(f"{member.facts.name} shows {stand_in} instead of {board.measure}.")
        if member.parts:
            notes.append(
                f"{member.facts.name}: scored results are means over its {len(member.parts)} parts, for systems that "
                "have all of them."
            )
    return notes


def _on_kinds(board: Board, rows: Sequence[Row], state: BoardState, base: BoardLines) -> list[str]:
    notes = []
    datasets = {member.slug for member in base.facts.members}
    shown = {column.key for column in board.columns if column.key in datasets}
    if any(row.ranked_in == REPORTED for row in rows):
        notes.append(
            _(
                "Reported: figures taken from publications, not recomputed here, and ranked separately from results "
                "scored here."
            )
        )
    if any(row.ranked_in == CLOSED for row in rows):
        notes.append(CLOSED_NOTE)
    if shown and base.any_in_domain:
        notes.append(_("‡ in-domain: trained on that dataset."))
    if has_seeds(rows, shown):
        notes.append(SEEDS)
    if state.zero_shot:
        notes.append(
            _(
                "Zero-shot only: values of systems that were trained on the dataset, or do not declare their training "
                "data, are left out of cells and aggregates; unsupervised adaptation to the corpus is kept."
            )
        )
    if has_doubtful(rows, board.columns):
        notes.append(DOUBTFUL)
    return notes + notes_on_challenges(rows)
