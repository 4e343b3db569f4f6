"""The columns of a benchmark's board, each with how its cells are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from django.utils.translation import gettext_noop as _

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import Tables, plain
from leaderboard.boards.benchmark.lines import BenchmarkLine
from leaderboard.boards.columns.about import ABOUT_SYSTEM, DECLARED, SIZE
from leaderboard.boards.columns.weighted import WEIGHTED, weighted_column
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.model import EFFECTIVENESS, SYSTEM, Cell, Column, Kind, Value
from leaderboard.core.measures import better

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


class OverAll:
    """What follows from all lines of a board together; it is made when the first cell asks for it."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def filled(self, column: Column) -> Column:
        """The column of an aggregate, with what makes its cells; that of the common mean depends on the view."""
        if column.key == COMMON:
            return column

        def cell(line: BenchmarkLine) -> Cell | Value:
            with_itself = column.key == WINS and line.about.is_baseline
            return None if with_itself else self._aggregates[column.key][line.number]

        return replace(column, cell=cell)

    @cached_property
    def _aggregates(self) -> Mapping[str, Sequence[Cell | Value]]:
        scores, baselines = self._tables.of_counted
        kinds, lower, width = self._tables.kinds, self._tables.lower_is_better, scores.shape[1]
        won = aggregates.wins(scores, baselines, lower_is_better=lower)
        ranked = aggregates.rank_figures(scores, kinds, lower_is_better=lower)
        figures = {
            MEAN: aggregates.means(scores),
            AVERAGE: aggregates.ratio_of_means(scores, baselines),
            MEAN_RELATIVE: aggregates.mean_of_ratios(scores, baselines),
            BORDA: ranked.borda,
            MEAN_RANK: ranked.mean_rank,
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


def columns_of(facts: BenchmarkFacts, look: Look, over_all: OverAll) -> list[Column]:
    """Return all columns. One counted dataset is its own mean and needs no aggregates but the difference."""
    good = better(look.measure)
    several = facts.all_counted > 1
    means = _means(facts, good) if several else []
    aggregated = [*means, *_differences(facts, good, look.difference, several=several)]
    return [
        Column(SYSTEM, _("System"), "", "text", cell=lambda line: line.about.system),
        *([weighted_column(OVER_ALL)] if look.weighted else []),
        *map(over_all.filled, aggregated),
        *(_dataset(place, member, look) for place, member in enumerate(facts.members)),
        *map(over_all.filled, _RANKS if several else ()),
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
