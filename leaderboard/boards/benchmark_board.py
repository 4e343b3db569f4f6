"""The board of a benchmark: systems × datasets for one measure, with aggregates over the datasets that count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboard.baselines import BM25
from leaderboard.boards import deltas
from leaderboard.boards.benchmark_costs import CostsShown, costs_shown
from leaderboard.boards.collecting import BenchmarkFacts, Line, Member, available_measures, collect
from leaderboard.boards.cost_columns import CostColumns, cost_group, notes_on_costs
from leaderboard.boards.dataset_board import ARCHITECTURES
from leaderboard.boards.entries import DatasetEntries, Figures
from leaderboard.boards.facets import facets_of
from leaderboard.boards.figures import FigureKey, figure_columns, place_figures
from leaderboard.boards.measured import with_baseline
from leaderboard.boards.measures import better
from leaderboard.boards.model import (
    ABOUT,
    EFFECTIVENESS,
    REPORTED,
    SCORED,
    SYSTEM_COLUMN,
    Board,
    Column,
    Identity,
    Row,
    Value,
)
from leaderboard.boards.ranking import assign_ranks
from leaderboard.boards.reading import SystemRow
from leaderboard.boards.state import BoardState, UnknownChoice
from leaderboard.boards.viewing import arrange, resolved_sorts

MEAN, COVERAGE, AVERAGE, WINS = "mean", "coverage", "average-relative", "wins"


def benchmark_board(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    read_systems: Callable[[Iterable[int]], Mapping[int, SystemRow]],
    state: BoardState,
) -> Board:
    """The view that `state` asks for, of the entries that its datasets have by their ids.

    `read_systems` is asked once, for the systems that the board turns out to have.

    Raises UnknownChoice for a column or a measure that the board does not have.
    """
    measure = state.measure or facts.measure
    measures = available_measures(facts, entries)
    if measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    lines = collect(facts, entries, measure)
    systems = read_systems(line.system_id for line in lines)
    measured_on, costs = _measured(facts, entries)
    of_lines = [costs.get((line.system_id, line.configuration), ()) for line in lines]
    efficiency = figure_columns([(found, {}) for found in of_lines if found])
    shown, cost_columns = _measured_costs(facts, entries, lines, systems, state)
    columns = _columns(facts, measure, cost_columns.columns, efficiency, measured_on)
    layout = _Layout.of(facts, measure, len(cost_columns.columns) + len(efficiency))
    rows = [_row(layout, line, systems[line.system_id]) for line in lines]
    start = leading(facts) + len(facts.members)
    places = {key: number for number, key in enumerate(efficiency, start + len(cost_columns.columns))}
    for found, row in zip(of_lines, rows, strict=True):
        if found:
            place_figures(row, found, places)
    if shown.machine:
        for line, row in zip(lines, rows, strict=True):
            measured = shown.measured.get((line.system_id, line.configuration))
            if measured and line.ranked_in == SCORED:
                cost_columns.place(row, measured, start)
    board = _view(facts, columns, rows, measure, state)
    board.measures = measures
    if shown.machine:
        board.machine, board.machines = shown.machine, shown.machines
        board.cost_group = cost_group(shown.machine, shown.dataset)
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


def _measured(
    facts: BenchmarkFacts, entries: Mapping[int, DatasetEntries]
) -> tuple[str, dict[tuple[int, str], Figures]]:
    """What systems need, by system and configuration, and the dataset where: the first on which any says so.

    A board takes them from one named dataset: an average over corpora of different sizes would mean nothing.
    """
    for member in facts.members:
        costs = entries[member.dataset_id].costs_of(facts.source_id)
        if costs:
            return member.facts.name, costs
    return "", {}


def leading(facts: BenchmarkFacts) -> int:
    """How many columns stand before the datasets: one counted dataset is its own mean."""
    return 5 if len(facts.counted) > 1 else 2


def _view(
    facts: BenchmarkFacts, columns: list[Column], rows: list[Row], measure: str, state: BoardState
) -> Board:
    keys = [column.key for column in columns]
    first = keys.index(
        MEAN if MEAN in keys else facts.counted[0].slug if facts.counted else facts.members[0].slug
    )
    place = keys.index(resolved_sorts(columns, state, keys[first])[0].key)
    ranked_by = place if columns[place].kind == "score" else first
    assign_ranks(rows, ranked_by, lower_is_better=columns[ranked_by].better == "lower")
    board = Board(title=facts.name, columns=columns, rows=rows, measure=measure)
    arrange(board, state, keys[first])
    board.notes = _notes(facts, board, rows, columns[ranked_by])
    return board


def _columns(
    facts: BenchmarkFacts,
    measure: str,
    costs: Sequence[Column],
    efficiency: Mapping[FigureKey, Column],
    figures_of: str,
) -> list[Column]:
    good = better(measure)
    return [
        SYSTEM_COLUMN,
        *_aggregates(len(facts.counted), good),
        *(_dataset_column(member, measure, good) for member in facts.members),
        *costs,
        *(_from(column, figures_of) for column in efficiency.values()),
        Column("architecture", "Architecture", ABOUT, "text"),
        Column("provenance", "Provenance", ABOUT, "text", note="how the numbers were obtained"),
        Column("by", "By", ABOUT, "text", note="the team, or the publication that reports it"),
    ]


def _aggregates(counted: int, good: Literal["higher", "lower"]) -> list[Column]:
    if counted < 2:
        return [Column(AVERAGE, "Δ %", "Δ BM25", "relative", good, note="relative to BM25")]
    over = f"over {counted} datasets, of complete rows only"
    return [
        Column(MEAN, "Mean", "Over all", "score", good, note=f"mean {over}"),
        Column(
            COVERAGE, "Coverage", "Over all", "count", note="how many of the counted datasets the row has"
        ),
        Column(AVERAGE, "Avg. Δ %", "Δ BM25", "relative", good, note="the mean, relative to BM25's mean"),
        Column(WINS, "W/T/L", "Δ BM25", "count", "higher", note="wins, ties and losses against BM25"),
    ]


def _dataset_column(member: Member, measure: str, good: Literal["higher", "lower"]) -> Column:
    shown = member.measure(measure)
    unit = " · ".join(
        part for part in (shown if shown != measure else "", "" if member.counted else "not counted") if part
    )
    return Column(
        key=member.slug,
        label=member.facts.name,
        group=f"{EFFECTIVENESS}, {measure} {'↑' if good == 'higher' else '↓'}",
        kind="score",
        better=good,
        unit=unit,
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
class _Layout:
    """Where a row's values go, the same for all rows. `stand_ins`: place → measure shown instead of the board's."""

    first: int
    counted: Sequence[int]
    blank: Sequence[None]
    hidden: bool
    stand_ins: Mapping[int, str]

    @classmethod
    def of(cls, facts: BenchmarkFacts, measure: str, figures: int) -> _Layout:
        """The layout of the board for a measure, with so many columns of figures."""
        first = leading(facts)
        return cls(
            first=first,
            counted=[place for place, member in enumerate(facts.members) if member.counted],
            blank=[None] * figures,
            hidden=any(member.facts.hidden for member in facts.members),
            stand_ins={
                place: member.stand_ins[measure]
                for place, member in enumerate(facts.members, start=first)
                if measure in member.stand_ins
            },
        )

    def of_counted(self, values: Sequence[float | None]) -> Sequence[float | None]:
        """The values of the datasets that count."""
        return values if len(self.counted) == len(values) else [values[place] for place in self.counted]


def _row(layout: _Layout, line: Line, system: SystemRow) -> Row:
    reported = line.ranked_in == REPORTED
    provenance = ", ".join(sorted(line.provenances))
    identity = Identity(
        system.name,
        system.slug,
        system.architecture,
        system.team,
        system.team_slug,
        system.source_key,
        provenance,
        line.configuration,
        bool(line.baseline_on),
    )
    row = Row(identity, line.ranked_in, 3 if reported or layout.hidden else 4, [])
    row.facets = facets_of(system, line.provenances, line.trainings)
    row.values = [
        system.name,
        *_summary(row, layout.of_counted(line.scores), layout.of_counted(line.baselines)),
        *line.scores,
        *layout.blank,
        ARCHITECTURES.get(system.architecture, system.architecture),
        provenance,
        (system.source if reported else system.team) or None,
    ]
    for place, measure in layout.stand_ins.items():
        if row.values[place] is not None:
            row.marks[place] = measure
    for place in sorted(line.in_domain):
        place += layout.first
        row.marks[place] = f"‡ {row.marks[place]}" if place in row.marks else "‡"
    return row


def _summary(row: Row, values: Sequence[float | None], baselines: Sequence[float | None]) -> list[Value]:
    """The values of the aggregates' columns, in their order."""
    mean = deltas.mean(values)
    average = deltas.average_relative(mean, deltas.mean(baselines))
    if len(values) < 2:
        return [average]
    covered = len(values) - values.count(None)
    row.shown[2] = f"{covered}/{len(values)}"
    won = deltas.wins(values, baselines)
    if won:
        row.shown[4] = str(won)
    return [mean, float(covered), average, float(won.wins) if won else None]


def _notes(facts: BenchmarkFacts, board: Board, rows: Sequence[Row], ranked_by: Column) -> list[str]:
    counted = len(facts.counted)
    notes = [
        f"Ranks follow {ranked_by.label}; equal values share a rank. A mean is given only for rows that have all "
        f"{counted} counted datasets; a missing value is never 0 and sorts last both ways."
        if counted > 1
        else f"Ranks follow {ranked_by.label}; equal values share a rank, missing values sort last both ways."
    ]
    shown = [member.facts.name for member in facts.members if not member.counted]
    if shown:
        notes.append(f"Shown but not counted in any aggregate: {', '.join(shown)}.")
    for member in facts.members:
        stand_in = member.measure(board.measure)
        if stand_in != board.measure:
            notes.append(f"{member.facts.name} shows {stand_in} instead of {board.measure}.")
    if any(row.ranked_in == REPORTED for row in rows):
        notes.append(
            "r: a rank among reported figures, printed by publications and recomputed by nobody here; "
            "ranked apart from results scored here."
        )
    notes.append(
        "Δ BM25 compares with the BM25 of the same source, version and judgements only. Avg. Δ % is the relative "
        "difference of the two means; W/T/L counts counted datasets won, tied and lost."
    )
    if any("‡" in mark for row in rows for mark in row.marks.values()):
        notes.append("‡ in-domain: trained on that dataset.")
    if any("?" in row.marks.values() for row in rows):
        notes.append("? as printed, but doubtful: never used to sort or plot.")
    return notes
