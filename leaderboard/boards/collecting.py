"""From a stream of entries to the lines of a benchmark's board: what each system has on each dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from leaderboard.boards.dataset_board import DatasetFacts
from leaderboard.boards.model import REPORTED, SCORED
from leaderboard.boards.reading import Cell
from leaderboard.models import Entry

IN_DOMAIN = Entry.Training.IN_DOMAIN.value


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


@dataclass(slots=True)
class Line:
    """What one row collects: by dataset its value and its baseline's, and how it may be compared."""

    system_id: int
    configuration: str
    ranked_in: str
    scores: dict[int, float] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    baselines: dict[int, float] = field(default_factory=dict)
    baseline_on: set[int] = field(default_factory=set)
    in_domain: set[int] = field(default_factory=set)
    provenances: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Collected:
    """The lines of a board for one measure, and which measures its datasets have at all."""

    lines: list[Line]
    measures: dict[int, set[str]]


def collect(facts: BenchmarkFacts, cells: Iterable[Cell], measure: str) -> Collected:
    """One line per system, configuration and kind, in order of first publication; a later entry replaces an earlier.

    One pass over a stream: of a benchmark's thousands of entries only the values of one measure are kept.
    """
    wanted = {member.dataset_id: member.measure(measure) for member in facts.members}
    current = {
        member.dataset_id: f"scored:{member.facts.version_id}:{member.facts.qrels_id}:"
        for member in facts.members
    }
    had: dict[int, set[str]] = {dataset: set() for dataset in wanted}
    lines: dict[tuple[int, str, str], Line] = {}
    for dataset, system, configuration, provenance, group, is_baseline, training, text in cells:
        scores = orjson.loads(text)
        had[dataset].update(scores)
        value = scores.get(wanted[dataset])
        reported = provenance == REPORTED
        if value is None or not (reported or group.startswith(current[dataset])):
            continue
        key = (system, configuration, REPORTED if reported else SCORED)
        line = lines.get(key)
        if line is None:
            line = lines[key] = Line(system, configuration, key[2])
        if dataset in line.baseline_on and not is_baseline and group == line.groups[dataset]:
            continue  # whatever comes under the baseline's name later, the baseline stays
        line.scores[dataset] = value
        line.groups[dataset] = group
        line.provenances.add(provenance)
        if is_baseline:
            line.baseline_on.add(dataset)
        if training == IN_DOMAIN:
            line.in_domain.add(dataset)
    _compare(list(lines.values()))
    return Collected([line for line in lines.values() if line.scores], had)


def _compare(lines: Sequence[Line]) -> None:
    """Drop values of superseded measures, and put each value's baseline beside it: that of its own comparison group."""
    baselines = {
        (dataset, line.groups[dataset]): line.scores[dataset]
        for line in lines
        for dataset in line.baseline_on
    }
    current = _current_groups(lines)
    for line in lines:
        if line.ranked_in == SCORED:
            for dataset in [
                dataset for dataset, group in line.groups.items() if group != current.get(dataset)
            ]:
                del line.scores[dataset]
        line.baselines = {
            dataset: baseline
            for dataset in line.scores
            if (baseline := baselines.get((dataset, line.groups[dataset]))) is not None
        }


def _current_groups(lines: Sequence[Line]) -> dict[int, str]:
    """By dataset, the group that its scored values are compared in: that of its baseline, else the newest."""
    current: dict[int, str] = {}
    anchored: set[int] = set()
    for line in lines:
        if line.ranked_in == REPORTED:
            continue
        for dataset, group in line.groups.items():
            if dataset in line.baseline_on:
                anchored.add(dataset)
                current[dataset] = group
            elif dataset not in anchored:
                current[dataset] = group
    return current


def available_measures(facts: BenchmarkFacts, had: Mapping[int, set[str]]) -> list[str]:
    """The measures that the board can show: its own first, then those that half of the counted datasets have."""
    wanted = {name for names in had.values() for name in names}
    wanted -= {name for member in facts.members for name in member.stand_ins.values()}
    wanted |= {name for member in facts.members for name in member.stand_ins}

    def widely_had(measure: str) -> bool:
        having = sum(member.measure(measure) in had.get(member.dataset_id, ()) for member in facts.counted)
        return having > 0 and 2 * having >= len(facts.counted)

    return [facts.measure, *sorted(name for name in wanted if name != facts.measure and widely_had(name))]
