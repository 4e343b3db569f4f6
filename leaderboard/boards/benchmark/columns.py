"""The columns of a benchmark's board, and where a row's values go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboard.boards.columns.declared import DECLARED, DeclaredColumns
from leaderboard.boards.columns.reported import FigureKey
from leaderboard.boards.columns.weighted import WEIGHTED, weighted_column
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.model import ABOUT, EFFECTIVENESS, SYSTEM_COLUMN, Column, Kind
from leaderboard.core.measures import better

MEAN, COMMON, COVERAGE = "mean", "common-mean", "coverage"
AVERAGE, MEAN_RELATIVE, WINS = "average-relative", "mean-relative", "wins"
BORDA, MEAN_RANK = "borda", "mean-rank"
#: What rows may be ranked by, besides a dataset: not what moves with the rows in view, nor what says little of quality.
RANKING = frozenset({MEAN, AVERAGE, MEAN_RELATIVE, BORDA, MEAN_RANK, WEIGHTED})

OVER_ALL = "Over all"
RANKS = "Ranks over all"

Direction = Literal["higher", "lower"]

#: What the datasets' columns hold in each view: the kind of column, and how their common head begins.
VIEWED: Mapping[str, tuple[Kind, str]] = {
    "": ("score", ""),
    "delta": ("delta", "{difference} of "),
    "relative": ("relative", "{difference} (%) of "),
    "rank": ("rank", "rank by "),
}


def columns_of(
    facts: BenchmarkFacts,
    measure: str,
    view: str,
    *,
    difference: str,
    common: bool,
    weighted: bool,
    costs: Sequence[Column],
    efficiency: Mapping[FigureKey, Column],
    efficiency_of: str,
    declared: Sequence[Column],
) -> list[Column]:
    """All columns. One counted dataset is its own mean and needs no aggregates but the difference."""
    good = better(measure)
    several = facts.all_counted > 1
    return [
        SYSTEM_COLUMN,
        *([weighted_column(OVER_ALL)] if weighted else []),
        *(_means(facts, good, common=common) if several else []),
        *_differences(facts, good, difference, several=several),
        *(_dataset(member, measure, view, good, difference) for member in facts.members),
        *(_ranks() if several else []),
        *costs,
        *(_from(column, efficiency_of) for column in efficiency.values()),
        Column("architecture", "Architecture", ABOUT, "text"),
        Column("provenance", "Provenance", ABOUT, "text", note="how the numbers were obtained"),
        Column("by", "By", ABOUT, "text", note="the team, or the publication that reports it"),
        *declared,
    ]


def over(facts: BenchmarkFacts) -> str:
    """`over 18 datasets`, or `over 3 of 18 datasets` where the view chooses some."""
    counted, every = len(facts.counted), facts.all_counted
    return f"over {counted} of {every} datasets" if counted < every else f"over {every} datasets"


def _means(facts: BenchmarkFacts, good: Direction, *, common: bool) -> list[Column]:
    counted, every = len(facts.counted), facts.all_counted
    some = f"{counted} of {every}" if counted < every else ""
    found = [
        Column(
            MEAN,
            "Mean",
            OVER_ALL,
            "score",
            good,
            unit=some,
            note=f"mean {over(facts)}, of complete rows only",
        ),
        Column(COMMON, "Common mean", OVER_ALL, "score", good),
        Column(COVERAGE, "Coverage", OVER_ALL, "count", note="how many of the counted datasets the row has"),
    ]
    return found if common else [found[0], found[2]]


def common_column(column: Column, counted: Sequence[Member], places: Sequence[int]) -> Column:
    """The head of the common mean, once it is known which datasets it is over."""
    names = ", ".join(counted[place].facts.name for place in places)
    said = f"mean over what every row in view has of the counted datasets, {len(places)} of {len(counted)}: {names}"
    return Column(
        column.key,
        column.label,
        column.group,
        column.kind,
        column.better,
        unit=f"{len(places)} of {len(counted)}",
        note=said if places else "no counted dataset is had by every row in view",
    )


def _differences(facts: BenchmarkFacts, good: Direction, head: str, *, several: bool) -> list[Column]:
    if not several:
        return [Column(AVERAGE, "Δ %", head, "relative", good, note="relative to the baseline")]
    return [
        Column(
            AVERAGE,
            "Δ of means %",
            head,
            "relative",
            good,
            note=f"ratio of means: the mean relative to the baseline's mean, {over(facts)}",
        ),
        Column(
            MEAN_RELATIVE,
            "Mean of Δ %",
            head,
            "relative",
            good,
            note=f"mean of ratios: the mean of the differences relative to the baseline, {over(facts)}",
        ),
        Column(
            WINS, "W/T/L", head, "count", "higher", note="datasets won, tied and lost against the baseline"
        ),
    ]


def _ranks() -> list[Column]:
    return [
        Column(
            BORDA,
            "Borda",
            RANKS,
            "number",
            "higher",
            note="systems beaten, half for equal ones, summed over the datasets; complete rows of one kind only",
        ),
        Column(
            MEAN_RANK,
            "Mean rank",
            RANKS,
            "number",
            "lower",
            note="mean of the ranks on the datasets; complete rows of one kind only",
            decimals=2,
        ),
    ]


def _dataset(member: Member, measure: str, view: str, good: Direction, difference: str) -> Column:
    shown = member.measure(measure)
    unit = [
        shown if shown != measure else "",
        "" if member.counted else "not counted",
        f"mean of {len(member.parts)}" if member.parts else "",
    ]
    kind, head = VIEWED[view]
    if kind == "rank":
        good = "lower"
    return Column(
        key=member.slug,
        label=member.facts.name,
        group=f"{EFFECTIVENESS}, {head.format(difference=difference)}{measure} {'↑' if good == 'higher' else '↓'}",
        kind=kind,
        better=good,
        unit=" · ".join(part for part in unit if part),
        arrow=False,
    )


def _from(column: Column, dataset: str) -> Column:
    return Column(
        column.key,
        column.label,
        f"{column.group}, {dataset}",
        column.kind,
        column.better,
        column.unit,
        f"As stated for {dataset}. {column.note}",
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a row's values go, the same for all rows: the places of columns, and those of the datasets.

    By place of a dataset's column, `stand_ins` has the measure that it shows instead of the board's, `parts` how many
    parts it is the mean of.
    """

    places: Mapping[str, int]
    datasets: range
    stand_ins: Mapping[int, str]
    parts: Mapping[int, int]
    hidden: bool
    empty: int
    declared: DeclaredColumns

    @classmethod
    def of(cls, facts: BenchmarkFacts, measure: str, columns: Sequence[Column], costs: int) -> Layout:
        """The layout of a board with these columns, of which so many are costs that most rows do not have."""
        places = {column.key: place for place, column in enumerate(columns)}
        slugs = [member.slug for member in facts.members]
        first = places[slugs[0]] if slugs else 0
        return cls(
            places=places,
            datasets=range(first, first + len(slugs)),
            stand_ins={
                place: member.stand_ins[measure]
                for place, member in enumerate(facts.members, first)
                if measure in member.stand_ins
            },
            parts={
                place: len(member.parts) for place, member in enumerate(facts.members, first) if member.parts
            },
            hidden=any(member.facts.hidden for member in facts.members),
            empty=costs,
            declared=DeclaredColumns([column for column in columns if column in DECLARED]),
        )

    @property
    def key(self) -> tuple[str, ...]:
        """What tells layouts of one benchmark and measure apart."""
        return tuple(self.places)

    def first_cost(self) -> int:
        """The place of the first column of costs."""
        return self.places["architecture"] - self.empty


def default_sort(facts: BenchmarkFacts, keys: Iterable[str]) -> str:
    """The column that a board is sorted by unless the view says otherwise."""
    if MEAN in keys:
        return MEAN
    members = facts.counted or facts.members
    return members[0].slug if members else SYSTEM_COLUMN.key
