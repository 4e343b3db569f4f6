"""What the lines of a benchmark's board cost: measured here on one dataset and machine, or stated by a publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leaderboard.boards.benchmark.lines import Line
from leaderboard.boards.benchmark.measured_costs import CostsShown, costs_shown
from leaderboard.boards.columns.costs import CostColumns, cost_group, notes_on_costs
from leaderboard.boards.columns.reported import FigureKey, figure_columns, place_figures
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.model import Board, Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.results.history.entry_columns import DatasetEntries, Figures
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.history.measurements import with_baseline
from leaderboard.results.kinds import SCORED
from leaderboard.systems.baselines import BM25


class LineCosts(NamedTuple):
    """Measured costs with their columns, then the stated ones of each line, with theirs and the dataset they are of."""

    shown: CostsShown
    columns: CostColumns
    stated: Sequence[Figures | tuple[()]]
    stated_columns: Mapping[FigureKey, Column]
    stated_on: str

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
        stated = [by_line.get((line.system_id, line.configuration), ()) for line in lines]
        return cls(
            shown,
            CostColumns.of(shown.measured.values(), shown.machine, shown.dataset, state.corpus),
            stated,
            figure_columns([(found, {}) for found in stated if found]),
            stated_on,
        )

    @property
    def width(self) -> int:
        """How many columns they fill."""
        return len(self.columns.columns) + len(self.stated_columns)

    def place(self, lines: Sequence[Line], rows: Sequence[Row], first: int) -> None:
        """Put the costs of each line into its row, whose column of the first cost is at `first`."""
        places = {
            key: place for place, key in enumerate(self.stated_columns, first + len(self.columns.columns))
        }
        for found, row in zip(self.stated, rows, strict=True):
            if found:
                place_figures(row, found, places)
        if self.shown.machine is None:
            return
        for line, row in zip(lines, rows, strict=True):
            measured = self.shown.measured.get((line.system_id, line.configuration))
            if measured and line.ranked_in == SCORED:
                self.columns.place(row, measured, first)

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
