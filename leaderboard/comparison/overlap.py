"""How much of what systems find first is the same: shared documents among the first ten, from stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from evaluation.runs.top_documents import TopDocuments, shown
from leaderboard.comparison.queries.collection import OpenCollection
from leaderboard.comparison.queries.detail import DEPTH, run_of
from leaderboard.core.cache.fixed import Slots
from leaderboard.datasets.derived_files import top_documents
from leaderboard.models import Entry

#: What two runs share never changes, so it may stay for a week: some hundreds of bytes for six systems.
_remembered = Slots("overlap", 1024, 7 * 24 * 3600)


class Overlap(NamedTuple):
    """Means over the judged queries for which either of two systems has a document."""

    first: int
    second: int
    shared: float
    jaccard: float


def overlaps(collection: OpenCollection, entries: Sequence[Entry]) -> list[Overlap] | None:
    """Every pair of the entries, by their places; None where a run has not been prepared for pages.

    Of a seed set the first seed's run. Remembered by the checksums of the runs.
    """
    runs = [run_of(entry) for entry in entries]
    if None in runs:
        return None
    names = " ".join(run.sha256 for run in runs if run)
    qrels = collection.dataset.current_qrels
    text = f"{names} {qrels.sha256 if qrels else ''} {collection.dataset.drop_self_matches}"
    known: Any = _remembered.get(text)
    if known is None:
        tops = [top_documents(run) for run in runs if run]
        if None in tops:
            return None
        sets = [_sets(collection, top) for top in tops if top is not None]
        known = [
            (first, second, *_shared(sets[first], sets[second]))
            for first, second in combinations(range(len(sets)), 2)
        ]
        _remembered.set(text, known)
    return [Overlap(*each) for each in known]


def _sets(collection: OpenCollection, top: TopDocuments) -> dict[str, frozenset[str]]:
    judged = set(collection.judgements.query_ids)
    drop = collection.dataset.drop_self_matches
    return {
        query: frozenset(shown(documents, query, depth=DEPTH, drop_self_matches=drop))
        for query, documents in top
        if query in judged
    }


def _shared(first: dict[str, frozenset[str]], second: dict[str, frozenset[str]]) -> tuple[float, float]:
    """The mean number of shared documents, and the mean Jaccard similarity."""
    nothing: frozenset[str] = frozenset()
    shared, similar = 0, 0.0
    queries = first.keys() | second.keys()
    for query in queries:
        one, other = first.get(query, nothing), second.get(query, nothing)
        common = len(one & other)
        shared += common
        similar += common / (len(one) + len(other) - common)
    return shared / max(len(queries), 1), similar / max(len(queries), 1)
