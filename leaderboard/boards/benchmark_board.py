"""The board of a benchmark: systems × datasets for one measure, with aggregates over the datasets that count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from leaderboard.baselines import BM25
from leaderboard.boards.aggregates import Tables, means, plain
from leaderboard.boards.benchmark_base import base_of
from leaderboard.boards.benchmark_columns import COMMON, RANKING, Layout, columns_of, default_sort
from leaderboard.boards.benchmark_costs import CostsShown, costs_shown
from leaderboard.boards.benchmark_notes import notes_of
from leaderboard.boards.benchmark_rows import fill_common, names_common, rows_of
from leaderboard.boards.collecting import Line, available_measures
from leaderboard.boards.cost_columns import CostColumns, cost_group, notes_on_costs
from leaderboard.boards.declared import DeclaredColumns
from leaderboard.boards.entries import DatasetEntries, Figures
from leaderboard.boards.figures import FigureKey, figure_columns, place_figures
from leaderboard.boards.measured import with_baseline
from leaderboard.boards.measures import better
from leaderboard.boards.members import BenchmarkFacts, chosen, without_left_out
from leaderboard.boards.model import SCORED, Board, Column, Row
from leaderboard.boards.private_lines import NOTE, private_rows
from leaderboard.boards.ranking import assign_ranks
from leaderboard.boards.reading import SystemRow
from leaderboard.boards.state import VIEWS, BoardState, UnknownChoice
from leaderboard.boards.viewing import arrange, resolved_sorts
from leaderboard.boards.weighing import fill_weighted


def benchmark_board(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    read_systems: Callable[[Iterable[int]], Mapping[int, SystemRow]],
    state: BoardState,
    private: Mapping[int, DatasetEntries] | None = None,
) -> Board:
    """The view that `state` asks for, of the entries that its datasets have by their ids.

    `read_systems` is asked for the systems that the board turns out to have, once or, where they are known, never.
    `private` are entries of the reader's own teams: they have rows of their own, and move nothing of the others.

    Raises UnknownChoice for a column, a measure or a dataset's facet that the board does not have.
    """
    measure = state.measure or facts.measure
    measures = available_measures(facts, entries)
    if measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    facts = chosen(facts, state)
    state = without_left_out(facts, state)
    lower = better(measure) == "lower"
    base = base_of(facts, entries, measure, read_systems, lower_is_better=lower, zero_shot=state.zero_shot)
    lines, systems, tables = base.lines, base.systems, base.tables
    stated_on, stated = _stated(facts, entries)
    of_lines = [stated.get((line.system_id, line.configuration), ()) for line in lines]
    efficiency = figure_columns([(found, {}) for found in of_lines if found])
    shown, cost_columns = _measured_costs(facts, entries, lines, systems, state)
    columns = columns_of(
        facts,
        measure,
        state.view,
        common=_needs_common(tables, state),
        weighted=bool(state.weights),
        costs=cost_columns.columns,
        efficiency=efficiency,
        efficiency_of=stated_on,
        declared=DeclaredColumns.of(systems.values()).columns,
    )
    layout = Layout.of(facts, measure, columns, len(cost_columns.columns) + len(efficiency))
    rows = base.fresh_rows(
        (state.view, layout.key), lambda: rows_of(layout, lines, systems, tables, state.view)
    )
    _place_costs(layout, lines, rows, shown, cost_columns, of_lines, efficiency)
    board = Board(title=facts.name, columns=columns, rows=rows, measure=measure, measures=measures)
    board.views = VIEWS
    board.of_datasets = [member.facets for member in (*facts.members, *facts.left_out)]
    if shown.machine:
        board.machine, board.machines = shown.machine, shown.machines
        board.cost_group = cost_group(shown.machine, shown.dataset)
    on_weights = []
    if state.weights:
        effectiveness = plain(means(tables.of_counted[0]))
        on_weights = fill_weighted(board, effectiveness, state, lower_is_better=lower)
    own: list[Row] = []
    if private:
        own = private_rows(facts, private, lines, layout, read_systems, state, measure, lower_is_better=lower)
    ranked_by = _view(facts, board, tables, state, own)
    board.notes = notes_of(facts, board, rows, ranked_by, state) + on_weights
    if own:
        board.notes.append(NOTE)
    if shown.machine:
        board.notes += notes_on_costs(shown.machine, shown.measured.values(), shown.elsewhere, shown.dataset)
    return board


def _measured_costs(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    lines: Sequence[Line],
    systems: Mapping[int, SystemRow],
    state: BoardState,
) -> tuple[CostsShown, CostColumns]:
    """The measured costs that the board shows, BM25's too, and their columns."""
    shown = costs_shown(facts, entries, lines, state)
    bm25 = next(
        (
            (line.system_id, line.configuration)
            for line in lines
            if line.baseline_on and line.ranked_in == SCORED and systems[line.system_id].slug == BM25.slug
        ),
        None,
    )
    with_baseline(shown.measured, bm25)
    return shown, CostColumns.of(shown.measured.values(), shown.machine, shown.dataset, state.corpus)


def _stated(
    facts: BenchmarkFacts, entries: Mapping[int, DatasetEntries]
) -> tuple[str, dict[tuple[int, str], Figures]]:
    """What systems need as reported, by system and configuration, and the dataset where: the first that says so.

    A board takes them from one named dataset, whichever it shows: an average over corpora of different sizes would
    mean nothing.
    """
    for member in (*facts.members, *facts.left_out):
        costs = entries[member.dataset_id].costs_of(facts.source_id)
        if costs:
            return member.facts.name, costs
    return "", {}


def _place_costs(
    layout: Layout,
    lines: Sequence[Line],
    rows: Sequence[Row],
    shown: CostsShown,
    cost_columns: CostColumns,
    stated: Sequence[Figures | tuple[()]],
    efficiency: Mapping[FigureKey, Column],
) -> None:
    """Put what systems cost into their rows, measured here or stated by a publication."""
    first = layout.first_cost()
    places = {key: place for place, key in enumerate(efficiency, first + len(cost_columns.columns))}
    for found, row in zip(stated, rows, strict=True):
        if found:
            place_figures(row, found, places)
    if not shown.machine:
        return
    for line, row in zip(lines, rows, strict=True):
        measured = shown.measured.get((line.system_id, line.configuration))
        if measured and line.ranked_in == SCORED:
            cost_columns.place(row, measured, first)


def _needs_common(tables: Tables, state: BoardState) -> bool:
    """Whether a mean over common datasets says anything: where all rows are complete, it is their mean."""
    return names_common(state) or not tables.complete


def _view(
    facts: BenchmarkFacts, board: Board, tables: Tables, state: BoardState, own: Sequence[Row]
) -> Column:
    """Rank the rows, add the team's `own`, leave those in view, in its order; what they are ranked by."""
    keys = [column.key for column in board.columns]
    default = default_sort(facts, keys)
    sort = resolved_sorts(board.columns, state, default)[0].key
    datasets = {member.slug for member in facts.members}
    ranked_by = board.columns[keys.index(sort if sort in RANKING or sort in datasets else default)]
    assign_ranks(board.rows, keys.index(ranked_by.key), lower_is_better=ranked_by.better == "lower")
    said_enough = COMMON not in keys or fill_common(facts, board, tables, state)
    board.rows = [*board.rows, *own]
    if not said_enough:
        board.drop(COMMON)
    # Values that are not zero-shot are left out already, one by one.
    arrange(board, replace(state, zero_shot=False), default)
    return ranked_by
