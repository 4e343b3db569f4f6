"""Systems on one dataset with open judgements, query by query: two of them compared, and what they find in common."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.runs.top_documents import TopDocuments, displayed_documents
from evaluation.statistics.bootstrap import RESAMPLES
from evaluation.statistics.comparison import PairedResult, compare_paired
from leaderboard.comparison.queries.collection import OpenCollection, query_url
from leaderboard.comparison.queries.detail import DEPTH, first_run
from leaderboard.comparison.testing import values_of
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.datasets.derived_files import top_documents
from leaderboard.models import Entry

#: Queries shown on which each system wins most clearly.
MOST_CLEAR = 10
#: Queries drawn at most for an interval, over all resamples: half a second of a core.
MOST_DRAWN = 10_000_000


class QueryDifference(NamedTuple):
    """A query on which two systems differ; values as the page writes them."""

    id: str
    text: str
    url: str
    first: str
    second: str
    difference: str


class PairComparison(NamedTuple):
    """`differences` are the other's values less the first's, in the order of the judgements' queries."""

    result: PairedResult
    differences: NDArray[np.float64]
    first_wins: list[QueryDifference]
    second_wins: list[QueryDifference]


def by_query(collection: OpenCollection, entries: Sequence[Entry], measure: str) -> PairComparison | None:
    """The first of two entries against the second; None where one has no values of the measure."""
    values = values_of(entries, measure)
    if values is None or len(values) != len(collection.judgements.query_ids):
        return None
    lower = better(measure) == "lower"
    first, second = values.T
    resamples = max(1_000, min(RESAMPLES, MOST_DRAWN // len(values)))
    # The test is the table's, over all its pairs: this one's own p is not shown.
    result = compare_paired(second, first, permutations=1, resamples=resamples, lower_is_better=lower)
    differences = second - first
    gains = -differences if lower else differences
    order = np.argsort(-gains, kind="stable")
    ahead = [row for row in order[:MOST_CLEAR].tolist() if gains[row] > 0]
    behind = [row for row in order[::-1][:MOST_CLEAR].tolist() if gains[row] < 0]
    return PairComparison(
        result,
        differences,
        [_difference(collection, values, row) for row in behind],
        [_difference(collection, values, row) for row in ahead],
    )


def _difference(collection: OpenCollection, values: NDArray[np.float64], row: int) -> QueryDifference:
    name = collection.judgements.query_ids[row]
    first, second = values[row].tolist()
    return QueryDifference(
        name,
        collection.text(name),
        query_url(collection.dataset.slug, name),
        numbers.format_value(first, 3),
        numbers.format_value(second, 3),
        numbers.signed(second - first, 3),
    )


class Overlap(NamedTuple):
    """Means over the judged queries for which either of two systems has a document."""

    first: int
    second: int
    shared: float
    jaccard: float


def overlaps(collection: OpenCollection, entries: Sequence[Entry]) -> list[Overlap] | None:
    """Every pair of the entries, by their places; None where a run has not been prepared for pages.

    Of a seed set the first seed's run.
    """
    sets = []
    for entry in entries:
        top = top_documents(first_run(entry), collection.excluded_sha256)
        if top is None:
            return None
        sets.append(_sets(collection, top))
    return [
        Overlap(first, second, *_shared(sets[first], sets[second]))
        for first, second in combinations(range(len(sets)), 2)
    ]


def _sets(collection: OpenCollection, top: TopDocuments) -> dict[str, frozenset[str]]:
    judged = set(collection.judgements.query_ids)
    drop = collection.dataset.drop_self_matches
    return {
        query: frozenset(displayed_documents(documents, query, depth=DEPTH, drop_self_matches=drop))
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
