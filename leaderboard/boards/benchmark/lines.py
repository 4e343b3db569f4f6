"""From the entries of its datasets to the lines of a benchmark's board: what each system has on each dataset.

A reader who sorts or filters asks for the same lines again. They are remembered together with the very entries that
they were made of: other entries, of a later publication or of an earlier day, never meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from typing import NamedTuple

from leaderboard.boards.benchmark.aggregates import Tables, table
from leaderboard.boards.columns.marks import SeedSpread
from leaderboard.boards.facts import BenchmarkFacts, Member
from leaderboard.boards.filtering import ZERO_SHOT, SharedRows
from leaderboard.core.cache.memory import LONG_LIFETIME, TTLCache
from leaderboard.core.text.baselines import baseline_label
from leaderboard.results.history.entry_columns import (
    IN_DOMAIN,
    DatasetEntries,
    LineKey,
    Published,
    matches_source,
)
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.kinds import CLOSED, REPORTED, SCORED
from leaderboard.systems.baselines import BM25


@dataclass(slots=True)
class SystemLine:
    """What one row collects. The lists have a place for each dataset of the benchmark, sets hold such places.

    `published` is when its first value was; provenances and trainings are empty where there is no value,
    `entries` are the ids of those that have the values, 0 where there is none.
    """

    key: LineKey
    published: Published
    scores: list[float | None]
    groups: list[str]
    provenances: list[str]
    trainings: list[str]
    entries: list[int]
    baselines: Sequence[float | None] = ()
    baseline_on: set[int] = field(default_factory=set)
    #: Which values are means of seeds, by place.
    seeds: dict[int, SeedSpread] = field(default_factory=dict)
    #: Values that are left out because they are not zero-shot, where the view asks for that.
    left_out: Sequence[int] = ()

    @property
    def system_id(self) -> int:
        """Whose it is."""
        return self.key[0]

    @property
    def configuration(self) -> str:
        """Which of the system's."""
        return self.key[1]

    @property
    def ranked_in(self) -> str:
        """`REPORTED` or `SCORED`."""
        return self.key[2]

    @property
    def in_domain(self) -> list[int]:
        """Where the system had been trained on the dataset."""
        if IN_DOMAIN not in self.trainings:
            return []
        return [place for place, training in enumerate(self.trainings) if training == IN_DOMAIN]


#: What gives the systems of all lines, by id.
Systems = Callable[[], Mapping[int, SystemRow]]
#: What a line has on a dataset: a score, its comparison group, provenance and training, when it was published, whether
#: it is the baseline, and when the line's first value on the dataset was published. A plain tuple, since there are
#: thousands.
_Value = tuple[float | None, str, str, str, Published, int, Published | None]
_MISSING: _Value = (None, "", "", "", ("", 0), 0, None)


class BenchmarkLine(NamedTuple):
    """What the cells of a row are made from: the line of this `number`, and its system.

    `shown` is what the view shows of its scores. `beside` has, by place of a dataset, the mark, the title and the
    spread of a cell that has any of them. Costs are of the view, and no part of it.
    """

    about: SystemRow
    ranked_in: str
    decimals: int
    provenance: str
    number: int
    shown: Sequence[float | None]
    beside: Mapping[int, tuple[str, str, str]]
    measured: None = None
    figures: tuple[()] = ()


def collect_lines(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    measure: str,
    *,
    zero_shot: bool = False,
    beside: Sequence[SystemLine] = (),
) -> list[SystemLine]:
    """One line per system, configuration and kind, in order of first publication; a later entry replaces an earlier.

    `zero_shot` leaves out values of systems that were trained on the dataset, or whose makers do not say. Where there
    are lines `beside` these, they have the baselines, and say what is present.
    """
    of_datasets = [
        _values(facts, member, entries[member.dataset_id], member.measure(measure))
        for member in facts.members
    ]
    found = {key: _line(key, of_datasets) for key in dict.fromkeys(chain.from_iterable(of_datasets))}
    for place, member in enumerate(facts.members):
        _add_seeds(found, place, entries[member.dataset_id], member.measure(measure))
    lines = sorted(found.values(), key=lambda line: line.published)
    _compare(lines, len(facts.members), beside or lines)
    lines = [line for line in lines if line.scores.count(None) < len(line.scores)]
    return _zero_shot(lines) if zero_shot else lines


def _zero_shot(lines: Sequence[SystemLine]) -> list[SystemLine]:
    """The lines without the values that are not zero-shot; those that have none left are gone."""
    left = []
    for line in lines:
        line.left_out = [
            place
            for place, (score, training) in enumerate(zip(line.scores, line.trainings, strict=True))
            if score is not None and training not in ZERO_SHOT
        ]
        for place in line.left_out:
            line.scores[place] = None
        if line.scores.count(None) < len(line.scores):
            left.append(line)
    return left


def _line(key: LineKey, of_datasets: Sequence[Mapping[LineKey, _Value]]) -> SystemLine:
    """What the datasets have of a line."""
    found = [of_dataset.get(key, _MISSING) for of_dataset in of_datasets]
    scores, groups, provenances, trainings, published, baselines, first = zip(*found, strict=True)
    return SystemLine(
        key,
        min(filter(None, first)),
        list(scores),
        list(groups),
        list(provenances),
        list(trainings),
        [each[1] for each in published],
        baseline_on={place for place, is_baseline in enumerate(baselines) if is_baseline},
    )


def _add_seeds(
    lines: Mapping[LineKey, SystemLine], place: int, entries: DatasetEntries, measure: str
) -> None:
    """Note which of the values that lines have now are means of seeds."""
    for found in entries.seed_sets:
        line = lines.get(found.line)
        value = found.scores.get(measure)
        if line is not None and value is not None and line.scores[place] == value:
            line.seeds[place] = SeedSpread(found.number, found.deviations.get(measure))


def _values(
    facts: BenchmarkFacts, member: Member, entries: DatasetEntries, measure: str
) -> dict[LineKey, _Value]:
    """What each line has on a dataset; nothing of entries of another paper, or not on the present judgements."""
    values = [scores.get(measure) for scores in entries.scores]
    current = f"scored:{member.facts.version_id}:{member.facts.qrels_id}:"
    shown = {
        (source, group)
        for source, group in entries.kinds
        if (group.startswith(current) if source is None else matches_source(source, facts.source_id))
    }
    if shown != entries.kinds:
        kinds = zip(entries.sources, entries.groups, strict=True)
        values = [value if kind in shown else None for value, kind in zip(values, kinds, strict=True)]
    published = entries.published
    columns = (values, entries.groups, entries.provenances, entries.trainings, published, entries.baselines)
    rows: Iterable[_Value] = zip(*columns, published, strict=True)
    found = list(zip(entries.lines, rows, strict=True))
    if None in values:
        found = [(key, value) for key, value in found if value[0] is not None]
    latest = dict(found)
    return latest if len(latest) == len(found) else _latest(found)


def _latest(entries: Iterable[tuple[LineKey, _Value]]) -> dict[LineKey, _Value]:
    """A later entry replaces an earlier one, but for a baseline, which stays whatever comes under its name later."""
    latest: dict[LineKey, _Value] = {}
    for key, (score, group, provenance, training, published, is_baseline, first) in entries:
        before = latest.get(key)
        if before is None:
            latest[key] = score, group, provenance, training, published, is_baseline, first
            continue
        _, group_before, _, _, _, was_baseline, first_before = before
        first = min(filter(None, (first, first_before)))
        if group == group_before and was_baseline and not is_baseline:
            latest[key] = *before[:6], first
        else:
            latest[key] = score, group, provenance, training, published, is_baseline or was_baseline, first
    return latest


def _compare(lines: Sequence[SystemLine], number: int, anchors: Sequence[SystemLine]) -> None:
    """Drop values of superseded measures, and put each value's baseline beside it: that of its own comparison group."""
    baselines: list[dict[str, float | None]] = [{} for _ in range(number)]
    for line in anchors:
        for place in line.baseline_on:
            baselines[place][line.groups[place]] = line.scores[place]
    current = _current_groups(anchors, number)
    of_groups: dict[tuple[str, ...], list[float | None]] = {}  # most lines have the same
    for line in lines:
        if line.ranked_in == SCORED and line.groups != current:
            line.scores = [
                score if group == wanted else None
                for score, group, wanted in zip(line.scores, line.groups, current, strict=True)
            ]
        groups = tuple(line.groups)
        if groups not in of_groups:
            of_groups[groups] = [
                of_place.get(group) for of_place, group in zip(baselines, groups, strict=True)
            ]
        line.baselines = of_groups[groups]


def _current_groups(lines: Sequence[SystemLine], number: int) -> list[str]:
    """By dataset, the group that its scored values are compared in: that of its baseline, else the newest."""
    current = [""] * number
    anchored: set[int] = set()
    for line in lines:
        if line.ranked_in == REPORTED:
            continue
        anchored |= line.baseline_on
        for place, group in enumerate(line.groups):
            if group and (place not in anchored or place in line.baseline_on):
                current[place] = group
    return current


def available_measures(facts: BenchmarkFacts, entries: Mapping[int, DatasetEntries]) -> list[str]:
    """The measures that the board can show: its own first, then those that half of the counted datasets have."""
    had = {dataset: of_dataset.measures_of(facts.source_id) for dataset, of_dataset in entries.items()}
    wanted = {name for names in had.values() for name in names}
    wanted -= {name for member in facts.members for name in member.stand_ins.values()}
    wanted |= {name for member in facts.members for name in member.stand_ins}

    def widely_had(measure: str) -> bool:
        having = sum(member.measure(measure) in had[member.dataset_id] for member in facts.counted)
        return having > 0 and 2 * having >= len(facts.counted)

    return [facts.measure, *sorted(name for name in wanted if name != facts.measure and widely_had(name))]


@dataclass(frozen=True, slots=True)
class BoardLines:
    """The lines of a board in order of publication, with their systems by id; nothing of it is ever changed.

    `rows` has what was made of them, by view, and whether with what they usually cost. `shared` is what else all views
    have in common.
    """

    facts: BenchmarkFacts
    entries: Sequence[DatasetEntries]
    lines: Sequence[SystemLine]
    systems: Mapping[int, SystemRow]
    tables: Tables
    #: By place of a dataset, what its scored values are compared with, and whether that is the site's own BM25.
    baselines: Mapping[int, tuple[str, bool]]
    rows: dict[tuple[str, bool], SharedRows] = field(default_factory=dict)
    shared: dict[str, object] = field(default_factory=dict)


def _named(system: SystemRow, dataset: str) -> tuple[str, bool]:
    return baseline_label(system.name, dataset), system.slug == BM25.slug


_remembered: TTLCache[BoardLines] = TTLCache(12)


def board_lines(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    measure: str,
    read_systems: Systems,
    *,
    lower_is_better: bool,
    zero_shot: bool,
) -> BoardLines:
    """The lines for a measure. `read_systems` is asked once, and not where they are remembered."""
    # With the revisions, so that a board as it was and the present one do not push each other out.
    members = ",".join(f"{member.slug}:{member.revision.key}" for member in facts.members)
    key = f"{facts.name}|{measure}|{zero_shot}|{members}"
    used = [entries[member.dataset_id] for member in facts.members]
    known = _remembered.get(key)
    if known is not None and known.facts == facts and all(map(is_, known.entries, used)):
        return known
    lines = collect_lines(facts, entries, measure, zero_shot=zero_shot)
    width, systems = len(facts.members), read_systems()
    base = BoardLines(
        facts=facts,
        entries=used,
        lines=lines,
        systems=systems,
        tables=Tables(
            scores=table([line.scores for line in lines], width),
            baselines=table([line.baselines for line in lines], width),
            counted=[place for place, member in enumerate(facts.members) if member.counted],
            kinds=[
                CLOSED if line.ranked_in == SCORED and systems[line.system_id].closed_api else line.ranked_in
                for line in lines
            ],
            lower_is_better=lower_is_better,
        ),
        baselines={
            place: _named(systems[line.system_id], facts.members[place].facts.name)
            for line in lines
            if line.ranked_in == SCORED
            for place in line.baseline_on
            if line.scores[place] is not None
        },
    )
    _remembered.put(key, base, LONG_LIFETIME)
    return base
