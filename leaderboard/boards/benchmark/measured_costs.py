"""Which measured costs the board of a benchmark shows: those of one dataset on one machine.

An average over corpora of different sizes would mean nothing, and figures of two machines do not compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leaderboard.boards.benchmark.lines import Line
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.state import BoardState
from leaderboard.results.history.entry_columns import DatasetEntries
from leaderboard.results.history.measurements import Machine, Measured, chosen_machine, machines_of
from leaderboard.results.kinds import SCORED

#: A system and its configuration, as the lines of a benchmark's board are told apart.
Of = tuple[int, str]


class CostsShown(NamedTuple):
    """The dataset and the machine, what was measured there by system and configuration, and which machines there are.

    `elsewhere` counts the lines that were measured on the dataset, but on other machines only.
    """

    dataset: str
    machine: Machine | None
    measured: dict[Of, Measured]
    machines: list[Machine]
    elsewhere: int


def costs_shown(
    facts: BenchmarkFacts, entries: Mapping[int, DatasetEntries], lines: Iterable[Line], state: BoardState
) -> CostsShown:
    """Of the dataset that the benchmark names, else that most lines share, the largest among equals.

    The machine is the one that the view names, by default the one that most lines share. Raises UnknownChoice.
    """
    wanted = {(line.system_id, line.configuration) for line in lines if line.ranked_in == SCORED}
    of_members = [
        (member, [one for one in entries[member.dataset_id].measured if _of(one) in wanted])
        for member in (*facts.members, *facts.left_out)
        if facts.efficiency_from in (None, member.dataset_id)
    ]
    everything = [one for _, measured in of_members for one in measured]
    machines = machines_of(everything)
    wanted_machine = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
    hardware = wanted_machine.slug if wanted_machine and (state.hardware or state.cpu_only) else ""
    best: tuple[int, int] = (0, 0)
    shown = CostsShown("", None, {}, machines, 0)
    for member, measured in of_members:
        found = _on(member, measured, hardware, machines)
        size = (len(found.measured), max((one.figures["documents"] for one in measured), default=0))
        if found.measured and size > best:
            best, shown = size, found
    return shown


def _on(member: Member, measured: list[Measured], hardware: str, machines: list[Machine]) -> CostsShown:
    """What one dataset can show, on its own first machine unless one is wanted."""
    here = machines_of(measured)
    machine = next((one for one in here if hardware in ("", one.slug)), None)
    on_machine = {_of(one): one for one in measured if one.machine == machine}
    elsewhere = {_of(one) for one in measured}.difference(on_machine)
    return CostsShown(member.facts.name, machine, on_machine, machines, len(elsewhere))


def _of(measured: Measured) -> Of:
    return measured.system_id, measured.configuration
