"""The rows of a benchmark's board: what each system has on each dataset, and what follows from it over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import Tables, plain
from leaderboard.boards.benchmark.columns import (
    AVERAGE,
    BORDA,
    COMMON,
    COVERAGE,
    MEAN,
    MEAN_RANK,
    MEAN_RELATIVE,
    WINS,
    Layout,
    common_column,
)
from leaderboard.boards.benchmark.composite import is_mean_of_parts
from leaderboard.boards.benchmark.lines import Line
from leaderboard.boards.columns.seeds import title_of
from leaderboard.boards.columns.weighted import WEIGHTED
from leaderboard.boards.dataset_board import ARCHITECTURES
from leaderboard.boards.facets import HOUSE, facets_of
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.filtering import in_view
from leaderboard.boards.model import Board, Identity, Row, Value
from leaderboard.boards.state import BoardState
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.kinds import REPORTED


def rows_of(
    layout: Layout,
    lines: Sequence[Line],
    systems: Mapping[int, SystemRow],
    tables: Tables,
    view: str,
) -> list[Row]:
    """One row for each line, with what the view shows of its scores.

    Costs, and what follows from them or from the rows in view, are still missing.
    """
    rows = [
        _row(layout, line, kind, systems[line.system_id], view)
        for line, kind in zip(lines, tables.kinds, strict=True)
    ]
    if not rows:
        return rows
    cells = _cells(lines, tables, view)
    columns = _over_all(layout, rows, tables)
    before = [column for place, column in columns.items() if place < layout.datasets.start]
    after = [column for place, column in columns.items() if place >= layout.datasets.stop]
    blank: list[Value] = [None] * layout.empty
    for row, line, values, first, last in zip(
        rows, lines, cells, _by_row(before, rows), _by_row(after, rows), strict=True
    ):
        system = systems[line.system_id]
        row.values = [
            system.name,
            *first,
            *values,
            *last,
            *blank,
            ARCHITECTURES.get(system.architecture, system.architecture),
            row.entry.provenance,
            (system.source or None) if line.ranked_in == REPORTED else system.team or HOUSE,
            *layout.declared.values(system),
        ]
    return rows


def _by_row(columns: Sequence[Sequence[Value]], rows: Sequence[Row]) -> Sequence[Sequence[Value]]:
    return list(zip(*columns, strict=True)) if columns else [()] * len(rows)


def _cells(lines: Sequence[Line], tables: Tables, view: str) -> Sequence[Sequence[float | None]]:
    """What the datasets' columns show."""
    if not view:
        return [line.scores for line in lines]
    if view == "rank":
        shown = aggregates.ranks(tables.scores, tables.kinds, lower_is_better=tables.lower_is_better)
    else:
        compare = aggregates.differences if view == "delta" else aggregates.ratios
        shown = compare(tables.scores, tables.baselines)
    return [plain(row) for row in shown]


def _over_all(layout: Layout, rows: Sequence[Row], tables: Tables) -> dict[int, Sequence[Value]]:
    """The aggregates that the board has columns for, by place in order of the columns."""
    places = layout.places
    scores, baselines = tables.of_counted
    blank: Sequence[Value] = [None] * len(rows)
    if MEAN not in places:
        average: Sequence[Value] = plain(aggregates.ratio_of_means(scores, baselines))
        weighted = {places[WEIGHTED]: blank} if WEIGHTED in places else {}
        return {**weighted, places[AVERAGE]: average}
    covered = aggregates.coverage(scores)
    won = aggregates.wins(scores, baselines, lower_is_better=tables.lower_is_better)
    ranked = aggregates.rank_figures(scores, tables.kinds, lower_is_better=tables.lower_is_better)
    width, of_coverage, of_wins = scores.shape[1], places[COVERAGE], places[WINS]
    wins: list[Value] = []
    for row, number, *counts in zip(rows, covered, *won, strict=True):
        row.shown[of_coverage] = f"{number}/{width}"
        if any(counts):
            row.shown[of_wins] = "{}/{}/{}".format(*counts)
            wins.append(float(counts[0]))
        else:
            wins.append(None)
    found: dict[str, Sequence[Value]] = {
        WEIGHTED: blank,
        MEAN: plain(aggregates.means(scores)),
        COMMON: blank,
        COVERAGE: list(map(float, covered)),
        AVERAGE: plain(aggregates.ratio_of_means(scores, baselines)),
        MEAN_RELATIVE: plain(aggregates.mean_of_ratios(scores, baselines)),
        WINS: wins,
        BORDA: plain(ranked.borda),
        MEAN_RANK: plain(ranked.mean_rank),
    }
    return dict(sorted((places[key], values) for key, values in found.items() if key in places))


def _row(layout: Layout, line: Line, kind: str, system: SystemRow, view: str) -> Row:
    several = set(line.provenances) - {""}
    identity = Identity(
        system.name,
        system.slug,
        system.architecture,
        system.team,
        system.team_slug,
        system.source_key,
        ", ".join(sorted(several)),
        line.configuration,
        bool(line.baseline_on),
        entries=[pk for pk, score in zip(line.entries, line.scores, strict=True) if score is not None],
        challenged=system.challenged,
    )
    row = Row(identity, kind, 3 if kind == REPORTED or layout.hidden else 4, [])
    row.facets = facets_of(system, several, set(line.trainings) - {""})
    first = layout.datasets.start
    for place, measure in layout.stand_ins.items():
        if line.scores[place - first] is not None:
            row.marks[place] = measure
    for place in line.in_domain:
        place += first
        row.marks[place] = f"‡ {row.marks[place]}" if place in row.marks else "‡"
    if len(several) > 1:
        for place, provenance in enumerate(line.provenances, first):
            if provenance:
                row.titles[place] = provenance
    for place, group in enumerate(line.groups, first) if layout.parts else ():
        if is_mean_of_parts(group) and line.scores[place - first] is not None:
            row.titles[place] = f"mean of {layout.parts[place]} parts"
    for place, seeds in line.seeds.items():
        if line.scores[place] is not None:
            said = title_of(seeds, row.decimals)
            row.titles[place + first] = "; ".join(filter(None, [said, row.titles.get(place + first)]))
            if not view and seeds.deviation is not None:
                row.spreads[place + first] = f"± {seeds.deviation:.{row.decimals}f} ({seeds.number})"
    for place in line.left_out:
        row.titles[place + first] = f"left out: {line.trainings[place]}"
    return row


#: A mean over fewer common datasets of many says too little to stand on a board that nobody asked for it.
LEAST_COMMON = 2


def fill_common(facts: BenchmarkFacts, board: Board, tables: Tables, state: BoardState) -> bool:
    """The means over the datasets that all rows of the view have, which the column's head then names.

    Whether the column says enough to stay: a mean over one dataset of many says little, unless the view names it.
    """
    place = board.index(COMMON)
    ranges = tuple(each for each in state.ranges if each.key != COMMON)
    looked_at = {
        id(row) for row in in_view(board, board.rows, replace(state, ranges=ranges, zero_shot=False))
    }
    numbers = [number for number, row in enumerate(board.rows) if id(row) in looked_at]
    found = aggregates.common(tables.of_counted[0], numbers)
    for row, value in zip(board.rows, plain(found.means), strict=True):
        row.values[place] = value
    board.columns[place] = common_column(board.columns[place], facts.counted, found.places)
    return len(found.places) >= LEAST_COMMON or len(facts.counted) <= LEAST_COMMON or names_common(state)


def names_common(state: BoardState) -> bool:
    """Whether the view orders or filters by the mean over common datasets."""
    return COMMON in {sort.key for sort in state.sorts} | {each.key for each in state.ranges}
