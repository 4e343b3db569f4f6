"""What the site tells of results over hidden judgements, without a site: the policy, the Ladder, the daily budget.

The rules themselves are the site's (`evaluation.statistics.ladder`, `evaluation.judgements.splits`); what is modelled
is who counts as one, what waits, and when it is told. `test_campaign` plays the same submissions through the site.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.splits import QueryParts, draw_parts
from evaluation.statistics.gap import STEP as MIN_STEP
from evaluation.statistics.gap import Interval, compute_gap, least_difference, published_interval
from evaluation.statistics.ladder import PUBLIC_STEP, RESPONSE_STEP, needed_gain, paired_standard_error
from leaderboard.results.significance.types import ALPHA
from tests.attack.prober import QUERIES

Values = NDArray[np.float64]
#: Decimals of a hidden dataset's published values, and of those that nobody rounds.
DECIMALS, FULL = 3, 15
#: Measures that a hidden dataset shows, by default and at most.
MEASURES = 3
#: The share of a competition's judged queries that its board shows.
SHARE = 1 / 3


@dataclass(frozen=True)
class Rules:
    """Which protections are on; by default all, and nobody has approved the teams.

    `ladder`: of every team in a competition, of young teams elsewhere, results are disclosed that beat what they know.
    `one_party`: teams that nobody `approved` count as one. `baseline`: a competition's first results, and further ones
    of young teams, are compared with the baseline. `wide`: further results of young teams have a larger step to take,
    `tries`: and one that grows with what they have tried. `coarse`: a competition tells steps, and other datasets
    measures beside the primary one. `primary_alone`: a competition tells no such measures. `budget`: number of
    results disclosed per day, None: all.
    `certainty`: the least significant difference is disclosed, and whether each disclosed result is better than BM25.
    `gap`: the dataset is the hidden half of a twin, and the contamination gap of each result is disclosed, too.
    `tests`: this by a test of its per-query values, which the site does not do.
    `slices`: number of known parts of the queries whose means each result discloses. The site does not disclose such
    means. `measure`: the primary one.
    """

    competition: bool
    rounding: bool = True
    ladder: bool = True
    approved: bool = False
    one_party: bool = True
    baseline: bool = True
    wide: bool = True
    coarse: bool = True
    primary_alone: bool = True
    tries: bool = True
    budget: int | None = 6
    certainty: bool = True
    gap: bool = True
    tests: bool = False
    slices: int = 0
    measure: str = "nDCG@10"

    @property
    def step(self) -> float:
        """The steps in which values are published."""
        if not self.rounding:
            return 10.0**-FULL
        return PUBLIC_STEP if self.competition and self.coarse else 10.0**-DECIMALS

    @property
    def further(self) -> list[float]:
        """The steps in which each measure is told that is shown beside the primary one, by default and at most."""
        if self.competition and self.primary_alone:
            return []
        step = RESPONSE_STEP if self.measure == "EM" and not self.competition else PUBLIC_STEP
        step = step if self.rounding and self.coarse else self.step
        return [step] * (MEASURES - 1)

    def published(self, value: float) -> float:
        """A mean as it is published."""
        return round(round(value / self.step) * self.step, FULL)


def before(*, competition: bool, measure: str = "nDCG@10") -> Rules:
    """The protections of the release before: the Ladder in competitions alone, by team, and first results for free."""
    return Rules(
        competition, ladder=competition, one_party=False, baseline=False, wide=False, coarse=False,
        primary_alone=False, tries=False, certainty=False, gap=False,
        budget=None, measure=measure,
    )  # fmt: skip


@dataclass(eq=False)
class Result:
    """A result of a team: what the board would show of it, and when it was told; None: it was not.

    `needed` is what it had to exceed when that was decided, None while it waits.
    """

    team: int
    day: int
    shown: Values
    score: float
    told_on: int | None = None
    needed: float | None = None


@dataclass
class Board:
    """One hidden dataset. `public`: which judged queries it shows, `baseline`: BM25's values, both (QUERIES,)."""

    rules: Rules
    public: NDArray[np.bool_]
    baseline: Values
    day: int = 0
    results: list[Result] = field(default_factory=list)
    waiting: list[Result] = field(default_factory=list)

    def submit(self, team: int, values: Values) -> Result:
        """Score a run; `told_on` of the result says whether it is told now, `waiting` whether later."""
        shown = values[self.public]
        result = Result(team, self.day, shown, self.rules.published(float(shown.mean())))
        if self.waiting or self._spent():
            self.waiting.append(result)
        else:
            self._decide(result)
        self.results.append(result)
        return result

    def next_day(self) -> list[Result]:
        """Midnight: what waited is decided as far as the new day's budget goes; what was decided then."""
        self.day += 1
        had = Counter(each.team for each in self.results if each.told_on is not None)
        decided = []
        while self.waiting and not self._spent():
            result = min(self.waiting, key=lambda each: had[each.team])
            self.waiting.remove(result)
            self._decide(result)
            had[result.team] += result.told_on is not None
            decided.append(result)
        return decided

    def needed(self, team: int, shown: Values) -> float:
        """What a result with these values has to exceed to be told; minus infinity: it is told in any case."""
        if not self.rules.ladder:
            return -np.inf
        party = [each for each in self.results if self._same_party(each.team, team) and each.shown is not shown]
        known = [(each.score, each.shown) for each in party if each.told_on is not None]
        is_young = bool(known) and self.rules.wide
        if self.rules.baseline and (self.rules.competition or is_young):
            reference = self.baseline[self.public]
            known.append((self.rules.published(float(reference.mean())), reference))
        if not known:
            return -np.inf
        score, best = max(known, key=lambda each: each[0])
        tries = len(party) if self.rules.tries else 0
        return score + needed_gain(paired_standard_error(shown, best), tries=tries, is_young=is_young)

    @property
    def least_difference(self) -> float:
        """The least significant difference to BM25, as it is told."""
        step = PUBLIC_STEP if self.rules.competition else MIN_STEP
        return least_difference(self.baseline[self.public], alpha=ALPHA, step=step)

    def is_better(self, result: Result) -> bool:
        """Whether a told result is told to be better than BM25."""
        gain = result.score - self.rules.published(float(self.baseline[self.public].mean()))
        return gain >= self.least_difference - 1e-9

    def has_gap(self, result: Result, public: Interval) -> bool:
        """Whether a told result's gap is shown, which gains so much on the open half."""
        gain = result.score - self.rules.published(float(self.baseline[self.public].mean()))
        hidden = published_interval(gain, self.least_difference, self.rules.step)
        return compute_gap(public, hidden).low > 0

    def _decide(self, result: Result) -> None:
        result.needed = self.needed(result.team, result.shown)
        if result.score > result.needed + 1e-9:
            result.told_on = self.day

    def _same_party(self, one: int, other: int) -> bool:
        return one == other or (self.rules.one_party and not self.rules.approved)

    def _spent(self) -> bool:
        budget = self.rules.budget
        return budget is not None and sum(each.told_on == self.day for each in self.results) >= budget


def secret(number: int) -> bytes:
    """What draws split `number`."""
    return hashlib.sha256(f"split {number}".encode()).digest()


def public_part(totals: NDArray[np.int64], share: float, split: int) -> NDArray[np.bool_]:
    """Return whether each query is public in a split, for queries with these numbers of relevant documents."""
    relevant = {f"q{query}": int(total) for query, total in enumerate(totals)}
    drawn = draw_parts(relevant, share, QueryParts(secret(split), {}))
    return drawn.mask(list(relevant))


def everything() -> NDArray[np.bool_]:
    """The judged queries that a board shows under the standard policy."""
    return np.ones(QUERIES, bool)
