"""How hard queries are: what the systems on a board have on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.comparison.queries.collection import by_score, compared_entries
from leaderboard.core.cache.fixed import Slots
from leaderboard.models import Dataset, Entry
from leaderboard.results.history.entry_rows import dataset_revision
from leaderboard.results.records import per_query_means

#: So many systems are looked at, the best ones; a board of a thousand says nothing else of its queries.
MOST_SYSTEMS = 100

Values = NDArray[np.float64]

#: Forty bytes for a query: 7,000 queries have 280 kB.
_remembered = Slots("difficulty", 64, 3600)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Over `systems` systems, by query (rows of the judgements). `baseline` is None where there is none.

    `deviation` is the sample standard deviation (n − 1), 0 of a single system.
    """

    systems: int
    mean: Values
    deviation: Values
    lowest: Values
    highest: Values
    baseline: Values | None


def difficulty(dataset: Dataset, measure: str, queries: int) -> Difficulty | None:
    """What systems have on each of the dataset's judged queries, None where none has the measure. Four queries.

    Remembered by all processes until the board changes.
    """
    names = f"{dataset.pk} {dataset_revision(dataset.slug)} {dataset.current_qrels_id} {measure}"
    kept: Any = _remembered.get(names)
    if kept is None:
        found = _computed(dataset, measure, queries)
        kept = (0, b"") if found is None else (found[0], found[1].tobytes())
        _remembered.set(names, kept)
    systems, content = kept
    if not systems:
        return None
    rows = np.frombuffer(content).reshape(-1, queries)
    mean, deviation, lowest, highest, *baseline = rows
    return Difficulty(systems, mean, deviation, lowest, highest, baseline[0] if baseline else None)


def _computed(dataset: Dataset, measure: str, queries: int) -> tuple[int, Values] | None:
    """(systems, mean, deviation, lowest, highest and the baseline's values as rows of one array)."""
    columns, baseline = [], None
    for entry in _with_values(dataset, measure):
        measures, values = per_query_means(entry)
        if measure not in measures or len(values) != queries:
            continue
        columns.append(values[:, measures.index(measure)])
        if entry.is_baseline:
            baseline = columns[-1]
    if not columns:
        return None
    table = np.stack(columns)
    deviation = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(queries)
    rows = [table.mean(axis=0), deviation, table.min(axis=0), table.max(axis=0)]
    return len(table), np.stack([*rows, baseline] if baseline is not None else rows)


def _with_values(dataset: Dataset, measure: str) -> list[Entry]:
    """The best entries, with the rows that have their values."""
    ranked = compared_entries(dataset).only("pk", "is_baseline", "scores")
    chosen = [entry.pk for entry in by_score(ranked, measure)[:MOST_SYSTEMS]]
    entries = Entry.objects.filter(pk__in=chosen).select_related("evaluation")
    return list(entries.prefetch_related("seeds__evaluation"))
