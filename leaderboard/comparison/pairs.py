"""Paired comparisons of systems on one dataset: tests, differences by query, and shared documents."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from numpy.typing import NDArray

from evaluation.runs.top_documents import displayed_documents
from evaluation.statistics.comparison import RESAMPLES, PairedResult, compare_paired, count_wins, intervals
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
from leaderboard.results.slices import MIN_TESTED, QuerySlice, read_slices

#: Maximum number of random signs drawn for a page (queries × permutations), about one second of a core.
MAX_SIGNS = 100_000_000
MIN_PERMUTATIONS = 1_000
#: Test results and run overlaps, cached for a week; a few hundred bytes for six systems. Keys name the
#: contents that a result was computed from, so entries never become stale.
comparisons = FixedCache("comparison", 16_384, 7 * 24 * 3600)


class PairTest(NamedTuple):
    """Test of a system against the first one: uncorrected p-value, and queries won, tied, and lost."""

    p: float
    wins: int
    ties: int
    losses: int


class Family(NamedTuple):
    """Labels of a family of tests that are corrected together, for a cell and for a sentence.

    Both have a placeholder for the number of tests.
    """

    cell_text: str
    sentence: str


BOARD_PAIRS = Family(_("Westfall–Young, %(tests)d pairs"), _("Westfall–Young p %(p)s for the board’s %(tests)d pairs"))
BASELINE_COMPARISONS = Family(
    _("Holm, %(tests)d vs baseline"),
    _("Holm-corrected p %(p)s for the board’s %(tests)d comparisons with its baseline"),
)
PAGE_PAIRS = Family(_("Holm, %(tests)d here"), _("Holm-corrected p %(p)s for the %(tests)d pairs of this page"))


class CorrectedP(NamedTuple):
    """A pair's p-value, corrected for `tests` tests, and the possible ranks of the system on the board if known."""

    p: float
    tests: int
    family: Family
    ranks: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        return f"{format_p_value(self.p)} ({gettext(self.family.cell_text) % {'tests': self.tests}})"

    @property
    def sentence(self) -> str:
        return gettext(self.family.sentence) % {"p": p_text(self.p), "tests": self.tests}


class TestRequest(NamedTuple):
    """One test on a dataset: the ids of the entries, the anchor first."""

    entries: tuple[int, ...]
    measure: str


def affordable_permutations(queries: int) -> int:
    """Return the number of permutations per test that a page can afford, at least 1,000.

    `queries` is the number of judged queries over all its datasets.
    """
    return max(MIN_PERMUTATIONS, min(PERMUTATIONS, MAX_SIGNS // max(queries, 1) // 100 * 100))


def run_tests(requests: Sequence[TestRequest], permutations: int) -> dict[TestRequest, list[PairTest]]:
    """Return the results of each test: one for each entry except the first, which is the anchor.

    Results are read from the cache or computed and cached. If an entry has no comparable values, the list is empty.
    Takes two database queries if any result is not cached.
    """
    # The evaluations of an entry never change: new judgments create new entries.
    keys = {request: f"{request.entries} {request.measure} {permutations} {SEED}" for request in requests}
    results = comparisons.get_many(keys.values())
    if missing_requests := [request for request, key in keys.items() if key not in results]:
        entries = entries_with_values(pk for request in missing_requests for pk in request.entries)
        new_results: dict[str, list[tuple[Any, ...]]] = {}
        for request in missing_requests:
            key, test_entries = keys[request], [entries[pk] for pk in request.entries if pk in entries]
            is_complete = len(test_entries) == len(request.entries)
            values = per_query_values(test_entries, request.measure) if is_complete else None
            if values is None:
                new_results[key] = []
                continue
            p = randomisation_test(values, 0, permutations=permutations)
            counts = count_wins(values, 0, lower_is_better=better(request.measure) == "lower")
            rows = zip(p.tolist(), *(count.tolist() for count in counts), strict=True)
            new_results[key] = list(rows)[1:]  # Without the anchor.
        comparisons.set_many(new_results)
        results |= new_results
    return {request: [PairTest(*counts) for counts in results[key]] for request, key in keys.items()}


def per_query_values(entries: Sequence[Entry], measure: str) -> NDArray[np.float64] | None:
    """Return the entries' values by query, of shape (queries, entries).

    None if an entry lacks the measure or has another number of queries.
    """
    columns = [measure_values(entry, measure) for entry in entries]
    value_columns = [column for column in columns if column is not None]
    if len(value_columns) < len(columns) or len({len(column) for column in value_columns}) != 1:
        return None
    return np.column_stack(value_columns)


def corrected_on_board(board: BoardStatements, pair: tuple[int, int], measure: str) -> CorrectedP | None:
    """Return the board's corrected p-value for a pair with its best entry or its baseline.

    None for other or untested pairs. A comparison with the baseline is preferred, because the board shows it.
    """
    certainty = board.tests(measure)
    if certainty is None:
        return None
    for anchor, column, tests, family in (
        (certainty.baseline, "p_baseline_corrected", certainty.comparison_count, BASELINE_COMPARISONS),
        (certainty.best, "p_best_corrected", certainty.pair_count, BOARD_PAIRS),
    ):
        if anchor in pair and (certainty_of_other := certainty.entries.get(pair[1 - pair.index(anchor)])) is not None:
            p = getattr(certainty_of_other, column)
            if p is not None and tests > 1:
                return CorrectedP(p, tests, family, certainty_of_other.ranks)
    return None


#: Number of queries shown on which each system wins by the largest differences.
MAX_CLEAR_WINS = 10
#: Maximum number of queries drawn for an interval over all resamples, half a second of a core.
MAX_RESAMPLED_QUERIES = 10_000_000


class PairComparison(NamedTuple):
    """Query-by-query comparison of two systems.

    `differences` are the second system's values minus the first's, in the order of the judgments' queries.
    `first_wins` and `second_wins` are the queries with each system's largest leads, formatted for the page.
    """

    result: PairedResult
    differences: NDArray[np.float64]
    first_wins: list[dict[str, str]]
    second_wins: list[dict[str, str]]

    @property
    def interval(self) -> list[str]:
        """The difference of the means and the ends of its interval, as texts.

        They have an additional decimal if an end would otherwise be rounded to 0.
        """
        low, high = self.result.low, self.result.high
        decimals = numbers.DECIMALS + any(end and not round(end, numbers.DECIMALS) for end in (low, high))
        return [numbers.signed(value, decimals) for value in (self.result.difference, low, high)]


def compare_by_query(collection: OpenCollection, entries: Sequence[Entry], measure: str) -> PairComparison | None:
    """Compare the second of two entries with the first, query by query.

    Returns None if an entry has no values of the measure for exactly these queries. The p-value of the result is not
    meaningful, because only one permutation is drawn.
    """
    values = per_query_values(entries, measure)
    if values is None or len(values) != len(collection.judgements.query_ids):
        return None
    lower_is_better = better(measure) == "lower"
    first, second = values.T
    # The page shows the table's p-value, which is corrected over all pairs; this one is not used.
    result = compare_paired(
        second, first, permutations=1, resamples=_affordable_resamples(len(values)), lower_is_better=lower_is_better
    )
    differences = second - first
    gains = -differences if lower_is_better else differences
    order = np.argsort(-gains, kind="stable")
    win_rows = [row for row in order[:MAX_CLEAR_WINS].tolist() if gains[row] > 0]
    loss_rows = [row for row in order[::-1][:MAX_CLEAR_WINS].tolist() if gains[row] < 0]
    return PairComparison(
        result,
        differences,
        [_format_difference(collection, values, row) for row in loss_rows],
        [_format_difference(collection, values, row) for row in win_rows],
    )


def _affordable_resamples(queries: int) -> int:
    return max(1_000, min(RESAMPLES, MAX_RESAMPLED_QUERIES // queries))


class SlicedCell(NamedTuple):
    """A system's score over a slice, and its difference from the first system with a 95% interval, as texts.

    `direction` is the CSS class of a difference whose interval excludes 0, and empty for others. It has an outline,
    because intervals are not corrected.
    """

    system: str
    score: str
    difference: str
    interval: str
    direction: str


def compare_slices(
    collection: OpenCollection, entries: Sequence[Entry], measure: str
) -> list[tuple[QuerySlice, list[SlicedCell]]]:
    """Return each slice of the queries with a cell for each entry. Differences are from the first entry.

    Slices of few queries have no intervals. The list is empty if an entry has no values of the measure for exactly the
    judged queries.
    """
    dataset = collection.dataset
    slices = read_slices(dataset.current_qrels_id, dataset.tags_sha256).slices
    values = per_query_values(entries, measure)
    if values is None or len(values) != len(collection.judgements.query_ids) or not slices:
        return []
    resamples = _affordable_resamples(sum(queries.size for queries in slices))
    return [(queries, _sliced_cells(entries, values[queries.rows], measure, resamples)) for queries in slices]


def _sliced_cells(
    entries: Sequence[Entry], values: NDArray[np.float64], measure: str, resamples: int
) -> list[SlicedCell]:
    """Return the cells of one slice; `values` has the shape (queries, entries)."""
    means = values.mean(axis=0).tolist()
    bounds: list[tuple[float, float] | None] = [None] * len(entries)
    if len(values) >= MIN_TESTED:
        low, high = intervals(values - values[:, :1], resamples=resamples)
        bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    cells = []
    for entry, mean, ends in zip(entries, means, bounds, strict=True):
        difference = mean - means[0]
        interval = " to ".join(numbers.signed(end, numbers.DECIMALS) for end in ends or ())
        direction = f"{numbers.direction(difference, measure)} is-lost" if ends and ends[0] * ends[1] > 0 else ""
        score = numbers.format_value(mean, numbers.DECIMALS)
        cells.append(
            SlicedCell(entry.system.name, score, numbers.signed(difference, numbers.DECIMALS), interval, direction)
        )
    return cells


def _format_difference(collection: OpenCollection, values: NDArray[np.float64], row: int) -> dict[str, str]:
    """Return one query's text, address, values of both systems, and their difference, formatted for the page."""
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


def overlaps(collection: OpenCollection, entries: Sequence[Entry]) -> list[tuple[int, int, float, float]] | None:
    """Return each pair of entries, by position, with the mean number of shared documents and the mean Jaccard index.

    Top documents are compared. Means are over the judged queries for which at least one of the two has a document. A
    seed set is represented by its first seed. Returns None if a run has not been prepared for pages.
    """
    sets = []
    for entry in entries:
        run_documents = top_documents(first_run(entry), collection.excluded_sha256)
        if run_documents is None:
            return None
        judged_queries = set(collection.judgements.query_ids)
        drop = collection.dataset.drop_self_matches
        sets.append(
            {
                query: frozenset(displayed_documents(documents, query, depth=DEPTH, drop_self_matches=drop))
                for query, documents in run_documents
                if query in judged_queries
            }
        )
    pairs = []
    for first, second in combinations(range(len(sets)), 2):
        queries = sets[first].keys() | sets[second].keys()
        shared_count, similarity_sum = 0, 0.0
        for query in queries:
            first_documents, second_documents = (sets[number].get(query, frozenset()) for number in (first, second))
            common_count = len(first_documents & second_documents)
            shared_count += common_count
            similarity_sum += common_count / max(len(first_documents | second_documents), 1)
        pairs.append((first, second, shared_count / max(len(queries), 1), similarity_sum / max(len(queries), 1)))
    return pairs
