"""Columns and rows of a benchmark's board."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from django.utils.translation import gettext_noop as _

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import Tables, to_values
from leaderboard.boards.benchmark.composite import is_mean_of_parts
from leaderboard.boards.benchmark.lines import (
    IN_DOMAIN,
    BenchmarkLine,
    SystemLine,
    build_tables,
    collect_lines,
)
from leaderboard.boards.columns.about import ABOUT_SYSTEM, DECLARED_COLUMNS, FILE_SIZE, SIZE
from leaderboard.boards.columns.costs import WEIGHTED, weighted_column
from leaderboard.boards.columns.marks import OTHER_REVISION, REVISION_MARKS, seeds_title
from leaderboard.boards.columns.significance import INTERVAL, SignificanceColumns
from leaderboard.boards.facets import row_facets
from leaderboard.boards.filtering import best_values, filter_rows
from leaderboard.boards.model import (
    DELTA,
    EFFECTIVENESS,
    SYSTEM,
    BenchmarkFacts,
    Board,
    Cell,
    Column,
    Kind,
    Member,
    Row,
    Value,
    fill_cells,
)
from leaderboard.boards.state import BoardState
from leaderboard.core.measures import better
from leaderboard.results.board_rows.entry_rows import PRIVATE, REFERENCE, REPORTED, EntryRow
from leaderboard.results.board_rows.rows import BoardRows

MEAN, COMMON, COVERAGE = "mean", "common-mean", "coverage"
AVERAGE, MEAN_RELATIVE, WINS = "average-relative", "mean-relative", "wins"
BORDA, MEAN_RANK = "borda", "mean-rank"
#: Columns that can determine ranks, besides datasets. Others depend on the rows in view, or say little about
#: quality.
RANKING_KEYS = frozenset({MEAN, AVERAGE, MEAN_RELATIVE, BORDA, MEAN_RANK, WEIGHTED})
#: Columns that depend on the rows in view, or on the reader's weights.
VIEW_DEPENDENT = frozenset({COMMON, WEIGHTED})

OVER_ALL = _("All datasets")
RANKS = _("Ranks over datasets")

Direction = Literal["higher", "lower"]

#: Kind of the dataset columns and prefix of their common head, by view.
VIEW_KINDS: Mapping[str, tuple[Kind, str]] = {
    "": ("score", ""),
    "delta": ("delta", "{difference} of "),
    "relative": ("relative", "{difference} (%) of "),
    "rank": ("rank", "rank by "),
}


def compute_aggregates(tables: Tables) -> Mapping[str, Sequence[Cell | Value]]:
    """Return means, comparisons with the baseline, ranks, and coverage over the counted datasets.

    They are by column key, each with one value or cell per line.
    """
    scores, baselines = tables.on_counted_datasets
    rankings, lower_is_better, width = tables.rankings, tables.lower_is_better, scores.shape[1]
    win_counts = aggregates.wins(scores, baselines, lower_is_better=lower_is_better)
    borda, mean_rank = aggregates.rank_figures(scores, rankings, lower_is_better=lower_is_better)
    figures = {
        MEAN: aggregates.means(scores),
        DELTA: aggregates.differences(aggregates.means(scores), aggregates.means(baselines)),
        AVERAGE: aggregates.ratio_of_means(scores, baselines),
        MEAN_RELATIVE: aggregates.mean_of_ratios(scores, baselines),
        BORDA: borda,
        MEAN_RANK: mean_rank,
    }
    coverage, counts = aggregates.coverage(scores), list(zip(*win_counts, strict=True))
    coverage_cells = {number: Cell(float(number), f"{number}/{width}") for number in set(coverage)}
    win_cells = {each: Cell(float(each[0]), "/".join(map(str, each))) if any(each) else None for each in set(counts)}
    return {
        **{key: to_values(values) for key, values in figures.items()},
        COVERAGE: list(map(coverage_cells.__getitem__, coverage)),
        WINS: list(map(win_cells.__getitem__, counts)),
    }


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Options of a view for a benchmark's columns.

    `difference` is the heading of the difference columns, `weighted` tells whether there is a weighted score, and
    `costs` are the cost columns.
    """

    measure: str
    view: str
    difference: str
    weighted: bool
    costs: Sequence[Column]


def build_columns(
    facts: BenchmarkFacts, options: ViewOptions, aggregate_cells: Mapping[str, Sequence[Cell | Value]]
) -> list[Column]:
    """Return all columns of the board. A single counted dataset needs no aggregates except the difference.

    `aggregate_cells` has the cells of aggregates except those of the common mean, which depend on the view.
    """

    def with_cells(column: Column) -> Column:
        """Return the column with its aggregates as cells; a baseline has no wins against itself."""
        cells = aggregate_cells.get(column.key)
        if cells is None:
            return column
        if column.key == WINS:
            return replace(column, cell=lambda line: None if line.entry.is_baseline else cells[line.number])
        return replace(column, cells=lambda lines: cells)

    direction = better(options.measure)
    is_multiple = facts.all_counted > 1
    means = _mean_columns(facts, direction) if is_multiple else []
    return [
        Column(SYSTEM, _("System"), "", "text", cell=lambda line: line.entry.system),
        *([weighted_column(OVER_ALL)] if options.weighted else []),
        *map(with_cells, (*means, *_difference_columns(facts, direction, options.difference, is_multiple=is_multiple))),
        *(_dataset_column(position, member, facts, options) for position, member in enumerate(facts.members)),
        *map(with_cells, _RANK_COLUMNS if is_multiple else ()),
        *options.costs,
        *ABOUT_SYSTEM,
        *DECLARED_COLUMNS,
        SIZE,
        FILE_SIZE,
    ]


def add_test_columns(columns: Iterable[Column], rows: Sequence[Row], tests: SignificanceColumns) -> list[Column]:
    """Fill the cells of the test columns, and return the columns with them inserted."""
    beside_mean = [replace(column, group=OVER_ALL) for column in tests.beside_score if column.key != INTERVAL]
    beside_difference = [column for column in tests.beside_difference if column.key != WINS]
    fill_cells(rows, [*beside_mean, *beside_difference], rows)
    columns_after = {COVERAGE: beside_mean, WINS: beside_difference}
    return [each for column in columns for each in (column, *columns_after.get(column.key, ()))]


def over_datasets(facts: BenchmarkFacts) -> str:
    """Return `over 18 datasets`, or `over 3 of 18 datasets` if the view selects some."""
    number, total = len(facts.counted), facts.all_counted
    return f"over {number} of {total} datasets" if number < total else f"over {total} datasets"


def _mean_columns(facts: BenchmarkFacts, direction: Direction) -> list[Column]:
    """Return the columns of the mean, the common mean, and the number of datasets with a result."""
    number, total = len(facts.counted), facts.all_counted
    selection = f"{number} of {total}" if number < total else ""
    note = f"mean {over_datasets(facts)}, of complete rows only"
    return [
        Column(MEAN, _("Mean"), OVER_ALL, "score", direction, unit=selection, note=note),
        Column(COMMON, _("Common mean"), OVER_ALL, "score", direction),
        Column(COVERAGE, _("Coverage"), OVER_ALL, "count", note=_("how many of the counted datasets the row has")),
    ]


def common_column(column: Column, counted_members: Sequence[Member], positions: Sequence[int]) -> Column:
    """Return the common mean's column with the number and the names of the datasets that it covers.

    `positions` are those of the datasets in `counted_members`.
    """
    names = ", ".join(counted_members[position].facts.name for position in positions)
    total = len(counted_members)
    note = f"mean over the counted datasets that all rows in view have, {len(positions)} of {total}: {names}"
    return replace(
        column,
        unit=f"{len(positions)} of {len(counted_members)}",
        note=note if positions else "no counted dataset has results of all rows in view",
    )


def _difference_columns(facts: BenchmarkFacts, direction: Direction, head: str, *, is_multiple: bool) -> list[Column]:
    """Return the columns that compare with the baseline: difference and ratio of means, mean of ratios, and wins.

    A board of a single counted dataset (`is_multiple` is False) only has the ratio. `head` is the head of their group.
    """
    if not is_multiple:
        return [Column(AVERAGE, "Δ %", head, "relative", direction, note=_("relative to the baseline"))]
    means_note = f"ratio of means: the mean relative to the baseline's mean, {over_datasets(facts)}"
    ratios_note = f"mean of ratios: the mean of the differences relative to the baseline, {over_datasets(facts)}"
    wins_note = "datasets won, tied, and lost against the baseline"
    return [
        Column(DELTA, _("Δ mean"), head, "delta", direction, note=f"difference of the means, {over_datasets(facts)}"),
        Column(AVERAGE, _("Δ mean (%)"), head, "relative", direction, note=means_note),
        Column(MEAN_RELATIVE, _("Mean of Δ (%)"), head, "relative", direction, note=ratios_note),
        Column(WINS, "W/T/L", head, "count", "higher", note=wins_note),
    ]


_RANK_COLUMNS = (
    Column(
        BORDA,
        _("Borda"),
        RANKS,
        "number",
        "higher",
        note=_("systems beaten, half for equal ones, summed over the datasets; complete rows of one kind only"),
    ),
    Column(
        MEAN_RANK,
        _("Mean rank"),
        RANKS,
        "number",
        "lower",
        note=_("mean of the ranks on the datasets; complete rows of one kind only"),
        decimals=2,
    ),
)


def _dataset_column(position: int, member: Member, facts: BenchmarkFacts, options: ViewOptions) -> Column:
    """Return the column of the dataset at this position of the benchmark."""

    def cells(lines: Iterable[BenchmarkLine]) -> Iterable[Cell | Value]:
        return [
            Cell(line.values[position], *line.annotations[position])
            if position in line.annotations
            else line.values[position]
            for line in lines
        ]

    measure, shown_measure = options.measure, member.measure(options.measure)
    unit = [
        shown_measure if shown_measure != measure else "",
        "" if member.counted else "not in the mean",
        f"mean of {len(member.parts)}" if member.parts else "",
    ]
    kind, head = VIEW_KINDS[options.view]
    direction: Direction = "lower" if kind == "rank" else better(measure)
    return Column(
        key=member.slug,
        label=member.facts.name.removeprefix(f"{facts.name}: "),
        group=f"{EFFECTIVENESS}, {head.format(difference=options.difference)}{measure} "
        f"{'↑' if direction == 'higher' else '↓'}",
        kind=kind,
        better=direction,
        unit=" · ".join(part for part in unit if part),
        arrow=False,
        cells=cells,
    )


def default_sort(facts: BenchmarkFacts, keys: Iterable[str]) -> str:
    """Return the default sort column: the mean if it is one of `keys`, else the first dataset if there is one."""
    if MEAN in keys:
        return MEAN
    members = facts.counted or facts.members
    return members[0].slug if members else SYSTEM


_get_id, _get_provenance, _get_training, _get_seed_count = map(
    attrgetter, ("pk", "provenance", "training", "seed_count")
)


def build_rows(
    facts: BenchmarkFacts,
    options: ViewOptions,
    columns: Sequence[Column],
    lines: Sequence[SystemLine],
    tables: Tables,
) -> list[Row]:
    """Return one row per line, with the values of the view.

    Costs and values that depend on them or on the rows in view are still missing.
    """
    hidden = any(member.facts.hidden for member in facts.members)
    needs_annotations = any(member.parts or options.measure in member.stand_ins for member in facts.members)
    line_inputs, rows, view_values = [], [], _view_values(lines, tables, options.view)
    for number, (line, kind) in enumerate(zip(lines, tables.kinds, strict=True)):
        provenances = set(map(_get_provenance, line.results)) - {""}
        trainings = set(map(_get_training, line.results)) - {""}
        decimals = 3 if kind == REPORTED or hidden else 4
        group = f"reported:{line.entry.source_key}" if kind == REPORTED and facts.ranks_sources_apart else ""
        run_type = line.reference_type if kind in (REFERENCE, PRIVATE) else ""
        entry = _common_entry(line, ", ".join(sorted(provenances)), group, run_type)
        is_mixed, has_seeds = len(provenances) > 1, any(map(_get_seed_count, line.results))
        annotations, has_other_values = {}, bool(line.omitted_positions or line.other_values)
        has_placeholder = kind == REPORTED and any(result.revision_placeholder for result in line.results)
        if needs_annotations or is_mixed or has_seeds or has_placeholder or IN_DOMAIN in trainings or has_other_values:
            annotations = _cell_annotations(facts, options, line, decimals, is_mixed=is_mixed)
        properties = line.entry, kind, decimals, entry.provenance, number, view_values[number], annotations
        line_inputs.append(BenchmarkLine(*properties, line.parameters, line.model_bytes))
        ids = list(map(_get_id, line.results))
        if None in line.scores:
            ids = [0 if score is None else pk for pk, score in zip(ids, line.scores, strict=True)]
        facets = row_facets(line.entry, provenances, trainings)
        rows.append(Row(entry, kind, decimals, facets=facets, entries=ids))
    fill_cells(rows, columns, line_inputs)
    for row, line in zip(rows, lines, strict=True):
        if line.omitted_positions:
            names = ", ".join(facts.members[position].facts.name for position in sorted(line.omitted_positions))
            row[COVERAGE] = replace(row[COVERAGE], title=f"omitted: {names}")
    return rows


def _view_values(lines: Sequence[SystemLine], tables: Tables, view: str) -> Sequence[Sequence[float | None]]:
    """Return the values of the dataset columns by line: scores, differences, ratios, or ranks."""
    if not view:
        return [line.scores for line in lines]
    if view == "rank":
        table = aggregates.ranks(tables.scores, tables.rankings, lower_is_better=tables.lower_is_better)
    else:
        compute = aggregates.differences if view == "delta" else aggregates.ratios
        table = compute(tables.scores, tables.baselines)
    return [to_values(row) for row in table]


def _common_entry(line: SystemLine, provenance: str, group: str, run_type: str) -> EntryRow:
    """Return an entry with the properties that all results of the line share, in this group of reported rows."""
    entry = line.entry
    return EntryRow(
        entry.system, entry.slug, entry.architecture, provenance, {}, group, "", "public", "", 0, team=entry.team,
        team_slug=entry.team_slug, source_key=entry.source_key, configuration=line.configuration,
        is_baseline=int(bool(line.baseline_on)), challenged=entry.challenged, run_type=run_type,
    )  # fmt: skip


def _cell_annotations(
    facts: BenchmarkFacts, options: ViewOptions, line: SystemLine, decimals: int, *, is_mixed: bool
) -> dict[int, tuple[str, str, str, str]]:
    """Return text, mark, title, and spread of the line's cells that have any of them, by position of the dataset.

    `is_mixed` tells that the line's results have several provenances, which are then named in the titles.
    """
    annotations = {}
    for position, (member, result, score) in enumerate(zip(facts.members, line.results, line.scores, strict=True)):
        text, mark, title, spread = "", "", result.provenance if is_mixed else "", ""
        if score is not None:
            mark = member.stand_ins.get(options.measure, "")
            if member.parts and is_mean_of_parts(result.comparison_group):
                title = f"mean of {len(member.parts)} parts"
            if result.seed_count:
                deviation = result.deviations.get(member.measure(options.measure))
                title = "; ".join(filter(None, [seeds_title(result.seed_count, deviation, decimals), title]))
                if not options.view and deviation is not None:
                    spread = f"± {deviation:.{decimals}f} ({result.seed_count})"
        symbols = "‡" if result.training == IN_DOMAIN else ""
        if result.revision_placeholder and (score is not None or position in line.other_values):
            symbol, title = REVISION_MARKS[result.revision_placeholder]
            symbols, title = f"{symbols}{symbol}", _(title)
        if position in line.other_values and not options.view:
            text, symbols = f"{line.other_values[position]:.{decimals}f}", f"{symbols}{OTHER_REVISION}"
            title = "; ".join(filter(None, [_("other dataset revision"), title]))
        mark = f"{symbols} {mark}".strip()
        if position in line.omitted_positions:
            title = f"omitted: {result.training}"
        if mark or title or spread:
            annotations[position] = text, mark, title, spread
    return annotations


#: Minimum number of common datasets for which the common mean is shown by default.
MIN_COMMON = 2


def fill_common_means(facts: BenchmarkFacts, board: Board, tables: Tables, state: BoardState) -> tuple[Board, bool]:
    """Set the means over the datasets that all public rows of the view have in common.

    Return the board, whose column names the datasets, and whether a page shows the column. By default it is hidden if
    it repeats the mean because all rows are complete, or if it covers only one dataset of many.
    """
    public_rows = [row for row in board.rows if row.ranked_in != PRIVATE]
    ranges = tuple(bounds for bounds in state.ranges if bounds.key != COMMON)
    visible_rows = filter_rows(replace(board, rows=public_rows), replace(state, ranges=ranges, zero_shot=False))
    ids = set(map(id, visible_rows))
    common_means = aggregates.common_means(
        tables.on_counted_datasets[0], [number for number, row in enumerate(public_rows) if id(row) in ids]
    )
    for row, value in zip(public_rows, to_values(common_means.means), strict=True):
        row.values[COMMON] = value
    columns = [
        common_column(column, facts.counted, common_means.positions) if column.key == COMMON else column
        for column in board.columns
    ]
    best, second = best_values([column for column in columns if column.key == COMMON], public_rows)
    board = replace(board, columns=columns, best={**board.best, **best}, second={**board.second, **second})
    says_enough = len(common_means.positions) >= MIN_COMMON or len(facts.counted) <= MIN_COMMON
    is_requested = COMMON in {sort.key for sort in state.sorts} | {bounds.key for bounds in state.ranges}
    return board, is_requested or (says_enough and not tables.is_complete)


PRIVATE_NOTE = (
    "Private: only your team sees these rows. They have no rank, do not affect other rows, and are not part of any "
    "export, figure, or feed."
)


def private_rows(
    facts: BenchmarkFacts,
    own_entries: Mapping[int, Sequence[EntryRow]],
    public_lines: Sequence[SystemLine],
    options: ViewOptions,
    *,
    zero_shot: bool,
) -> list[Row]:
    """Return the rows of the private entries of the reader's teams, without costs and ranks.

    `own_entries` maps dataset ids to the teams' entries, which are compared with the baselines of `public_lines`.
    """
    datasets = [member.dataset_id for member in facts.members]
    entries = {dataset: BoardRows(dataset, list(own_entries.get(dataset, ()))) for dataset in datasets}
    lines = collect_lines(facts, entries, options.measure, zero_shot=zero_shot, reference_lines=public_lines)
    tables = build_tables(facts, lines, [PRIVATE] * len(lines), options.measure)
    rows = build_rows(facts, options, build_columns(facts, options, compute_aggregates(tables)), lines, tables)
    rank_keys = [BORDA, MEAN_RANK]
    if options.view == "rank":
        rank_keys += [member.slug for member in facts.members]
    for row in rows:
        row.entry = row.entry._replace(visibility="private")
        for key in rank_keys:
            if row.value(key) is not None:
                row[key] = replace(row[key], value=None)
    return rows
