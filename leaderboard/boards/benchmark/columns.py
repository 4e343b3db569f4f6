"""The columns of a benchmark's board, each with how its cells are made, and its rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from django.utils.translation import gettext_noop as _

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import Tables, plain
from leaderboard.boards.benchmark.composite import is_mean_of_parts
from leaderboard.boards.benchmark.lines import IN_DOMAIN, BenchmarkLine, SystemLine, collect_lines, tables_of
from leaderboard.boards.columns.about import ABOUT_SYSTEM, DECLARED, SIZE
from leaderboard.boards.columns.costs import WEIGHTED, weighted_column
from leaderboard.boards.columns.marks import title_of
from leaderboard.boards.facets import facets_of
from leaderboard.boards.filtering import best_values, filter_rows
from leaderboard.boards.model import (
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
from leaderboard.results.board_rows.entry_rows import PRIVATE, REPORTED, EntryRow
from leaderboard.results.board_rows.rows import BoardRows

MEAN, COMMON, COVERAGE = "mean", "common-mean", "coverage"
AVERAGE, MEAN_RELATIVE, WINS = "average-relative", "mean-relative", "wins"
BORDA, MEAN_RANK = "borda", "mean-rank"
#: What rows may be ranked by, besides a dataset: not what moves with the rows in view, nor what says little of quality.
RANKING = frozenset({MEAN, AVERAGE, MEAN_RELATIVE, BORDA, MEAN_RANK, WEIGHTED})
#: What depends on the rows in view, or on the reader's weights.
OF_VIEW = frozenset({COMMON, WEIGHTED})

OVER_ALL = _("All datasets")
RANKS = _("Ranks over datasets")

Direction = Literal["higher", "lower"]

#: What the datasets' columns hold in each view: the kind of column, and how their common head begins.
VIEWED: Mapping[str, tuple[Kind, str]] = {
    "": ("score", ""),
    "delta": ("delta", "{difference} of "),
    "relative": ("relative", "{difference} (%) of "),
    "rank": ("rank", "rank by "),
}


def aggregates_of(tables: Tables) -> Mapping[str, Sequence[Cell | Value]]:
    """Return the aggregates over the datasets that count, by the key of their column, for each line."""
    scores, baselines = tables.of_counted
    kinds, lower, width = tables.kinds, tables.lower_is_better, scores.shape[1]
    won = aggregates.wins(scores, baselines, lower_is_better=lower)
    borda, mean_rank = aggregates.rank_figures(scores, kinds, lower_is_better=lower)
    figures = {
        MEAN: aggregates.means(scores),
        AVERAGE: aggregates.ratio_of_means(scores, baselines),
        MEAN_RELATIVE: aggregates.mean_of_ratios(scores, baselines),
        BORDA: borda,
        MEAN_RANK: mean_rank,
    }
    return {
        **{key: plain(values) for key, values in figures.items()},
        COVERAGE: [Cell(float(had), f"{had}/{width}") for had in aggregates.coverage(scores)],
        WINS: [
            Cell(float(wins), f"{wins}/{ties}/{losses}") if wins or ties or losses else None
            for wins, ties, losses in zip(*won, strict=True)
        ],
    }


@dataclass(frozen=True, slots=True)
class Look:
    """A view's choices for the columns of a benchmark.

    `difference` is the head of differences, `weighted` whether there is a weighted score, `costs` the cost columns.
    """

    measure: str
    view: str
    difference: str
    weighted: bool
    costs: Sequence[Column]


def columns_of(
    facts: BenchmarkFacts, look: Look, aggregated: Mapping[str, Sequence[Cell | Value]]
) -> list[Column]:
    """Return all columns. One counted dataset is its own mean and needs no aggregates but the difference.

    `aggregated` has the cells of aggregates; those of the common mean depend on the view.
    """

    def filled(column: Column) -> Column:
        def cell(line: BenchmarkLine) -> Cell | Value:
            with_itself = column.key == WINS and line.about.is_baseline
            return None if with_itself else aggregated[column.key][line.number]

        return replace(column, cell=cell) if column.key in aggregated else column

    good = better(look.measure)
    several = facts.all_counted > 1
    means = _means(facts, good) if several else []
    return [
        Column(SYSTEM, _("System"), "", "text", cell=lambda line: line.about.system),
        *([weighted_column(OVER_ALL)] if look.weighted else []),
        *map(filled, (*means, *_differences(facts, good, look.difference, several=several))),
        *(_dataset(place, member, look) for place, member in enumerate(facts.members)),
        *map(filled, _RANKS if several else ()),
        *look.costs,
        *ABOUT_SYSTEM,
        *DECLARED,
        SIZE,
    ]


def over(facts: BenchmarkFacts) -> str:
    """`over 18 datasets`, or `over 3 of 18 datasets` where the view chooses some."""
    counted, every = len(facts.counted), facts.all_counted
    return f"over {counted} of {every} datasets" if counted < every else f"over {every} datasets"


def _means(facts: BenchmarkFacts, good: Direction) -> list[Column]:
    counted, every = len(facts.counted), facts.all_counted
    some = f"{counted} of {every}" if counted < every else ""
    mean = f"mean {over(facts)}, of complete rows only"
    return [
        Column(MEAN, _("Mean"), OVER_ALL, "score", good, unit=some, note=mean),
        Column(COMMON, _("Common mean"), OVER_ALL, "score", good),
        Column(
            COVERAGE, _("Coverage"), OVER_ALL, "count", note=_("how many of the counted datasets the row has")
        ),
    ]


def common_column(column: Column, counted: Sequence[Member], places: Sequence[int]) -> Column:
    """The head of the common mean, once it is known which datasets it is over."""
    names = ", ".join(counted[place].facts.name for place in places)
    said = f"mean over what every row in view has of the counted datasets, {len(places)} of {len(counted)}: {names}"
    return replace(
        column,
        unit=f"{len(places)} of {len(counted)}",
        note=said if places else "no counted dataset is had by every row in view",
    )


def _differences(facts: BenchmarkFacts, good: Direction, head: str, *, several: bool) -> list[Column]:
    if not several:
        return [Column(AVERAGE, "Δ %", head, "relative", good, note=_("relative to the baseline"))]
    of_means = f"ratio of means: the mean relative to the baseline's mean, {over(facts)}"
    of_ratios = f"mean of ratios: the mean of the differences relative to the baseline, {over(facts)}"
    won = "datasets won, tied and lost against the baseline"
    return [
        Column(AVERAGE, _("Δ mean (%)"), head, "relative", good, note=of_means),
        Column(MEAN_RELATIVE, _("Mean of Δ (%)"), head, "relative", good, note=of_ratios),
        Column(WINS, "W/T/L", head, "count", "higher", note=won),
    ]


_RANKS = (
    Column(
        BORDA,
        _("Borda"),
        RANKS,
        "number",
        "higher",
        note=_(
            "systems beaten, half for equal ones, summed over the datasets; complete rows of one kind only"
        ),
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


def _dataset(place: int, member: Member, look: Look) -> Column:
    """The column of the dataset at this place among the benchmark's."""

    def cell(line: BenchmarkLine) -> Cell | Value:
        if line.beside and place in line.beside:
            return Cell(line.shown[place], "", *line.beside[place])
        return line.shown[place]

    measure, shown = look.measure, member.measure(look.measure)
    unit = [
        shown if shown != measure else "",
        "" if member.counted else "not in the mean",
        f"mean of {len(member.parts)}" if member.parts else "",
    ]
    kind, head = VIEWED[look.view]
    good: Direction = "lower" if kind == "rank" else better(measure)
    return Column(
        key=member.slug,
        label=member.facts.name,
        group=f"{EFFECTIVENESS}, {head.format(difference=look.difference)}{measure} {'↑' if good == 'higher' else '↓'}",
        kind=kind,
        better=good,
        unit=" · ".join(part for part in unit if part),
        arrow=False,
        cell=cell,
    )


def default_sort(facts: BenchmarkFacts, keys: Iterable[str]) -> str:
    """The column that a board is sorted by unless the view says otherwise."""
    if MEAN in keys:
        return MEAN
    members = facts.counted or facts.members
    return members[0].slug if members else SYSTEM


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
    rows = rows_of(facts, look, columns_of(facts, look, aggregates_of(tables)), lines, tables)
    ranks = [BORDA, MEAN_RANK]
    if look.view == "rank":
        ranks += [member.slug for member in facts.members]
    for row in rows:
        row.entry = row.entry._replace(visibility="private")
        for key in ranks:
            if row.value(key) is not None:
                row[key] = replace(row[key], value=None)
    return rows
