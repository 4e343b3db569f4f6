"""What was found of a board, as pages use it and as the database keeps it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import comb
from typing import Any, NamedTuple

from evaluation.statistics.comparison import INTERVAL, RESAMPLES
from evaluation.statistics.randomisation import (
    CORRECTION,
    PAIRS_CORRECTION,
    PATTERNS,
    PERMUTATIONS,
    SEED,
    TEST,
)
from leaderboard.core.measures import better

#: Counts the changes of how anything here is computed: boards are computed anew under another one.
METHOD = "2"
#: Tests below it are significant, after correction.
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class TestSettings:
    """How it was computed: what a caption has to say. The same seed serves every board, so anyone can repeat it."""

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
        """As plain values."""
        return asdict(self)


class EntryCertainty(NamedTuple):
    """What was found of one entry under one measure.

    Its own facts depend on it and the baseline alone, and stay when others submit: `low` and `high`, the ends of the
    interval of its score; `delta`, the mean of its differences to the baseline by query, `delta_low` and `delta_high`,
    the ends of its interval; `p_baseline`, uncorrected; `wins`, `ties` and `losses`, numbers of queries against the
    baseline. All but the first two are None for the baseline itself, and without one.

    What depends on the whole board: `p_best`, the uncorrected p-value against the best; both p-values corrected, over
    the tests against the baseline and over all pairs of the board; and between which ranks it lies, None for a system
    that is ranked apart.

    `without_own` is its score without the documents that are judged because of its team alone; None where that fed no
    pool, and for all measures but the primary one.
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
    rank_low: int | None = None
    rank_high: int | None = None

    @property
    def delta_interval(self) -> tuple[float, float] | None:
        """The interval of its difference to the baseline."""
        if self.delta_low is None or self.delta_high is None:
            return None
        return self.delta_low, self.delta_high

    @property
    def ranks(self) -> tuple[int, int] | None:
        """The first and the last rank that the tests of all pairs leave open."""
        return None if self.rank_low is None or self.rank_high is None else (self.rank_low, self.rank_high)

    @property
    def ties_with_best(self) -> bool | None:
        """Whether it may be the best."""
        return None if self.rank_low is None else self.rank_low == 1

    def as_data(self, settings: TestSettings) -> dict[str, Any]:
        """As plain values for exports, with whether p-values are bounds: below what the permutations can show."""
        least = 1 / (settings.permutations + 1)
        return {
            **self._asdict(),
            "p_baseline_is_bound": self.p_baseline is not None and self.p_baseline < least,
            "p_best_is_bound": self.p_best is not None and self.p_best < least,
        }

    def own_facts(self, *, same_baseline: bool) -> EntryCertainty:
        """What still holds when the board has other entries by now, and the same baseline or another one."""
        if not same_baseline:
            return EntryCertainty(self.low, self.high, without_own=self.without_own)
        return self._replace(
            p_baseline_corrected=None, p_best=None, p_best_corrected=None, rank_low=None, rank_high=None
        )


@dataclass(frozen=True, slots=True)
class MeasureCertainty:
    """What was found of one measure: by the ids of the entries.

    `best` has the highest mean of those that are ranked together. `queries` are those judged.
    """

    measure: str
    queries: int
    baseline: int | None
    best: int | None
    entries: Mapping[int, EntryCertainty]
    #: Why no score is known without the documents of single teams, though these fed a pool.
    pool_gone: str = ""
    #: What boards say of entries, by what they were compared with and by entry: made once, for thousands of cells.
    said: dict[str, dict[int, tuple[EntryCertainty, str, bool]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def of(self, entry: int) -> EntryCertainty | None:
        """What was found of an entry, None where nothing was."""
        return self.entries.get(entry)

    @property
    def comparisons(self) -> int:
        """Number of tests against the baseline, which are corrected together."""
        return sum(one.p_baseline is not None for one in self.entries.values())

    @property
    def pairs(self) -> int:
        """Number of pairs, which are corrected together."""
        return comb(len(self.entries), 2)

    def own_facts(self, baseline: int | None) -> MeasureCertainty:
        """What each entry's own facts are on a board that has other entries by now, and this baseline."""
        same = self.baseline is not None and self.baseline == baseline
        entries = {entry: found.own_facts(same_baseline=same) for entry, found in self.entries.items()}
        against = baseline if same else None
        return MeasureCertainty(self.measure, self.queries, against, None, entries, self.pool_gone)

    def as_dict(self) -> dict[str, Any]:
        """As the database keeps it: a list for each field, one place for each entry."""
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
    def from_dict(cls, measure: str, kept: Mapping[str, Any]) -> MeasureCertainty:
        """From what the database keeps. Fields that an earlier method did not have are None."""
        if "raw_p_baseline" in kept:
            kept = cls._from_method_1(kept)
        none = [None] * len(kept["entries"])
        columns = (kept.get(name, none) for name in EntryCertainty._fields)
        found = map(EntryCertainty._make, zip(*columns, strict=True))
        entries = dict(zip(kept["entries"], found, strict=True))
        gone = kept.get("pool_gone", "")
        return cls(measure, kept["queries"], kept["baseline"], kept["best"], entries, gone)

    @staticmethod
    def _from_method_1(kept: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the first method kept, under the present names, without its groups and tests against the best.

        Those tests were corrected for one family, though the best had been chosen by the same numbers.
        """
        names = ("queries", "entries", "low", "high", "wins", "ties", "losses", "baseline")
        return {
            **{name: kept[name] for name in names},
            "best": kept["anchors"].get("a"),
            "p_baseline": kept["raw_p_baseline"],
            "p_baseline_corrected": kept["p_baseline"],
        }


@dataclass(frozen=True, slots=True)
class BoardCertainty:
    """What was found of a board, by measure.

    It is dated by `from_revision`, the revision of the board that brought it, and `computed_at`. Where it is not
    `current`, the board has other entries by now: what depends on the whole board is left out until it is found for the
    present one. Each entry's own facts stay; those against the baseline, where `baseline` still is the one they were
    found with.
    """

    dataset: int
    key: str
    comparison_group: str
    from_revision: int
    computed_at: datetime.datetime
    settings: TestSettings
    current: bool
    baseline: int | None
    #: Measure → as `MeasureCertainty.as_dict` makes it.
    content: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _read: dict[str, MeasureCertainty] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def measures(self) -> list[str]:
        """Of which measures something was found."""
        return list(self.content)

    def of(self, measure: str) -> MeasureCertainty | None:
        """What was found of a measure, None where nothing was."""
        if measure not in self.content:
            return None
        if measure not in self._read:
            found = MeasureCertainty.from_dict(measure, self.content[measure])
            self._read[measure] = found if self.current else found.own_facts(self.baseline)
        return self._read[measure]


class Verdict(NamedTuple):
    """What the corrected tests of one measure tell, by the ids of entries.

    `best` has the highest mean, `ties` are the others that may be the best: their ranks begin with 1. Of the `compared`
    ones with the baseline, `better` are better and `worse` are worse. Systems that are ranked apart do not count.
    """

    best: int
    ties: frozenset[int]
    baseline: int | None
    compared: int
    better: frozenset[int]
    worse: frozenset[int]
    revision: int
    at: datetime.datetime


def verdict_of(board: BoardCertainty, measure: str) -> Verdict | None:
    """The verdict on one measure; None where the board has changed since, and where nothing or no rank was found."""
    found = board.of(measure)
    if found is None or found.best is None or not board.current:
        return None
    ranked = {entry: one for entry, one in found.entries.items() if one.rank_low is not None}
    if not ranked:
        return None
    sign = -1 if better(measure) == "lower" else 1
    compared = [entry for entry, one in ranked.items() if one.p_baseline_corrected is not None]
    apart = {
        entry: sign * (ranked[entry].delta or 0)
        for entry in compared
        if (ranked[entry].p_baseline_corrected or 0) < board.settings.alpha
    }
    return Verdict(
        best=found.best,
        ties=frozenset(entry for entry, one in ranked.items() if one.rank_low == 1 and entry != found.best),
        baseline=found.baseline,
        compared=len(compared),
        better=frozenset(entry for entry, delta in apart.items() if delta > 0),
        worse=frozenset(entry for entry, delta in apart.items() if delta < 0),
        revision=board.from_revision,
        at=board.computed_at,
    )
