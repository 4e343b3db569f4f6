"""What the lines of a benchmark's board cost: measured here on one dataset and machine, or stated by a publication.

An average over corpora of different sizes would mean nothing, and figures of two machines do not compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from leaderboard.boards.benchmark.lines import SystemLine
from leaderboard.boards.columns.costs import BoardCosts, CostLine, cost_columns
from leaderboard.boards.columns.reported import figure_columns
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.state import BoardState
from leaderboard.results.board_rows.measurements import (
    MeasuredEntry,
    chosen_machine,
    machines_of,
    with_baseline,
)
from leaderboard.results.board_rows.rows import BoardRows, Figures
from leaderboard.results.kinds import SCORED
from leaderboard.systems.baselines import BM25

#: A system and its configuration, as the lines of a benchmark's board are told apart.
Of = tuple[int, str]


def line_costs(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Sequence[SystemLine], state: BoardState
) -> tuple[BoardCosts, list[CostLine]]:
    """Return the costs of a view with their columns, and those of each line. Raises UnknownChoice for the hardware."""
    shown = _costs_shown(facts, rows, lines, state)
    bm25 = (
        line.key[:2]
        for line in lines
        if line.baseline_on and line.ranked_in == SCORED and line.about.slug == BM25.slug
    )
    with_baseline(shown.measured, next(bm25, None))
    columns = cost_columns(shown.measured.values(), shown.machine, shown.dataset, state.corpus)
    # Stated costs are those of one named dataset: an average over corpora of different sizes would mean nothing.
    dataset, stated = "", dict[Of, Figures]()
    for member in (*facts.members, *facts.left_out):
        if found := rows[member.dataset_id].costs_of(facts.source_id):
            dataset, stated = member.facts.name, found
            break
    columns += [
        replace(column, group=f"{column.group}, {dataset}", note=f"As stated for {dataset}. {column.note}")
        for column in figure_columns([(each, {}) for each in stated.values()], [each.key for each in columns])
    ]
    of_lines = [
        CostLine(
            shown.measured.get(line.key[:2]) if line.ranked_in == SCORED else None,
            stated.get(line.key[:2], ()),
        )
        for line in lines
    ]
    return shown._replace(columns=columns), of_lines


def _costs_shown(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Iterable[SystemLine], state: BoardState
) -> BoardCosts:
    """Return the costs on one dataset: the one that the benchmark names, or the one that most lines share.

    Among equals it is the largest. The machine is the one that the view names, or else the one that most lines share.
    Raises UnknownChoice.
    """
    wanted = {line.key[:2] for line in lines if line.ranked_in == SCORED}
    of_members = [
        (member, [one for one in rows[member.dataset_id].measured if _key(one) in wanted])
        for member in (*facts.members, *facts.left_out)
        if facts.efficiency_from in (None, member.dataset_id)
    ]
    machines = machines_of([one for _, measured in of_members for one in measured])
    named = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
    hardware = named.slug if named and (state.hardware or state.cpu_only) else ""
    best: tuple[int, int] = (0, 0)
    shown = BoardCosts(None, machines, {}, 0)
    for member, measured in of_members:
        machine = next((one for one in machines_of(measured) if hardware in ("", one.slug)), None)
        here = {_key(one): one for one in measured if one.machine == machine}
        size = (len(here), max((one.figures["documents"] for one in measured), default=0))
        if here and size > best:
            elsewhere = {_key(one) for one in measured}.difference(here)
            best = size
            shown = BoardCosts(machine, machines, here, len(elsewhere), dataset=member.facts.name)
    return shown


def _key(measured: MeasuredEntry) -> Of:
    return measured.system_id, measured.configuration
