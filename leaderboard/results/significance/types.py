"""Data types for the significance of a board's differences, as used by pages and stored in the database."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import comb
from typing import Any, NamedTuple

from evaluation.statistics.comparison import INTERVAL, RESAMPLES
from evaluation.statistics.randomisation import (
    CORRECTION,
    MAX_EXACT,
    PAIRS_CORRECTION,
    PATTERNS,
    PERMUTATIONS,
    SEED,
    TEST,
)
from leaderboard.core.measures import better

#: Version of the computation; increasing it recomputes all boards.
METHOD = "3"
#: Significance level, after correction.
ALPHA = 0.05
#: Name of the test that needs no per-query values, on boards of benchmarks.
TEST_OVER_DATASETS = "sign-flip test over datasets"


@dataclass(frozen=True, slots=True)
class TestSettings:
    """Parameters of the intervals and tests, shown in captions. The fixed seed makes every board reproducible."""

    interval: str = INTERVAL
    level: float = 0.95
    resamples: int = RESAMPLES
    test: str = TEST
    permutations: int = PERMUTATIONS
    seed: int = SEED
    correction: str = CORRECTION
    pairs_correction: str = PAIRS_CORRECTION
    pairs_permutations: int = PATTERNS
    alpha: float = ALPHA

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def tested_over(self) -> str:
        """Items that the test against the baseline compares: queries or datasets."""
        return "datasets" if self.test == TEST_OVER_DATASETS else "queries"

    @property
    def is_exact(self) -> bool:
        """Whether the tests use all sign patterns, against the baseline and for pairs."""
        return self.permutations == self.pairs_permutations <= 2**MAX_EXACT and self.permutations.bit_count() == 1

    def least_p(self, comparisons: int) -> tuple[float, str]:
        """Return the smallest possible p-value after correction for the comparisons, and the number of tested items.

        The p-value is 0 and the number empty if it is below `alpha`, or if the tests are not exact. The two most
        extreme of all sign patterns have the same p-value, and Holm's correction multiplies the smallest one by the
        number of comparisons.
        """
        p = min(1.0, comparisons * 2 / self.permutations) if self.is_exact else 0.0
        return (p, f"{self.permutations.bit_length() - 1} {self.tested_over}") if p >= self.alpha else (0.0, "")

    def with_count(self, count: int) -> TestSettings:
        """Return the settings of tests over this number of queries or datasets. Few of them have exact tests."""
        return replace(self, permutations=2**count, pairs_permutations=2**count) if count <= MAX_EXACT else self

    def describe_patterns(self, permutations: int) -> str:
        """Return `10,000 permutations, seed 1`, or `all 128 sign patterns` for exact tests."""
        random_patterns = f"{permutations:,} permutations, seed {self.seed}"
        return f"all {permutations:,} sign patterns" if self.is_exact else random_patterns


def is_lost_by_correction(p: float | None, p_corrected: float | None, ranks: tuple[int, int] | None) -> bool:
    """Return whether a difference is significant in its own test, but not after correction.

    `ranks` is the range of possible ranks, None if unknown. The result is False for a single possible rank: the tests
    of all pairs, which are also corrected, separate such an entry from all others.
    """
    low, high = ranks or (0, 1)
    return p is not None and p_corrected is not None and p < ALPHA <= p_corrected and low < high


class EntryCertainty(NamedTuple):
    """Significance of one entry under one measure.

    These fields depend only on the entry and the baseline, and do not change when others submit:
        low, high: Ends of the score's interval.
        delta, delta_low, delta_high: Mean per-query difference from the baseline, and the ends of its interval.
        p_baseline: Uncorrected p-value of that difference.
        wins, ties, losses: Numbers of queries compared with the baseline.
        without_own: Score without the documents that are judged only because of its team; None if the team fed no
            pool, and for all measures except the primary one.

    All of them except `low`, `high`, and `without_own` are None for the baseline itself, and without a baseline.

    These depend on the whole board:
        p_baseline_corrected: Corrected over the tests against the baseline.
        p_best, p_best_corrected: Against the best; corrected over all pairs of the board.
        p_next: Against the next system by score, corrected over all pairs; None for the last one.
        rank_low, rank_high: Range of possible ranks; None for systems that are ranked separately.
    """

    low: float
    high: float
    delta: float | None = None
    delta_low: float | None = None
    delta_high: float | None = None
    p_baseline: float | None = None
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    p_baseline_corrected: float | None = None
    p_best: float | None = None
    p_best_corrected: float | None = None
    without_own: float | None = None
    p_next: float | None = None
    rank_low: int | None = None
    rank_high: int | None = None

    @property
    def is_separable_from_next(self) -> bool:
        """Whether the tests of all pairs separate the entry from the next one by score."""
        return self.p_next is not None and self.p_next < ALPHA

    @property
    def delta_interval(self) -> tuple[float, float] | None:
        """Interval of the difference from the baseline."""
        if self.delta_low is None or self.delta_high is None:
            return None
        return self.delta_low, self.delta_high

    @property
    def is_lost_by_correction(self) -> bool:
        """Whether the difference from the baseline is significant in the entry's own test, but not after correction."""
        return is_lost_by_correction(self.p_baseline, self.p_baseline_corrected, self.ranks)

    @property
    def ranks(self) -> tuple[int, int] | None:
        """First and last rank that the tests of all pairs cannot rule out."""
        return None if self.rank_low is None or self.rank_high is None else (self.rank_low, self.rank_high)

    @property
    def ties_with_best(self) -> bool | None:
        """Whether the tests of all pairs do not separate the entry from the best; None if it has no rank range."""
        if self.rank_low is None:
            return None
        return self.p_best_corrected is None or self.p_best_corrected >= ALPHA

    def as_data(self, settings: TestSettings) -> dict[str, Any]:
        """Return plain values for exports, with the kind of test and flags for p-values that are only upper bounds.

        A p-value is a bound if it is below the smallest one that the permutations can show.
        """
        smallest_p = 1 / (settings.permutations + 1)
        return {
            **self._asdict(),
            "test": settings.test,
            "tested_over": settings.tested_over,
            "p_baseline_is_bound": self.p_baseline is not None and self.p_baseline < smallest_p,
            "p_best_is_bound": self.p_best is not None and self.p_best < smallest_p,
        }

    def own_facts(self, *, same_baseline: bool) -> EntryCertainty:
        """Return a copy without the fields that depend on other entries.

        If `same_baseline` is false, the comparison with the baseline is removed, too.
        """
        if not same_baseline:
            return EntryCertainty(self.low, self.high, without_own=self.without_own)
        return self._replace(
            p_baseline_corrected=None, p_best=None, p_best_corrected=None, rank_low=None, rank_high=None, p_next=None
        )


@dataclass(frozen=True, slots=True)
class MeasureCertainty:
    """Significance under one measure, by entry id.

    `best` has the best mean among the systems that are ranked together. `queries` is the number of judged queries.
    """

    measure: str
    queries: int
    baseline: int | None
    best: int | None
    entries: Mapping[int, EntryCertainty]
    #: Reason for missing leave-one-team-out scores, although teams fed a pool.
    pool_gone: str = ""
    #: Cache of entry statements for the thousands of cells of a board, by comparison and entry.
    cell_statements: dict[str, dict[int, tuple[EntryCertainty, str, bool]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def comparison_count(self) -> int:
        """Number of tests against the baseline, which are corrected together."""
        return sum(certainty.p_baseline is not None for certainty in self.entries.values())

    @property
    def pair_count(self) -> int:
        """Number of pairs, which are corrected together."""
        return comb(len(self.entries), 2)

    def own_facts(self, baseline: int | None) -> MeasureCertainty:
        """Return a copy for a changed board with this baseline, without the fields that depend on the whole board.

        Comparisons with the baseline remain only if it is the same. `best` is None.
        """
        same_baseline = self.baseline is not None and self.baseline == baseline
        entries = {entry: certainty.own_facts(same_baseline=same_baseline) for entry, certainty in self.entries.items()}
        valid_baseline = baseline if same_baseline else None
        return MeasureCertainty(self.measure, self.queries, valid_baseline, None, entries, self.pool_gone)

    def as_dict(self) -> dict[str, Any]:
        """Return the columnar form that the database stores: one list per field, one position per entry."""
        columns = zip(*self.entries.values(), strict=True)
        return {
            "queries": self.queries,
            "baseline": self.baseline,
            "best": self.best,
            "pool_gone": self.pool_gone,
            "entries": list(self.entries),
            **{name: list(column) for name, column in zip(EntryCertainty._fields, columns, strict=True)},
        }

    @classmethod
    def from_dict(cls, measure: str, content: Mapping[str, Any]) -> MeasureCertainty:
        """Build an instance from its stored form; fields that an earlier method lacked are None."""
        if "raw_p_baseline" in content:
            content = cls._from_method_1(content)
        missing_column = [None] * len(content["entries"])
        columns = (content.get(name, missing_column) for name in EntryCertainty._fields)
        certainties = map(EntryCertainty._make, zip(*columns, strict=True))
        entries = dict(zip(content["entries"], certainties, strict=True))
        pool_gone = content.get("pool_gone", "")
        return cls(measure, content["queries"], content["baseline"], content["best"], entries, pool_gone)

    @staticmethod
    def _from_method_1(content: Mapping[str, Any]) -> dict[str, Any]:
        """Convert content of the first method, dropping its groups and its tests against the best.

        These tests were corrected for one family only, although the best had been chosen by the same numbers.
        """
        names = ("queries", "entries", "low", "high", "wins", "ties", "losses", "baseline")
        return {
            **{name: content[name] for name in names},
            "best": content["anchors"].get("a"),
            "p_baseline": content["raw_p_baseline"],
            "p_baseline_corrected": content["p_baseline"],
        }


@dataclass(frozen=True, slots=True)
class BoardCertainty:
    """Significance of a board, by measure.

    `from_revision` is the board revision that stored it, and `computed_at` its time. If it is not `current`, the board
    has other entries by now, and fields that depend on the whole board are omitted until they are recomputed. Each
    entry's own fields remain, including comparisons with the baseline if `baseline` has not changed.
    """

    dataset: int
    key: str
    comparison_group: str
    from_revision: int
    computed_at: datetime.datetime
    settings: TestSettings
    current: bool
    baseline: int | None
    #: Measure → stored form, see `MeasureCertainty.as_dict`.
    content: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _decoded: dict[str, MeasureCertainty] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def measures(self) -> list[str]:
        return list(self.content)

    def for_measure(self, measure: str) -> MeasureCertainty | None:
        """Return the significance under a measure, or None if it was not computed."""
        if measure not in self.content:
            return None
        if measure not in self._decoded:
            certainty = MeasureCertainty.from_dict(measure, self.content[measure])
            self._decoded[measure] = certainty if self.current else certainty.own_facts(self.baseline)
        return self._decoded[measure]


class Verdict(NamedTuple):
    """Outcome of the corrected tests of one measure, with entry ids.

    `best` has the best mean, and `ties` are the other entries that may be the best (first possible rank 1). `compared`
    is the number of entries tested against the baseline; `better` and `worse` are those that differ significantly.
    Systems that are ranked separately do not count.
    """

    best: int
    ties: frozenset[int]
    baseline: int | None
    compared: int
    better: frozenset[int]
    worse: frozenset[int]
    revision: int
    at: datetime.datetime


def get_verdict(board: BoardCertainty, measure: str) -> Verdict | None:
    """Return the verdict on one measure, or None if it was not computed, is outdated, or ranks no entry."""
    tests = board.for_measure(measure)
    if tests is None or tests.best is None or not board.current:
        return None
    ranked_entries = {entry: certainty for entry, certainty in tests.entries.items() if certainty.rank_low is not None}
    if not ranked_entries:
        return None
    sign = -1 if better(measure) == "lower" else 1
    compared_ids = [entry for entry, certainty in ranked_entries.items() if certainty.p_baseline_corrected is not None]
    significant_deltas = {
        entry: sign * (ranked_entries[entry].delta or 0)
        for entry in compared_ids
        if (ranked_entries[entry].p_baseline_corrected or 0) < board.settings.alpha
    }
    return Verdict(
        best=tests.best,
        ties=frozenset(
            entry for entry, certainty in ranked_entries.items() if certainty.rank_low == 1 and entry != tests.best
        ),
        baseline=tests.baseline,
        compared=len(compared_ids),
        better=frozenset(entry for entry, delta in significant_deltas.items() if delta > 0),
        worse=frozenset(entry for entry, delta in significant_deltas.items() if delta < 0),
        revision=board.from_revision,
        at=board.computed_at,
    )
