"""The board of a benchmark: systems × datasets for one measure, with aggregates over the datasets that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import orjson

from leaderboard.boards import deltas
from leaderboard.boards.dataset_board import ARCHITECTURES, DatasetFacts, matches, ranked_in
from leaderboard.boards.figures import FigureKey, Figures, figure_columns, place_figures
from leaderboard.boards.measures import better
from leaderboard.boards.model import ABOUT, EFFECTIVENESS, REPORTED, SYSTEM_COLUMN, Board, Column, Row, Value
from leaderboard.boards.ranking import assign_ranks, mark_best, ordered
from leaderboard.boards.reading import Cell, SystemRow
from leaderboard.boards.state import BoardState, UnknownChoice

MEAN, COVERAGE, AVERAGE, WINS = "mean", "coverage", "average-relative", "wins"


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of the benchmark. `stand_ins` names the measures it shows instead of others."""

    dataset_id: int
    slug: str
    facts: DatasetFacts
    counted: bool
    stand_ins: Mapping[str, str]

    def measure(self, wanted: str) -> str:
        """The measure that it shows where the board shows `wanted`."""
        return self.stand_ins.get(wanted, wanted)


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """What a board needs of its benchmark."""

    name: str
    measure: str
    members: Sequence[Member]

    @property
    def counted(self) -> list[Member]:
        """The members that aggregates are over."""
        return [member for member in self.members if member.counted]


Scores = Mapping[str, float]


def available_measures(facts: BenchmarkFacts, read: Sequence[tuple[Cell, Scores]]) -> list[str]:
    """The measures that the board can show: its own first, then those that half of the counted datasets have."""
    had: dict[int, set[str]] = {}
    for cell, scores in read:
        had.setdefault(cell.dataset_id, set()).update(scores)
    wanted = {name for names in had.values() for name in names}
    wanted -= {name for member in facts.members for name in member.stand_ins.values()}
    wanted |= {name for member in facts.members for name in member.stand_ins}

    def widely_had(measure: str) -> bool:
        having = sum(member.measure(measure) in had.get(member.dataset_id, ()) for member in facts.counted)
        return having > 0 and 2 * having >= len(facts.counted)

    return [facts.measure, *sorted(name for name in wanted if name != facts.measure and widely_had(name))]


@dataclass(slots=True)
class _Line:
    """What one row collects: by dataset its value and its baseline's, and how it may be compared."""

    system_id: int
    configuration: str
    ranked_in: str
    scores: dict[int, float] = field(default_factory=dict)
    baselines: dict[int, float] = field(default_factory=dict)
    in_domain: set[int] = field(default_factory=set)
    provenances: set[str] = field(default_factory=set)
    baseline_on: int = 0


def benchmark_board(
    facts: BenchmarkFacts,
    cells: Sequence[Cell],
    systems: Mapping[int, SystemRow],
    figures: Mapping[tuple[int, str], Figures],
    figures_of: str,
    state: BoardState,
) -> Board:
    """The view that `state` asks for. `figures` are by system and configuration, measured on the dataset `figures_of`.

    Raises UnknownChoice for a column or a measure that the board does not have.
    """
    read = [(cell, orjson.loads(cell.scores_text)) for cell in cells]
    measures = available_measures(facts, read)
    measure = state.measure or facts.measure
    if measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    lines = collect(facts, read, measure)
    efficiency = figure_columns(
        [(figures.get((line.system_id, line.configuration), ()), {}) for line in lines]
    )
    columns = _columns(facts, measure, efficiency, figures_of)
    rows = [_row(facts, line, systems[line.system_id], columns, measure) for line in lines]
    start = leading(facts) + len(facts.members)
    places = {key: start + number for number, key in enumerate(efficiency)}
    for line, row in zip(lines, rows, strict=True):
        place_figures(row, figures.get((line.system_id, line.configuration), ()), places)
    board = _view(facts, columns, rows, measure, state)
    board.measures = measures
    return board


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
    sort = state.sort or keys[first]
    if sort not in keys:
        raise UnknownChoice("sort", sort, keys)
    place = keys.index(sort)
    ranked_by = place if columns[place].kind == "score" else first
    assign_ranks(rows, ranked_by, lower_is_better=columns[ranked_by].better == "lower")
    order = state.order or columns[place].first_order
    board = Board(
        title=facts.name,
        columns=columns,
        rows=ordered([row for row in rows if matches(row, state)], place, order),
        sort=sort,
        order=order,
        measure=measure,
        total=len(rows),
    )
    mark_best(board, rows)
    board.notes = _notes(facts, board, rows, columns[ranked_by])
    return board


def collect(facts: BenchmarkFacts, read: Sequence[tuple[Cell, Scores]], measure: str) -> list[_Line]:
    """One line per system, configuration and kind, in order of first publication; a later entry replaces an earlier."""
    members = {member.dataset_id: member for member in facts.members}
    current = _current_groups(members, [cell for cell, _ in read])
    wanted = {member.dataset_id: member.measure(measure) for member in facts.members}
    lines: dict[tuple[int, str, str], _Line] = {}
    placed: list[tuple[_Line, Cell]] = []
    baselines: dict[tuple[int, str], float] = {}
    for cell, scores in read:
        dataset = cell.dataset_id
        kind = ranked_in(cell.provenance, cell.comparison_group, current.get(dataset, ""))
        value = scores.get(wanted[dataset])
        if value is None or kind == "stale":
            continue
        if cell.is_baseline:
            baselines[dataset, cell.comparison_group] = value
        key = (cell.system_id, cell.configuration, kind)
        line = lines.get(key)
        if line is None:
            line = lines[key] = _Line(cell.system_id, cell.configuration, kind)
        line.scores[dataset] = value
        placed.append((line, cell))
    for line, cell in placed:
        _compare(line, cell, baselines.get((cell.dataset_id, cell.comparison_group)))
    return list(lines.values())


def _compare(line: _Line, cell: Cell, baseline: float | None) -> None:
    if baseline is None:
        line.baselines.pop(cell.dataset_id, None)
    else:
        line.baselines[cell.dataset_id] = baseline
    line.baseline_on += cell.is_baseline
    line.provenances.add(cell.provenance)
    if cell.training == "in-domain":
        line.in_domain.add(cell.dataset_id)


def _current_groups(members: Mapping[int, Member], cells: Sequence[Cell]) -> dict[int, str]:
    """By dataset, the group of scored entries that is not stale: that of the newest baseline, else the newest."""
    current: dict[int, str] = {}
    anchored: set[int] = set()
    for cell in cells:
        if cell.provenance == "reported" or (cell.dataset_id in anchored and not cell.is_baseline):
            continue
        facts = members[cell.dataset_id].facts
        if cell.comparison_group.startswith(f"scored:{facts.version_id}:{facts.qrels_id}:"):
            current[cell.dataset_id] = cell.comparison_group
            if cell.is_baseline:
                anchored.add(cell.dataset_id)
    return current


def _columns(
    facts: BenchmarkFacts, measure: str, efficiency: Mapping[FigureKey, Column], figures_of: str
) -> list[Column]:
    good = better(measure)
    return [
        SYSTEM_COLUMN,
        *_aggregates(len(facts.counted), good),
        *(_dataset_column(member, measure, good) for member in facts.members),
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


def _row(
    facts: BenchmarkFacts,
    line: _Line,
    system: SystemRow,
    columns: Sequence[Column],
    measure: str,
) -> Row:
    counted = [member.dataset_id for member in facts.counted]
    values = [line.scores.get(dataset) for dataset in counted]
    baselines = [line.baselines.get(dataset) for dataset in counted]
    reported = line.ranked_in == REPORTED
    row = Row(
        system=system.name,
        slug=system.slug,
        ranked_in=line.ranked_in,
        is_baseline=line.baseline_on > 0,
        configuration=line.configuration,
        provenance=", ".join(sorted(line.provenances)),
        architecture=system.architecture,
        team=system.team or "",
        team_slug=system.team_slug or "",
        source=system.source_key or "",
        decimals=3 if reported or any(member.facts.hidden for member in facts.members) else 4,
    )
    row.values = [
        system.name,
        *_summary(row, values, baselines),
        *(line.scores.get(member.dataset_id) for member in facts.members),
        *[None] * (len(columns) - leading(facts) - len(facts.members) - 3),
        ARCHITECTURES.get(system.architecture, system.architecture),
        row.provenance,
        (system.source if reported else system.team) or None,
    ]
    for place, member in enumerate(facts.members, start=leading(facts)):
        stand_in = member.stand_ins.get(measure, "") if member.dataset_id in line.scores else ""
        mark = " ".join(
            part for part in ("‡" if member.dataset_id in line.in_domain else "", stand_in) if part
        )
        if mark:
            row.marks[place] = mark
    return row


def _summary(row: Row, values: Sequence[float | None], baselines: Sequence[float | None]) -> list[Value]:
    """The values of the aggregates' columns, in their order."""
    average = deltas.average_relative(values, baselines)
    if len(values) < 2:
        return [average]
    covered = sum(value is not None for value in values)
    row.shown[2] = f"{covered}/{len(values)}"
    won = deltas.wins(values, baselines)
    if won:
        row.shown[4] = str(won)
    return [deltas.mean(values), float(covered), average, float(won.wins) if won else None]


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
