"""What the lines of a benchmark's board cost: measured here on one dataset and machine, or stated by a publication.

An average over corpora of different sizes would mean nothing, and figures of two machines do not compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from leaderboard.boards.benchmark.lines import SystemLine
from leaderboard.boards.columns.costs import BoardCosts, CostLine, cost_columns, fill_costs
from leaderboard.boards.columns.reported import figure_columns
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.model import Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.results.board_rows.measurements import (
    Machine,
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


class LineCosts(NamedTuple):
    """Measured costs, then the stated ones by system and configuration, and the columns of both."""

    shown: BoardCosts
    stated: Mapping[Of, Figures]
    columns: Sequence[Column]

    @classmethod
    def of(
        cls,
        facts: BenchmarkFacts,
        rows: Mapping[int, BoardRows],
        lines: Sequence[SystemLine],
        state: BoardState,
    ) -> LineCosts:
        """Return the costs of a view, also those of BM25. Raises UnknownChoice for unknown hardware."""
        shown = _costs_shown(facts, rows, lines, state)
        bm25 = (
            line.key[:2]
            for line in lines
            if line.baseline_on and line.ranked_in == SCORED and line.about.slug == BM25.slug
        )
        with_baseline(shown.measured, next(bm25, None))
        stated_on, by_line = _stated(facts, rows)
        measured = cost_columns(shown.measured.values(), shown.machine, shown.dataset, state.corpus)
        taken = [column.key for column in measured]
        figures = figure_columns([(each, {}) for each in by_line.values()], taken)
        return cls(shown, by_line, [*measured, *(_stated_for(column, stated_on) for column in figures)])

    def place(self, lines: Sequence[SystemLine], rows: Sequence[Row]) -> None:
        """Put the costs of each line into its row."""
        if self.columns:
            measured = self.shown.measured
            costs = (
                CostLine(
                    measured.get(line.key[:2]) if line.ranked_in == SCORED else None,
                    self.stated.get(line.key[:2], ()),
                )
                for line in lines
            )
            fill_costs(rows, self.columns, costs)


def _stated_for(column: Column, dataset: str) -> Column:
    """The column of what is stated of one dataset, on the board of several."""
    return replace(column, group=f"{column.group}, {dataset}", note=f"As stated for {dataset}. {column.note}")


def _stated(facts: BenchmarkFacts, rows: Mapping[int, BoardRows]) -> tuple[str, dict[Of, Figures]]:
    """What systems need as reported, by system and configuration, and the dataset where: the first that says so.

    A board takes them from one named dataset, whichever it shows: an average over corpora of different sizes would
    mean nothing.
    """
    for member in (*facts.members, *facts.left_out):
        costs = rows[member.dataset_id].costs_of(facts.source_id)
        if costs:
            return member.facts.name, costs
    return "", {}


def _costs_shown(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Iterable[SystemLine], state: BoardState
) -> BoardCosts:
    """Of the dataset that the benchmark names, else that most lines share, the largest among equals.

    The machine is the one that the view names, by default the one that most lines share. Raises UnknownChoice.
    """
    wanted = {line.key[:2] for line in lines if line.ranked_in == SCORED}
    of_members = [
        (member, [one for one in rows[member.dataset_id].measured if _of(one) in wanted])
        for member in (*facts.members, *facts.left_out)
        if facts.efficiency_from in (None, member.dataset_id)
    ]
    everything = [one for _, measured in of_members for one in measured]
    machines = machines_of(everything)
    wanted_machine = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
    hardware = wanted_machine.slug if wanted_machine and (state.hardware or state.cpu_only) else ""
    best: tuple[int, int] = (0, 0)
    shown = BoardCosts(None, machines, {}, 0)
    for member, measured in of_members:
        found = _on(member, measured, hardware, machines)
        size = (len(found.measured), max((one.figures["documents"] for one in measured), default=0))
        if found.measured and size > best:
            best, shown = size, found
    return shown


def _on(member: Member, measured: list[MeasuredEntry], hardware: str, machines: list[Machine]) -> BoardCosts:
    """What one dataset can show, on its own first machine unless one is wanted."""
    here = machines_of(measured)
    machine = next((one for one in here if hardware in ("", one.slug)), None)
    on_machine = {_of(one): one for one in measured if one.machine == machine}
    elsewhere = {_of(one) for one in measured}.difference(on_machine)
    return BoardCosts(machine, machines, on_machine, len(elsewhere), dataset=member.facts.name)


def _of(measured: MeasuredEntry) -> Of:
    return measured.system_id, measured.configuration
