"""What the lines of a benchmark's board cost: measured here on one dataset and machine, or stated by a publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from leaderboard.boards.benchmark.lines import Line
from leaderboard.boards.benchmark.measured_costs import CostsShown, costs_shown
from leaderboard.boards.columns.costs import cost_columns, cost_group, notes_on_costs
from leaderboard.boards.columns.reported import FigureColumns
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.model import Board, Cell, Column, Row, cells_of
from leaderboard.boards.state import BoardState
from leaderboard.results.history.entry_columns import DatasetEntries, Figures
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.history.measurements import Measured, with_baseline
from leaderboard.results.kinds import SCORED
from leaderboard.systems.baselines import BM25


class _Costs(NamedTuple):
    """What the cells of a line's costs are made from."""

    measured: Measured | None
    figures: Mapping[str, Cell]


class LineCosts(NamedTuple):
    """Measured costs, then the stated ones by system and configuration, and the columns of both."""

    shown: CostsShown
    stated: Mapping[tuple[int, str], Mapping[str, Cell]]
    columns: Sequence[Column]

    @classmethod
    def of(
        cls,
        facts: BenchmarkFacts,
        entries: Mapping[int, DatasetEntries],
        lines: Sequence[Line],
        systems: Mapping[int, SystemRow],
        state: BoardState,
    ) -> LineCosts:
        """Those of the view, BM25's too. Raises UnknownChoice for a machine on which nothing was measured."""
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
        stated_on, by_line = _stated(facts, entries)
        keys = [(line.system_id, line.configuration) for line in lines]
        figures = FigureColumns.of([(by_line[key], {}) for key in keys if key in by_line])
        columns = [
            *cost_columns(shown.measured.values(), shown.machine, shown.dataset, state.corpus),
            *(_stated_for(column, stated_on) for column in figures.columns),
        ]
        return cls(shown, {key: figures.cells(by_line[key]) for key in keys if key in by_line}, columns)

    def place(self, lines: Sequence[Line], rows: Sequence[Row]) -> None:
        """Put the costs of each line into its row."""
        for line, row in zip(lines, rows, strict=True) if self.columns else ():
            key = line.system_id, line.configuration
            costs = _Costs(
                self.shown.measured.get(key) if line.ranked_in == SCORED else None, self.stated.get(key, {})
            )
            if costs.measured or costs.figures:
                row.measured = costs.measured
                row.cells.update(cells_of(self.columns, costs))

    def describe(self, board: Board) -> None:
        """Say on which machine they were measured, and on which ones they could be."""
        if self.shown.machine is not None:
            board.machine, board.machines = self.shown.machine, self.shown.machines
            board.cost_group = cost_group(self.shown.machine, self.shown.dataset)

    def notes(self) -> list[str]:
        """What is to be said of them below the board."""
        shown = self.shown
        if shown.machine is None:
            return []
        return notes_on_costs(shown.machine, shown.measured.values(), shown.elsewhere, shown.dataset)


def _stated_for(column: Column, dataset: str) -> Column:
    """The column of what is stated of one dataset, on the board of several."""
    return replace(column, group=f"{column.group}, {dataset}", note=f"As stated for {dataset}. {column.note}")


def _stated(
    facts: BenchmarkFacts, entries: Mapping[int, DatasetEntries]
) -> tuple[str, dict[tuple[int, str], Figures]]:
    """What systems need as reported, by system and configuration, and the dataset where: the first that says so.

    A board takes them from one named dataset, whichever it shows: an average over corpora of different sizes would
    mean nothing.
    """
    for member in (*facts.members, *facts.left_out):
        costs = entries[member.dataset_id].costs_of(facts.source_id)
        if costs:
            return member.facts.name, costs
    return "", {}
