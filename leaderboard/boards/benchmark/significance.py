"""Tests over a whole benchmark, for its own measure; the only writer of `BenchmarkCertainty`.

Complete rows are compared with those of the same ranking. The rows scored by Runboard lead, followed by the largest
ranking of reported rows. Open judgments allow tests over queries; otherwise only published means are used, in tests
over datasets (`evaluation.statistics.benchmark`). Results are stored under a digest of their inputs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop as _
from numpy.typing import NDArray

from evaluation.statistics.benchmark import MIN_DATASETS, stack_queries, subset_intervals
from evaluation.statistics.comparison import intervals
from leaderboard.boards.benchmark.aggregates import Tables
from leaderboard.boards.benchmark.columns import MEAN, WINS, add_test_columns
from leaderboard.boards.columns.significance import (
    COLUMN_NAMES,
    INTERVAL,
    SignificanceColumns,
    describe_pair_tests,
)
from leaderboard.boards.model import BenchmarkFacts, Board, Cell, Member, Row
from leaderboard.models import BenchmarkCertainty, Dataset, Entry
from leaderboard.results.board_rows.entry_rows import CLOSED, SCORED, UNRANKED
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.board_rows.rows import NO_REVISION
from leaderboard.results.records import measure_values
from leaderboard.results.significance.computing import measure_certainty
from leaderboard.results.significance.statements import BoardStatements, ComparedBoard, differs
from leaderboard.results.significance.types import (
    ALPHA,
    METHOD,
    TEST_OVER_DATASETS,
    BoardCertainty,
    MeasureCertainty,
    TestSettings,
)

OVER_QUERIES = TestSettings(
    interval="percentile bootstrap, stratified by dataset",
    test="paired randomization test over the queries of all datasets",
)
OVER_DATASETS = TestSettings(interval="interval of subset means", test=TEST_OVER_DATASETS)


def settings_over_datasets(count: int) -> TestSettings | None:
    """Return the settings of tests over a number of datasets, None if these are too few for a test."""
    return OVER_DATASETS.with_count(count) if count >= MIN_DATASETS else None


@dataclass(frozen=True, slots=True)
class TestedRows:
    """Complete rows of one ranking that are tested together.

    `entries` has the ids of each row's results, and `scores` its scores, by counted dataset. `baseline` is the position
    of the baseline among the rows, and `closed` has the ids of closed APIs' rows. `settings` is None if there are too
    few datasets for a test.
    """

    measure: str
    ids: Sequence[int]
    entries: Sequence[Sequence[int]]
    scores: NDArray[np.float64]
    baseline: int | None
    closed: Sequence[int]
    settings: TestSettings | None

    @property
    def key(self) -> str:
        """Digest of all inputs."""
        return self._digest(self.settings)

    @property
    def earlier_key(self) -> str:
        """Key of results stored when tests over few datasets used random sign patterns; older permalinks need them."""
        return self._digest(OVER_DATASETS)

    def _digest(self, settings: TestSettings | None) -> str:
        inputs = [self.measure, self.entries, self.scores.tolist(), self.baseline, self.closed]
        inputs.append(settings and settings.as_dict())
        return f"{METHOD}:{blake2b(orjson.dumps(inputs), digest_size=16).hexdigest()}"


def find_tested_rows(facts: BenchmarkFacts, tables: Tables, rows: Sequence[Row]) -> list[TestedRows]:
    """Return the rows to test, by ranking; the leading ranking is first.

    Unranked rows and rankings with fewer than two complete rows are omitted. The list is empty if a view omits
    datasets. `rows` are the public rows of the benchmark's own measure, one per row of `tables`.
    """
    scores, baselines = tables.on_counted_datasets
    complete_rows = np.flatnonzero(~np.isnan(scores).any(axis=1)).tolist()
    if facts.left_out or facts.all_counted < 2:
        return []
    rankings = defaultdict[str, list[int]](list)
    for number in complete_rows:
        ranking = tables.rankings[number]
        if ranking not in UNRANKED:
            rankings[SCORED if ranking == CLOSED else ranking].append(number)
    rankings_to_test = []
    for ranking, numbers in sorted(rankings.items(), key=lambda item: (item[0] != SCORED, -len(item[1]))):
        if len(numbers) < 2:
            continue
        # A row is the baseline of all rows if it has their baseline's score on each dataset.
        is_baseline = [rows[each].entry.is_baseline and (baselines[numbers] == scores[each]).all() for each in numbers]
        is_open = ranking == SCORED and not any(member.facts.hidden for member in facts.counted)
        tested_rows = TestedRows(
            facts.measure,
            [rows[number].first_entry for number in numbers],
            [[rows[number].entries[column] for column in tables.counted_columns] for number in numbers],
            scores[numbers],
            next((row for row, is_row_baseline in enumerate(is_baseline) if is_row_baseline), None),
            [rows[number].first_entry for number in numbers if tables.kinds[number] == CLOSED],
            OVER_QUERIES if is_open else settings_over_datasets(len(facts.counted)),
        )
        rankings_to_test.append(tested_rows)
    return rankings_to_test


#: Scopes of tests, by the name of the test.
_SCOPES = {OVER_QUERIES.test: _("over queries of these datasets"), OVER_DATASETS.test: _("over datasets")}
#: Note on a board or permalink whose tests have not been computed.
UNTESTED_NOTE = _("Tests over the benchmark have not been computed yet for these results.")
TOO_FEW_NOTE = _(
    "Differences of means are not tested. A test over datasets needs at least six, because its smallest p-value is "
    "2 / 2ⁿ for n datasets; a test over queries needs results with per-query scores and open judgments on all datasets."
)


def _describe_tests(tests: Sequence[MeasureCertainty], settings: TestSettings, baseline: str) -> str:
    """Return the note on the tests of rankings that were tested with the same settings."""
    test = f"two-sided {settings.test}, {settings.describe_patterns(settings.permutations)}"
    if settings.test == OVER_QUERIES.test:
        return (
            "Tests over queries test whether a difference of means would hold for other queries on these datasets. "
            f"Intervals: {settings.interval}, {tests[0].queries:,} queries, {settings.resamples:,} resamples. p vs "
            f"{baseline}: {test}; each dataset has the same weight."
        )
    datasets, comparisons = tests[0].queries, [each.comparison_count for each in tests if each.comparison_count]
    text = (
        "Tests over datasets test whether a difference of means would hold on other datasets like these. They use "
        f"published means only. Intervals: {settings.interval} of the {datasets} datasets (Hartigan, 1969). p "
        f"vs {baseline}: {test}."
    )
    smallest_p, at_least = 2 / 2**datasets, "at least " if len(set(comparisons)) > 1 else ""
    if comparisons and smallest_p * min(comparisons) >= ALPHA:
        text += (
            f" With {datasets} datasets, p is at least {smallest_p:.3f}, so no difference from {baseline} is "
            f"significant after {settings.correction} correction for {at_least}{min(comparisons)} comparisons. "
            f"Tests of all pairs use {settings.pairs_correction}, which may separate a system from {baseline}."
        )
    return text


def read_tests(tests: Sequence[TestedRows], facts: BenchmarkFacts) -> list[BoardCertainty]:
    """Return the results of tests stored no later than the datasets' revisions, in the order of `tests`."""
    if not tests:
        return []
    times = [member.revision.at for member in facts.members]
    keys = [(key := each.key, key if each.settings == OVER_QUERIES else each.earlier_key) for each in tests]
    stored = BenchmarkCertainty.objects.filter(key__in=[key for pair in keys for key in pair])
    if NO_REVISION.at not in times:
        stored = stored.filter(computed_at__lte=max(times))
    by_key = {row.key: row for row in stored}
    certainties = []
    for each, (key, earlier_key) in zip(tests, keys, strict=True):
        row = by_key.get(key) or by_key.get(earlier_key)
        if row is not None:
            baseline = None if each.baseline is None else each.ids[each.baseline]
            settings, content = TestSettings(**row.settings), {each.measure: row.content}
            certainties.append(BoardCertainty(0, row.key, "", 0, row.computed_at, settings, True, baseline, content))
    return certainties


def add_tests(board: Board, facts: BenchmarkFacts, tests: Sequence[TestedRows]) -> tuple[Board, Sequence[str]]:
    """Return the board with the stored results of tests over the benchmark, and the notes on them.

    Each ranking of `tests` has its own results. The board's statements are those of the first one that has any.
    """
    testable = [tested_rows for tested_rows in tests if tested_rows.settings is not None]
    certainties = read_tests(testable, facts)
    notes = [UNTESTED_NOTE] if len(certainties) < len(testable) else []
    if len(testable) < len(tests):
        notes.append(TOO_FEW_NOTE)
    if not certainties:
        pending_columns = frozenset(COLUMN_NAMES) - {INTERVAL, WINS} if testable else board.pending_columns
        return replace(board, pending_columns=pending_columns), notes
    results = [each for certainty in certainties if (each := certainty.for_measure(board.measure)) is not None]
    by_entry = {entry: certainty for each in results for entry, certainty in each.entries.items()}
    for row in board.rows:
        row.certainty = by_entry.get(row.first_entry)
        row.differs = differs(row.certainty)
        if row.certainty is not None:
            row[MEAN] = Cell(row.value(MEAN), interval=(row.certainty.low, row.certainty.high))
    by_settings = defaultdict[TestSettings, list[MeasureCertainty]](list)
    for certainty, result in zip(certainties, results, strict=True):
        by_settings[certainty.settings].append(result)
    # Columns are named after all tests, and exist if any ranking has a baseline.
    leading = max(certainties, key=lambda certainty: certainty.baseline is not None)
    settings = replace(
        leading.settings,
        interval=" or ".join(each.interval for each in by_settings),
        test=" or ".join(each.test for each in by_settings),
    )
    leading = replace(leading, settings=settings)
    columns = SignificanceColumns.for_measure(leading, board.measure, board.baseline, "ranking")
    board = replace(
        board,
        columns=add_test_columns(board.columns, board.rows, columns),
        certainty=certainties[0],
        statements=BoardStatements(certainties[0], other_rankings=certainties[1:]),
        compared=sum(result.comparison_count for result in results),
        tested_over=_SCOPES[certainties[0].settings.test],
    )
    notes += [_describe_tests(each, settings, board.baseline) for settings, each in by_settings.items()]
    if len(results) > 1:
        notes.append(_("Rows are tested only against rows of the same source and dataset versions."))
    return board, [*notes, describe_pair_tests(list(by_settings), "ranking")]


#: Settings of tests, and their results as stored.
Analysis = tuple[TestSettings, Mapping[str, Any]]


def analyse_tests(tests: TestedRows, parts: Mapping[int, Sequence[int]], facts: BenchmarkFacts) -> Analysis:
    """Compute the tests of a benchmark, which must have `settings`.

    `parts` maps a composite entry's id to the ids of the entries that it averages.
    """
    settings = tests.settings
    assert settings is not None
    values, strata = tests.scores.T, list[int]()
    if settings == OVER_QUERIES:
        values, strata = _read_queries(tests, parts, facts.counted)
        settings = settings.with_count(len(values))
    bounds = []
    for columns in (values, values[:, :0] if tests.baseline is None else values - values[:, [tests.baseline]]):
        if strata:
            bounds.append(intervals(columns, resamples=settings.resamples, seed=settings.seed, strata=strata))
        else:
            bounds.append(subset_intervals(columns, seed=settings.seed))
    baseline = None if tests.baseline is None else tests.ids[tests.baseline]
    board = ComparedBoard(0, "", tests.ids, baseline, [tests.measure], tests.closed)
    return settings, measure_certainty(tests.measure, tests.ids, values, board, *bounds).as_dict()


def _read_queries(
    tests: TestedRows, parts: Mapping[int, Sequence[int]], members: Sequence[Member]
) -> tuple[NDArray[np.float64], list[int]]:
    """Return the weighted values of all queries, and the number of queries of each dataset or part of one."""
    values, weights = list[NDArray[np.float64]](), list[float]()
    for member, entries in zip(members, zip(*tests.entries, strict=True), strict=True):
        strata = list(zip(*(parts.get(entry, (entry,)) for entry in entries), strict=True))
        for ids in strata:
            values.append(np.column_stack(list(_read_columns(ids, member.measure(tests.measure)))))
            weights.append(1 / (len(members) * len(strata)))
    return stack_queries(values, weights), list(map(len, values))


def _read_columns(ids: Sequence[int], measure: str) -> Iterator[NDArray[np.float64]]:
    """Yield the per-query values of entries of one dataset, in the order of their ids."""
    entries = Entry.objects.filter(pk__in=ids).select_related("evaluation").prefetch_related("seeds__evaluation")
    columns = {entry.pk: measure_values(entry, measure) for entry in entries.iterator(chunk_size=50)}
    for pk in ids:
        column = columns[pk]
        assert column is not None  # The row's score is the mean of these values.
        yield column


@transaction.atomic
def store_tests(dataset: Dataset, analyses: Mapping[str, Analysis]) -> int:
    """Store results by key under a new revision of one of the datasets, and return the number of new ones."""
    lock_board(dataset.pk)
    known_keys = set(BenchmarkCertainty.objects.filter(key__in=analyses).values_list("key", flat=True))
    now = timezone.now()
    new_rows = [
        BenchmarkCertainty(key=key, settings=settings.as_dict(), content=content, computed_at=now)
        for key, (settings, content) in analyses.items()
        if key not in known_keys
    ]
    if new_rows:
        BenchmarkCertainty.objects.bulk_create(new_rows)
        board_changed(dataset, Kind.CERTAINTY, row_entries=())
    return len(new_rows)
