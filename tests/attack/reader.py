"""Several accounts that work together and read hidden judgements off whatever they are told.

Stronger than any that is likely: it knows each query's number of relevant documents and how an honest run's documents
are relevant on the whole, and gets the threshold that a result is held against from nowhere. For each query it has two
candidates, rankings or answers, and wants to know which is better. Every run takes the other candidate for many queries
at once, so that a published mean is one equation in 323 unknowns; they are kept as a Gaussian with all covariances. A
score is an equation up to rounding; "no significant change" says that it is below a threshold, which is a truncated
Gaussian, matched by its moments. Each further measure that is told (R@100 sees documents that nDCG@10 does not) is
taken for an equation of its own, as if it could be steered apart and said the same of a query. Ranks, ties, news,
exports and aggregates are computed from published values and tell nothing more; when something is told says what being
told says. The least significant difference says how BM25's values spread, and BM25 finds some of the documents that
the other ranking has first. That a result is better than BM25, or is not, is a truncated Gaussian, too, and
so is that its contamination gap is shown: what the runs have on the open half is chosen for the most doubtful score.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import erf, exp, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from leaderboard.results.significance.types import ALPHA
from tests.attack.prober import POOL, QUERIES
from tests.attack.tasks import Task

#: Collections from which the reader knows how the candidates of a query differ, by the number of relevant documents.
SEEN = range(100, 120)


@cache
def known_of_change(task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of what the other candidate changes, by R: (POOL + 1,) each, smoothed."""
    seen = [task.draw(seed) for seed in SEEN]
    change = np.concatenate([each.change for each in seen])
    weights = _weights(np.log(np.concatenate([each.totals for each in seen])))
    mean = weights @ change
    variance = weights @ change**2 - mean**2
    return np.concatenate([[0.0], mean]), np.concatenate([[0.01], variance])


@cache
def known_of_baseline(task: Task) -> tuple[NDArray[np.float64], ...]:
    """Return mean and mean square of the baseline's square, and its mean product with the change, by R, smoothed."""
    seen = [task.draw(seed) for seed in SEEN]
    squares = np.concatenate([each.baseline**2 for each in seen])
    change = np.concatenate([each.change for each in seen])
    weights = _weights(np.log(np.concatenate([each.totals for each in seen])))
    return tuple(np.concatenate([[0.0], weights @ column]) for column in (squares, squares**2, squares * change))


@cache
def known_of_candidates(task: Task) -> tuple[NDArray[np.float64], ...]:
    """Return the means of both candidates, their mean squares, and their mean product, by R: (POOL + 1,), smoothed."""
    seen = [task.draw(seed) for seed in SEEN]
    plain, other = (np.concatenate(column) for column in zip(*((each.plain, each.other) for each in seen), strict=True))
    weights = _weights(np.log(np.concatenate([each.totals for each in seen])))
    moments = (plain, other, plain**2, other**2, plain * other)
    return tuple(np.concatenate([[0.1], weights @ column]) for column in moments)


def _weights(total: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each query that was seen, given the logarithms of its R, weighs for each R from 1: (POOL, queries)."""
    weights = np.exp(-0.5 * ((np.log(np.arange(1, POOL + 1))[:, None] - total[None, :]) / 0.3) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass
class Beliefs:
    """A Gaussian over unknowns that published values are linear in."""

    mean: NDArray[np.float64] = field(init=False)
    covariance: NDArray[np.float64] = field(init=False)

    def observe_row(self, row: NDArray[np.float64], value: float, noise: float) -> None:
        """Update the beliefs with a value of `row` times the unknowns, which has this variance of noise."""
        gain = self.covariance @ row
        scale = float(row @ gain) + noise
        self.mean = self.mean + gain * ((value - float(row @ self.mean)) / scale)
        self.covariance -= np.outer(gain, gain / scale)


@dataclass
class Reader(Beliefs):
    """What the accounts know together. `share`: of the judged queries that are shown; `step` of the values."""

    task: Task
    totals: NDArray[np.int64]
    share: float
    step: float
    seed: int = 3
    best: float | None = None

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        mean, variance = (column[self.totals] for column in known_of_change(self.task))
        shown = self.share
        # The last unknown is the honest run's own score.
        self.mean = np.append(shown * mean, self.task.honest_score)
        spread = shown * (variance + mean**2) - (shown * mean) ** 2
        self.covariance = np.diag(np.append(spread, 0.05**2))
        self.shown = QUERIES * shown

    def design(self) -> NDArray[np.bool_]:
        """The next run: drawn from what is known, at times boldly, for what is told, at times to climb."""
        boldness = self.random.choice([0.25, 0.5, 1.0]) if self.best is not None else 1.0
        drawn = self.mean[:-1] + boldness * np.sqrt(np.diag(self.covariance)[:-1]) * self.random.normal(size=QUERIES)
        return np.asarray(drawn > 0)

    def told(self, choice: NDArray[np.bool_], score: float) -> None:
        """A published score."""
        self._observe(choice, score, self.step**2 / 12 + 1e-12)
        self.best = max(score, self.best if self.best is not None else score)

    def told_beside(self, choice: NDArray[np.bool_], value: float, step: float) -> None:
        """The value of a further measure, which is as good as a score of another choice, in its own steps."""
        self._observe(choice, round(value / step) * step, step**2 / 12 + 1e-12)

    def observe_slice(self, choice: NDArray[np.bool_], part: NDArray[np.bool_], gain: float) -> None:
        """Observe the gain over the honest run on a known part of the queries, a difference of two published means."""
        row = np.append((choice & part) / (self.share * part.sum()), 0.0)
        self.observe_row(row, round(gain / self.step) * self.step, self.step**2 / 6 + 1e-12)

    def beside(self) -> NDArray[np.bool_]:
        """What the next run asks by a further measure: half of the queries."""
        return np.asarray(self.random.random(QUERIES) < 0.5)

    def held(self, choice: NDArray[np.bool_], below: float) -> None:
        """No significant change: the score is below this."""
        self.compared(choice, below, above=False)

    def expected(self, choice: NDArray[np.bool_]) -> float:
        """The score that it expects of a run."""
        return float(self._row(choice) @ self.mean)

    def told_least_difference(self, least: float, step: float, mean: float) -> None:
        """The least significant difference, in its steps: with BM25's mean, the mean square of BM25's values."""
        root = sqrt(self.shown / 2) / NormalDist().inv_cdf(1 - ALPHA / 2)
        deviation, width = (least - step / 2) * root, step * root
        square, fourth, product = (column[self.totals] for column in known_of_baseline(self.task))
        change = known_of_change(self.task)[0][self.totals]
        share = self.share
        # With the honest run's score, the last unknown, it is taken to have nothing in common.
        shared = np.append(share * product - share**2 * change * square, 0.0) / self.shown
        noise = (2 * deviation * width) ** 2 / 12
        scale = float((share * fourth - (share * square) ** 2).sum()) / self.shown**2 + noise
        found = deviation**2 + mean**2 - share * float(square.sum()) / self.shown
        self.mean = self.mean + shared * (found / scale)
        self.covariance -= np.outer(shared, shared / scale)

    def compared(self, choice: NDArray[np.bool_], threshold: float, *, above: bool) -> None:
        """The score is above a threshold, or below it."""
        row = self._row(choice)
        gain = self.covariance @ row
        expected, variance = float(row @ self.mean), float(row @ gain)
        sign = -1 if above else 1
        place = sign * (threshold - expected) / sqrt(variance)
        mass = 0.5 * (1 + erf(place / sqrt(2)))
        if mass < 1e-6:
            return
        ratio = exp(-place * place / 2) / sqrt(2 * pi) / mass
        left = max(1e-3, 1 - ratio * (ratio + place))  # of the variance
        if left > 1 - 1e-6:
            return
        matched = expected - sign * ratio * sqrt(variance)
        noise = variance * left / (1 - left)
        self._observe(choice, expected + (matched - expected) / (1 - left), noise)

    def final(self) -> NDArray[np.bool_]:
        """The run that it believes to be its best."""
        return np.asarray(self.mean[:-1] > 0)

    def _row(self, choice: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.append(choice / self.shown, 1.0)

    def _observe(self, choice: NDArray[np.bool_], score: float, noise: float) -> None:
        self.observe_row(self._row(choice), score, noise)
