"""What all views of a benchmark's board share: its lines, their systems, and the rows before any order or filter.

A reader who sorts or filters asks for the same lines again. They are remembered together with the very entries that
they were made of: other entries, of a later publication or of an earlier day, never meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

from leaderboard.boards.benchmark.aggregates import Tables, table
from leaderboard.boards.benchmark.lines import Line, collect
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.model import Row
from leaderboard.core.cache.memory import Remembered
from leaderboard.core.text.baselines import named_baseline
from leaderboard.results.history.entry_columns import DatasetEntries
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.kinds import CLOSED, SCORED
from leaderboard.systems.baselines import BM25


@dataclass(frozen=True, slots=True)
class Base:
    """The lines of a board in order of publication, with their systems by id; nothing of it is ever changed.

    `rows` has what was made of them, by view.
    """

    facts: BenchmarkFacts
    entries: Sequence[DatasetEntries]
    lines: Sequence[Line]
    systems: Mapping[int, SystemRow]
    tables: Tables
    #: By place of a dataset, what its scored values are compared with, and whether that is the site's own BM25.
    baselines: Mapping[int, tuple[str, bool]]
    rows: dict[str, Sequence[Row]] = field(default_factory=dict)

    def fresh_rows(self, view: str, make: Callable[[], Sequence[Row]]) -> list[Row]:
        """Rows that the caller may give other cells, copied from those made once for this view."""
        if view not in self.rows:
            self.rows[view] = make()
        return [
            Row(row.entry, row.ranked_in, row.decimals, row.values.copy(), row.cells.copy(), row.facets)
            for row in self.rows[view]
        ]


def _named(system: SystemRow, dataset: str) -> tuple[str, bool]:
    return named_baseline(system.name, dataset), system.slug == BM25.slug


_remembered: Remembered[Base] = Remembered(12)


def base_of(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    measure: str,
    read_systems: Callable[[Iterable[int]], Mapping[int, SystemRow]],
    *,
    lower_is_better: bool,
    zero_shot: bool,
) -> Base:
    """The lines for a measure. `read_systems` is asked once, and not where they are remembered."""
    # With the revisions, so that a board as it was and the present one do not push each other out.
    members = ",".join(f"{member.slug}:{member.revision.key}" for member in facts.members)
    key = f"{facts.name}|{measure}|{zero_shot}|{members}"
    used = [entries[member.dataset_id] for member in facts.members]
    known = _remembered.get(key)
    if known is not None and known.facts == facts and all(map(is_, known.entries, used)):
        return known
    lines = collect(facts, entries, measure, zero_shot=zero_shot)
    width, systems = len(facts.members), read_systems(line.system_id for line in lines)
    base = Base(
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
    _remembered.put(key, base)
    return base
