"""Approved teams that begin with few queries and add some in every run, so that the Ladder reports many scores.

Each team adds queries in an order of its own, with the candidate that the group believes to be better. A score is an
equation on the values of both candidates, and so is each further measure, over another choice of candidates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.attack.board import SHARE, Board, Result, Rules
from tests.attack.prober import QUERIES
from tests.attack.reader import Beliefs, known_of_candidates
from tests.attack.tasks import TASKS
from tests.attack.worlds import DAYS, EVERY, Gain, World, world

#: Number of queries that a run adds.
ADDED = 60


class RampReader(Beliefs):
    """Beliefs about the values of both candidates of each query, 0 for queries that the board does not show."""

    def __init__(self, rules: Rules, given: World, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.rules, self.given, self.share = rules, given, SHARE if rules.competition else 1.0
        columns = (column[given.systems.totals] for column in known_of_candidates(TASKS[rules.measure]))
        plain, other, plain_square, other_square, product = (self.share * column for column in columns)
        first, second = np.arange(QUERIES), np.arange(QUERIES, 2 * QUERIES)
        self.mean, self.covariance = np.append(plain, other), np.zeros((2 * QUERIES, 2 * QUERIES))
        self.covariance[first, first] = plain_square - plain**2
        self.covariance[second, second] = other_square - other**2
        self.covariance[first, second] = self.covariance[second, first] = product - plain * other

    def choose(self) -> NDArray[np.bool_]:
        """Return the queries for which the other candidate is believed to be better, with some noise."""
        difference = self.mean[QUERIES:] - self.mean[:QUERIES]
        return np.asarray(
            difference + self.random.normal(scale=0.3, size=QUERIES) * self.given.systems.change.std() > 0
        )

    def learn(self, answered: NDArray[np.bool_], choice: NDArray[np.bool_], result: Result) -> None:
        """Observe the score of a run, and further measures that have other choices."""
        self._observe(answered, choice, result.score, self.rules.step)
        for step in self.rules.further:
            beside = self.random.random(QUERIES) < 0.5
            value = float(np.where(answered, self.given.values(beside), 0.0)[self.given.public].mean())
            self._observe(answered, beside, round(value / step) * step, step)

    def _observe(self, answered: NDArray[np.bool_], choice: NDArray[np.bool_], value: float, step: float) -> None:
        row = np.append(answered & ~choice, answered & choice) / (QUERIES * self.share)
        self.observe_row(row, value, step**2 / 12 + 1e-12)


def climb(rules: Rules, teams: int, number: int = 0) -> Gain:
    """Return the gain of a number of teams in world `number`."""
    given = world(rules, number)
    board, reader = Board(rules, given.public, given.systems.baseline), RampReader(rules, given, number)
    orders = [reader.random.permutation(QUERIES) for _ in range(teams)]
    choices = [np.zeros(QUERIES, bool) for _ in range(teams)]
    for day in range(DAYS):
        board.next_day()
        for team in range(teams):
            end = (day // EVERY + 1) * ADDED
            if (day + team) % EVERY or end >= QUERIES + ADDED:
                continue
            added = orders[team][end - ADDED : end]
            choices[team][added] = reader.choose()[added]
            answered = np.isin(np.arange(QUERIES), orders[team][:end])
            result = board.submit(team, np.where(answered, given.values(choices[team]), 0.0))
            if result.told_on is not None:
                reader.learn(answered, choices[team], result)
    gain = np.where(reader.mean[QUERIES:] > reader.mean[:QUERIES], given.systems.change, 0.0)
    told = sum(result.told_on is not None for result in board.results)
    private = float(gain[~given.public].mean()) if rules.competition else 0.0
    return Gain(float(gain[given.public].mean()), private, told)
