"""The rows of a benchmark's board: what each system has on each dataset, and what follows from it over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import Tables, plain, table
from leaderboard.boards.benchmark.columns import BORDA, COMMON, MEAN_RANK, OverAll, common_column
from leaderboard.boards.benchmark.composite import is_mean_of_parts
from leaderboard.boards.benchmark.lines import BenchmarkLine, SystemLine, Systems, collect_lines
from leaderboard.boards.columns.marks import title_of
from leaderboard.boards.facets import facets_of
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.filtering import filter_rows
from leaderboard.boards.model import Board, Column, Identity, Row, fill_cells
from leaderboard.boards.state import BoardState
from leaderboard.results.history.entry_columns import NO_ENTRIES, DatasetEntries
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.kinds import PRIVATE, REPORTED


def rows_of(
    facts: BenchmarkFacts,
    measure: str,
    columns: Sequence[Column],
    lines: Sequence[SystemLine],
    systems: Mapping[int, SystemRow],
    tables: Tables,
    view: str,
) -> list[Row]:
    """One row for each line, with what the view shows of its scores.

    Costs, and what follows from them or from the rows in view, are still missing.
    """
    hidden = any(member.facts.hidden for member in facts.members)
    special = [
        (place, member)
        for place, member in enumerate(facts.members)
        if member.parts or measure in member.stand_ins
    ]
    made, rows, shown = [], [], _shown(lines, tables, view)
    for number, (line, kind) in enumerate(zip(lines, tables.kinds, strict=True)):
        system, provenances = systems[line.system_id], set(line.provenances) - {""}
        decimals = 3 if kind == REPORTED or hidden else 4
        entry = _identity(line, system, ", ".join(sorted(provenances)))
        beside = _cell_details(special, measure, line, decimals, view)
        made.append(BenchmarkLine(system, kind, decimals, entry.provenance, number, shown[number], beside))
        facets = facets_of(system, provenances, set(line.trainings) - {""})
        rows.append(Row(entry, kind, decimals, facets=facets))
    fill_cells(rows, columns, made)
    return rows


def _shown(lines: Sequence[SystemLine], tables: Tables, view: str) -> Sequence[Sequence[float | None]]:
    """What the datasets' columns have in the view, by line."""
    if not view:
        return [line.scores for line in lines]
    if view == "rank":
        table = aggregates.ranks(tables.scores, tables.kinds, lower_is_better=tables.lower_is_better)
    else:
        compare = aggregates.differences if view == "delta" else aggregates.ratios
        table = compare(tables.scores, tables.baselines)
    return [plain(row) for row in table]


def _identity(line: SystemLine, system: SystemRow, provenance: str) -> Identity:
    return Identity(
        system.name,
        system.slug,
        system.architecture,
        system.team,
        system.team_slug,
        system.source_key,
        provenance,
        line.configuration,
        bool(line.baseline_on),
        entries=[pk for pk, score in zip(line.entries, line.scores, strict=True) if score is not None],
        challenged=system.challenged,
    )


def _cell_details(
    special: Sequence[tuple[int, Member]], measure: str, line: SystemLine, decimals: int, view: str
) -> dict[int, tuple[str, str, str]]:
    """The marks, titles and spreads of the line's cells, by place of the dataset; nothing of plain ones.

    `special` are the datasets that show another measure, or are means of their parts.
    """
    marks: dict[int, str] = {}
    titles: dict[int, str] = {}
    spreads: dict[int, str] = {}
    if len(set(line.provenances) - {""}) > 1:
        titles = {place: provenance for place, provenance in enumerate(line.provenances) if provenance}
    for place, member in special:
        if line.scores[place] is None:
            continue
        if measure in member.stand_ins:
            marks[place] = member.stand_ins[measure]
        if member.parts and is_mean_of_parts(line.groups[place]):
            titles[place] = f"mean of {len(member.parts)} parts"
    for place in line.in_domain:
        marks[place] = f"‡ {marks[place]}" if place in marks else "‡"
    for place, seeds in line.seeds.items():
        if line.scores[place] is not None:
            titles[place] = "; ".join(filter(None, [title_of(seeds, decimals), titles.get(place)]))
            if not view and seeds.deviation is not None:
                spreads[place] = f"± {seeds.deviation:.{decimals}f} ({seeds.number})"
    for place in line.left_out:
        titles[place] = f"left out: {line.trainings[place]}"
    places = {*marks, *titles, *spreads}
    return {place: (marks.get(place, ""), titles.get(place, ""), spreads.get(place, "")) for place in places}


#: A mean over fewer common datasets of many says too little to stand on a board that nobody asked for it.
LEAST_COMMON = 2


def fill_common(facts: BenchmarkFacts, board: Board, tables: Tables, state: BoardState) -> bool:
    """The means over the datasets that all rows of the view have, which the column's head then names.

    Whether the column says enough to stay: a mean over one dataset of many says little, unless the view names it.
    """
    ranges = tuple(each for each in state.ranges if each.key != COMMON)
    looked_at = {
        id(row) for row in filter_rows(board, board.rows, replace(state, ranges=ranges, zero_shot=False))
    }
    numbers = [number for number, row in enumerate(board.rows) if id(row) in looked_at]
    found = aggregates.common(tables.of_counted[0], numbers)
    for row, value in zip(board.rows, plain(found.means), strict=True):
        row.values[COMMON] = value
    board.columns = [
        common_column(column, facts.counted, found.places) if column.key == COMMON else column
        for column in board.columns
    ]
    return len(found.places) >= LEAST_COMMON or len(facts.counted) <= LEAST_COMMON or uses_common_mean(state)


def uses_common_mean(state: BoardState) -> bool:
    """Whether the view orders or filters by the mean over common datasets."""
    return COMMON in {sort.key for sort in state.sorts} | {each.key for each in state.ranges}


NOTE = (
    "Private: only your team sees these rows. They have no rank, move no rank, mean or mark of others, and are in no "
    "export, figure or feed."
)


def private_rows(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    public: Sequence[SystemLine],
    columns_for: Callable[[OverAll], Sequence[Column]],
    read_systems: Systems,
    state: BoardState,
    measure: str,
    *,
    lower_is_better: bool,
) -> list[Row]:
    """Rows of private entries, by dataset, compared with the baselines of the `public` lines; without costs."""
    own = {member.dataset_id: entries.get(member.dataset_id, NO_ENTRIES) for member in facts.members}
    lines = collect_lines(facts, own, measure, zero_shot=state.zero_shot, beside=public)
    width = len(facts.members)
    tables = Tables(
        scores=table([line.scores for line in lines], width),
        baselines=table([line.baselines for line in lines], width),
        counted=[place for place, member in enumerate(facts.members) if member.counted],
        kinds=[PRIVATE] * len(lines),
        lower_is_better=lower_is_better,
    )
    systems = read_systems()
    columns = columns_for(OverAll(tables))
    rows = rows_of(facts, measure, columns, lines, systems, tables, state.view)
    ranks = [BORDA, MEAN_RANK]
    if state.view == "rank":
        ranks += [member.slug for member in facts.members]
    for row in rows:
        if isinstance(row.entry, Identity):
            row.entry = row.entry._replace(visibility="private")
        for key in ranks:
            if row.value(key) is not None:
                row[key] = replace(row[key], value=None)
    return rows
