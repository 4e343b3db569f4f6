"""The public entries of a dataset as columns, which the boards of benchmarks are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

from leaderboard.models import Entry
from leaderboard.results.history.entry_rows import EntryRow
from leaderboard.results.history.measurements import MeasuredEntry
from leaderboard.results.kinds import REPORTED, SCORED
from leaderboard.results.reported_facts import COSTS

IN_DOMAIN = intern(Entry.Training.IN_DOMAIN.value)

#: When an entry was published, then its id: the order of every board.
Published = tuple[str, int]

#: Whose line an entry is part of: system, configuration, and `REPORTED` or `SCORED`.
LineKey = tuple[int, str, str]

Figures = Sequence[Mapping[str, Any]]


class SeedSet(NamedTuple):
    """An entry that is the mean of several runs."""

    line: LineKey
    number: int
    scores: Mapping[str, float]
    deviations: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DatasetEntries:
    """The public entries of one dataset, by date of publication: each list has one place for each entry.

    Lists, because there are thousands of entries, and an object of each would take longer to make than to use.
    `sources` are those of reported entries, None for scored ones. Of all entries together, `kinds` are their pairs of
    source and comparison group, `measures` by source those that any has, and `costs` the figures of what systems need,
    each with its source, system and configuration. `measured` is what was measured of any, oldest first, and
    `seed_sets` are the few that are the means of several runs.
    """

    lines: Sequence[LineKey]
    published: Sequence[Published]
    provenances: Sequence[str]
    sources: Sequence[int | None]
    groups: Sequence[str]
    baselines: Sequence[int]
    trainings: Sequence[str]
    scores: Sequence[Mapping[str, float]]
    kinds: set[tuple[int | None, str]]
    measures: Mapping[int | None, set[str]]
    costs: Sequence[tuple[int | None, int, str, Figures]]
    measured: Sequence[MeasuredEntry] = ()
    seed_sets: Sequence[SeedSet] = ()

    def measures_of(self, source: int | None) -> set[str]:
        """The measures that any entry has; of reported ones only those of `source`, if given."""
        return {name for key, names in self.measures.items() if matches_source(key, source) for name in names}

    def costs_of(self, source: int | None) -> dict[tuple[int, str], Figures]:
        """What systems need, by system and configuration; of reported entries only those of `source`, if given."""
        return {
            (system, configuration): figures
            for key, system, configuration, figures in self.costs
            if matches_source(key, source)
        }


def matches_source(found: int | None, source: int | None) -> bool:
    """Whether a board shows what has the source `found`: one of a paper's figures shows no other paper's."""
    return source is None or found is None or found == source


def entries_from(rows: Sequence[EntryRow], measured: Sequence[MeasuredEntry] = ()) -> DatasetEntries:
    """The rows as columns; all are of one dataset, and in order of publication."""
    reported = [row.provenance == REPORTED for row in rows]
    lines = [
        (row.system_id, intern(row.configuration), REPORTED if is_reported else SCORED)
        for row, is_reported in zip(rows, reported, strict=True)
    ]
    sources = [
        row.source_id if is_reported else None for row, is_reported in zip(rows, reported, strict=True)
    ]
    groups = [intern(row.comparison_group) for row in rows]
    of_source: dict[int | None, set[str]] = {}
    for row, source in zip(rows, sources, strict=True):
        of_source.setdefault(source, set()).update(row.scores)
    return DatasetEntries(
        lines=lines,
        published=[(row.published, row.pk) for row in rows],
        provenances=[intern(row.provenance) for row in rows],
        sources=sources,
        groups=groups,
        baselines=[row.is_baseline for row in rows],
        trainings=[intern(row.training) for row in rows],
        scores=[row.scores for row in rows],
        kinds=set(zip(sources, groups, strict=True)),
        measures=of_source,
        costs=[
            (source, row.system_id, row.configuration, costs)
            for row, source in zip(rows, sources, strict=True)
            if row.figures and (costs := [figure for figure in row.figures if figure["name"] in COSTS])
        ],
        measured=measured,
        seed_sets=[
            SeedSet(line, row.seed_count, row.scores, row.deviations)
            for line, row in zip(lines, rows, strict=True)
            if row.seed_count
        ],
    )


#: Of a dataset that has none.
NO_ENTRIES = entries_from([])
