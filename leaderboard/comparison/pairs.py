"""Paired comparisons of systems on one dataset: tests, differences by query, and shared documents."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from numpy.typing import NDArray

from evaluation.runs.top_documents import displayed_documents
from evaluation.statistics.comparison import RESAMPLES, PairedResult, compare_paired, count_wins
from evaluation.statistics.randomisation import PERMUTATIONS, SEED, randomisation_test
from leaderboard.boards.columns.significance import format_p_value
from leaderboard.boards.wording import p_text
from leaderboard.comparison.queries.collection import OpenCollection, query_url
from leaderboard.comparison.queries.detail import DEPTH, first_run
from leaderboard.core.cache.memory import FixedCache
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.datasets.derived_files import top_documents
from leaderboard.models import Entry
from leaderboard.results.records import entries_with_values, measure_values
from leaderboard.results.significance.statements import BoardStatements

#: A page draws so many signs at most, one for each query and permutation: about a second of a core.
MOST_SIGNS = 100_000_000
FEWEST_PERMUTATIONS = 1_000
#: Results of tests and overlaps of runs, for a week; some hundreds of bytes for six systems. None is ever stale: a key
#: names the contents that the result was computed from.
comparisons = FixedCache("comparison", 16_384, 7 * 24 * 3600)


class PairTest(NamedTuple):
    """A system against the first one: the p-value before its correction, and queries won, tied and lost."""

    p: float
    wins: int
    ties: int
    losses: int


class Family(NamedTuple):
    """Tests that are corrected together, as named in a cell and in a sentence, with a placeholder for their number."""

    short: str
    sentence: str


BOARD_PAIRS = Family(_("%(tests)d pairs"), _("p %(p)s corrected for the board’s %(tests)d pairs"))
BASELINE_COMPARISONS = Family(
    _("%(tests)d vs baseline"), _("p %(p)s corrected for the board’s %(tests)d comparisons with its baseline")
)
PAGE_PAIRS = Family(_("%(tests)d here"), _("p %(p)s corrected for the %(tests)d pairs of this page"))


class CorrectedP(NamedTuple):
    """The p-value of a pair, corrected for a number of tests."""

    p: float
    tests: int
    family: Family

    @property
    def text(self) -> str:
        """Text of a cell: `0.214 (153 pairs)`."""
        return f"{format_p_value(self.p)} ({gettext(self.family.short) % {'tests': self.tests}})"

    @property
    def sentence(self) -> str:
        """`p = 0.214 corrected for the board’s 153 pairs`."""
        return gettext(self.family.sentence) % {"p": p_text(self.p), "tests": self.tests}


class TestRequest(NamedTuple):
    """A dataset's test that the page needs: entries by id, the anchor first."""

    entries: tuple[int, ...]
    measure: str


def permutations_for(queries: int) -> int:
    """How many permutations a page draws whose datasets have so many judged queries together."""
    affordable = MOST_SIGNS // max(queries, 1)
    return max(FEWEST_PERMUTATIONS, min(PERMUTATIONS, affordable // 100 * 100))


def run_tests(questions: Sequence[TestRequest], permutations: int) -> dict[TestRequest, list[PairTest]]:
    """The answers: for each entry after the first one. Two queries more where one is not remembered."""
    # The evaluations of an entry never change: other judgements make other entries.
    keys = {
        question: f"{question.entries} {question.measure} {permutations} {SEED}" for question in questions
    }
    known = comparisons.get_many(keys.values())
    missing = [question for question, key in keys.items() if key not in known]
    if missing:
        entries = entries_with_values(pk for question in missing for pk in question.entries)
        new = {keys[question]: _run_test(question, entries, permutations) for question in missing}
        comparisons.set_many(new)
        known |= new
    return {question: [PairTest(*each) for each in known[key]] for question, key in keys.items()}


def values_of(entries: Sequence[Entry], measure: str) -> NDArray[np.float64] | None:
    """Shape (queries, entries); None where one has no values of the measure, or of other queries."""
    columns = [measure_values(entry, measure) for entry in entries]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or len({len(column) for column in known}) != 1:
        return None
    return np.column_stack(known)


def _run_test(
    question: TestRequest, entries: Mapping[int, Entry], permutations: int
) -> list[tuple[Any, ...]]:
    found = [entries[pk] for pk in question.entries if pk in entries]
    values = values_of(found, question.measure) if len(found) == len(question.entries) else None
    if values is None:
        return []
    p = randomisation_test(values, 0, permutations=permutations)
    counts = count_wins(values, 0, lower_is_better=better(question.measure) == "lower")
    columns = (p.tolist(), *(count.tolist() for count in counts))
    return list(zip(*columns, strict=True))[1:]


def corrected_on_board(board: BoardStatements, pair: tuple[int, int], measure: str) -> CorrectedP | None:
    """Return a board's p-value for a pair of its entries that includes its best or its baseline."""
    certainty = board.tests(measure)
    if certainty is None:
        return None
    for anchor, column, tests, family in (
        (certainty.best, "p_best_corrected", certainty.pairs, BOARD_PAIRS),
        (certainty.baseline, "p_baseline_corrected", certainty.comparisons, BASELINE_COMPARISONS),
    ):
        if anchor in pair and (other := certainty.of(pair[1 - pair.index(anchor)])) is not None:
            p = getattr(other, column)
            if p is not None and tests > 1:
                return CorrectedP(p, tests, family)
    return None


#: Queries shown on which each system wins most clearly.
MOST_CLEAR = 10
#: Queries drawn at most for an interval, over all resamples: half a second of a core.
MOST_DRAWN = 10_000_000


class PairComparison(NamedTuple):
    """`differences` are the other's values less the first's, in the order of the judgements' queries.

    `first_wins` and `second_wins` are the queries that each wins most clearly, as the page shows them.
    """

    result: PairedResult
    differences: NDArray[np.float64]
    first_wins: list[dict[str, str]]
    second_wins: list[dict[str, str]]


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


def _difference(collection: OpenCollection, values: NDArray[np.float64], row: int) -> dict[str, str]:
    name = collection.judgements.query_ids[row]
    first, second = values[row].tolist()
    return {
        "id": name,
        "text": collection.text(name),
        "url": query_url(collection.dataset.slug, name),
        "first": numbers.format_value(first, 3),
        "second": numbers.format_value(second, 3),
        "difference": numbers.signed(second - first, 3),
    }


def overlaps(
    collection: OpenCollection, entries: Sequence[Entry]
) -> list[tuple[int, int, float, float]] | None:
    """Return for each pair of entries, by position, the mean number of shared documents and mean Jaccard similarity.

    Means are over the judged queries for which either has a document. The run of a seed set is its first seed's.
    Returns None if a run has not been prepared for pages.
    """
    sets = []
    for entry in entries:
        top = top_documents(first_run(entry), collection.excluded_sha256)
        if top is None:
            return None
        judged = set(collection.judgements.query_ids)
        drop = collection.dataset.drop_self_matches
        sets.append(
            {
                query: frozenset(displayed_documents(documents, query, depth=DEPTH, drop_self_matches=drop))
                for query, documents in top
                if query in judged
            }
        )
    pairs = combinations(range(len(sets)), 2)
    return [(first, second, *_shared(sets[first], sets[second])) for first, second in pairs]


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
