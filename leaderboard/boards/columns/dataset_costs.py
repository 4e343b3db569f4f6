"""What a dataset's board shows of costs: the machine, what was measured on it, and the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leaderboard.boards.columns.costs import cost_columns, cost_group, notes_on_costs
from leaderboard.boards.columns.weighted import weighted_column
from leaderboard.boards.model import EFFICIENCY, Column
from leaderboard.boards.state import BoardState
from leaderboard.results.history.measurements import (
    Machine,
    Measured,
    chosen_machine,
    machines_of,
    with_baseline,
)


class DatasetCosts(NamedTuple):
    """The chosen machine, of which ones, what was measured there by entry, and how many entries only elsewhere."""

    machine: Machine | None
    machines: list[Machine]
    on_machine: Mapping[int, Measured]
    elsewhere: int
    columns: list[Column]

    @classmethod
    def of(cls, measured: Sequence[Measured], bm25: int | None, state: BoardState) -> DatasetCosts:
        """Those of the view; `bm25` is the entry of our own BM25. Raises UnknownChoice for another machine."""
        machines = machines_of(measured)
        machine = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
        on_machine = with_baseline({one.entry_id: one for one in measured if one.machine == machine}, bm25)
        columns = cost_columns(on_machine.values(), machine, corpus=state.corpus)
        if state.weights:
            columns.append(weighted_column(cost_group(machine) if machine else EFFICIENCY))
        elsewhere = {one.entry_id for one in measured}.difference(on_machine)
        return cls(machine, machines, on_machine, len(elsewhere), columns)

    def notes(self) -> list[str]:
        """What is to be said of them below the board."""
        if self.machine is None:
            return []
        return notes_on_costs(self.machine, self.on_machine.values(), self.elsewhere)
