"""Two systems on one dataset with open judgements, query by query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics import RESAMPLES, PairedResult, paired
from leaderboard.comparison.queries.collection import OpenCollection, query_url
from leaderboard.comparison.testing import SEED, values_of
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
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


class Pair(NamedTuple):
    """`differences` are the other's values less the first's, in the order of the judgements' queries."""

    result: PairedResult
    differences: NDArray[np.float64]
    first_wins: list[QueryDifference]
    second_wins: list[QueryDifference]


def by_query(collection: OpenCollection, entries: Sequence[Entry], measure: str) -> Pair | None:
    """The first of two entries against the second; None where one has no values of the measure."""
    values = values_of(entries, measure)
    if values is None or len(values) != len(collection.judgements.query_ids):
        return None
    lower = better(measure) == "lower"
    first, second = values.T
    resamples = max(1_000, min(RESAMPLES, MOST_DRAWN // len(values)))
    # The test is the table's, over all its pairs: this one's own p is not shown.
    result = paired(second, first, permutations=1, resamples=resamples, seed=SEED, lower_is_better=lower)
    differences = second - first
    gains = -differences if lower else differences
    order = np.argsort(-gains, kind="stable")
    ahead = [row for row in order[:MOST_CLEAR].tolist() if gains[row] > 0]
    behind = [row for row in order[::-1][:MOST_CLEAR].tolist() if gains[row] < 0]
    return Pair(
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
        numbers.written(first, 3),
        numbers.written(second, 3),
        numbers.signed(second - first, 3),
    )
