"""The rows of a benchmark's board: what each system has on each dataset, and what follows from it over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import Tables, plain
from leaderboard.boards.benchmark.columns import (
    BORDA,
    COMMON,
    COVERAGE,
    MEAN_RANK,
    Look,
    OverAll,
    columns_of,
    common_column,
)
from leaderboard.boards.benchmark.composite import is_mean_of_parts
from leaderboard.boards.benchmark.lines import IN_DOMAIN, BenchmarkLine, SystemLine, collect_lines, tables_of
from leaderboard.boards.columns.marks import title_of
from leaderboard.boards.facets import facets_of
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.filtering import best_values, filter_rows
from leaderboard.boards.model import Board, Column, Row, fill_cells
from leaderboard.boards.state import BoardState
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import BoardRows
from leaderboard.results.kinds import PRIVATE, REPORTED


def rows_of(
    facts: BenchmarkFacts,
    look: Look,
    columns: Sequence[Column],
    lines: Sequence[SystemLine],
    tables: Tables,
) -> list[Row]:
    """One row for each line, with what the view shows of its scores.

    Costs, and what follows from them or from the rows in view, are still missing.
    """
    hidden = any(member.facts.hidden for member in facts.members)
    special = any(member.parts or look.measure in member.stand_ins for member in facts.members)
    made, rows, shown = [], [], _shown(lines, tables, look.view)
    for number, (line, kind) in enumerate(zip(lines, tables.kinds, strict=True)):
        provenances = set(map(attrgetter("provenance"), line.results)) - {""}
        trainings = set(map(attrgetter("training"), line.results)) - {""}
        decimals = 3 if kind == REPORTED or hidden else 4
        entry = _of_system(line, ", ".join(sorted(provenances)))
        mixed, seeds = len(provenances) > 1, any(map(attrgetter("seed_count"), line.results))
        beside = {}
        if special or mixed or seeds or IN_DOMAIN in trainings or line.left_out:
            beside = _beside(facts, look, line, decimals, mixed=mixed)
        made.append(
            BenchmarkLine(
                line.about, kind, decimals, entry.provenance, number, shown[number], beside, line.parameters
            )
        )
        row = Row(entry, kind, decimals, facets=facets_of(line.about, provenances, trainings))
        row.entries = [
            0 if score is None else result.pk for result, score in zip(line.results, line.scores, strict=True)
        ]
        rows.append(row)
    fill_cells(rows, columns, made)
    for row, line in zip(rows, lines, strict=True):
        if line.left_out:
            names = ", ".join(facts.members[place].facts.name for place in sorted(line.left_out))
            row[COVERAGE] = replace(row[COVERAGE], title=f"left out: {names}")
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


def _of_system(line: SystemLine, provenance: str) -> EntryRow:
    """Whose row it is: what all of the line's results say of their system, and nothing that only one of them does."""
    about = line.about
    return EntryRow(
        about.system,
        about.slug,
        about.architecture,
        provenance,
        scores={},
        comparison_group="",
        training="",
        visibility="public",
        published="",
        pk=0,
        team=about.team,
        team_slug=about.team_slug,
        source_key=about.source_key,
        configuration=line.configuration,
        is_baseline=bool(line.baseline_on),
        challenged=about.challenged,
    )


def _beside(
    facts: BenchmarkFacts, look: Look, line: SystemLine, decimals: int, *, mixed: bool
) -> dict[int, tuple[str, str, str]]:
    """The marks, titles and spreads of the line's cells, by place of the dataset; nothing of plain ones.

    `mixed`: the line's results have several provenances, which the titles say.
    """
    found = {}
    for place, (member, result, score) in enumerate(
        zip(facts.members, line.results, line.scores, strict=True)
    ):
        mark, title, spread = "", result.provenance if mixed else "", ""
        if score is not None:
            mark = member.stand_ins.get(look.measure, "")
            if member.parts and is_mean_of_parts(result.comparison_group):
                title = f"mean of {len(member.parts)} parts"
            if result.seed_count:
                deviation = result.deviations.get(member.measure(look.measure))
                title = "; ".join(filter(None, [title_of(result.seed_count, deviation, decimals), title]))
                if not look.view and deviation is not None:
                    spread = f"± {deviation:.{decimals}f} ({result.seed_count})"
        if result.training == IN_DOMAIN:
            mark = f"‡ {mark}".rstrip()
        if place in line.left_out:
            title = f"left out: {result.training}"
        if mark or title or spread:
            found[place] = mark, title, spread
    return found


#: A mean over fewer common datasets of many says too little to stand on a board that nobody asked for it.
LEAST_COMMON = 2


def fill_common(facts: BenchmarkFacts, board: Board, tables: Tables, state: BoardState) -> tuple[Board, bool]:
    """Set the means over the datasets that all public rows of the view have, which the column's head then names.

    Return the board, and whether a page shows the column. If all rows are complete, it repeats the mean, and a mean
    over one dataset of many says little, unless the view names it.
    """
    public = [row for row in board.rows if row.ranked_in != PRIVATE]
    ranges = tuple(each for each in state.ranges if each.key != COMMON)
    shown = filter_rows(replace(board, rows=public), replace(state, ranges=ranges, zero_shot=False))
    ids = set(map(id, shown))
    found = aggregates.common(
        tables.of_counted[0], [number for number, row in enumerate(public) if id(row) in ids]
    )
    for row, value in zip(public, plain(found.means), strict=True):
        row.values[COMMON] = value
    columns = [
        common_column(column, facts.counted, found.places) if column.key == COMMON else column
        for column in board.columns
    ]
    best, second = best_values([column for column in columns if column.key == COMMON], public)
    board = replace(board, columns=columns, best={**board.best, **best}, second={**board.second, **second})
    says_enough = len(found.places) >= LEAST_COMMON or len(facts.counted) <= LEAST_COMMON
    named = COMMON in {sort.key for sort in state.sorts} | {each.key for each in state.ranges}
    return board, named or (says_enough and not tables.complete)


NOTE = (
    "Private: only your team sees these rows. They have no rank, move no rank, mean or mark of others, and are in no "
    "export, figure or feed."
)


def private_rows(
    facts: BenchmarkFacts,
    own: Mapping[int, Sequence[EntryRow]],
    public: Sequence[SystemLine],
    look: Look,
    *,
    zero_shot: bool,
) -> list[Row]:
    """Return the rows of a team's `own` entries, by dataset, without costs.

    They are compared with the baselines of the `public` lines.
    """
    datasets = [member.dataset_id for member in facts.members]
    entries = {dataset: BoardRows(dataset, list(own.get(dataset, ()))) for dataset in datasets}
    lines = collect_lines(facts, entries, look.measure, zero_shot=zero_shot, beside=public)
    tables = tables_of(facts, lines, [PRIVATE] * len(lines), look.measure)
    rows = rows_of(facts, look, columns_of(facts, look, OverAll(tables)), lines, tables)
    ranks = [BORDA, MEAN_RANK]
    if look.view == "rank":
        ranks += [member.slug for member in facts.members]
    for row in rows:
        row.entry = row.entry._replace(visibility="private")
        for key in ranks:
            if row.value(key) is not None:
                row[key] = replace(row[key], value=None)
    return rows
