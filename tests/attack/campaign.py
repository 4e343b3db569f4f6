"""Three months of an attack with many accounts, and of honest teams, against each protection: offline.

`make attack` writes the tables of docs/measurements/attack.md (`python tests/attack/campaign.py 100`: over so many
splits and collections), and fails where a bound is missed. Two parties attack, and use up every account's quota of ten
a month:

- sock puppets: 37 accounts that nobody approved;
- insiders: five approved teams of three. A team's quota counts for its people together. They also play
  `tests.attack.ramp`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.gap import STEP as MIN_STEP
from evaluation.statistics.gap import Interval
from evaluation.statistics.ladder import PUBLIC_STEP
from tests.attack.board import SHARE, Board, Result, Rules, before
from tests.attack.prober import QUERIES
from tests.attack.ramp import climb
from tests.attack.reader import Reader
from tests.attack.tasks import TASKS
from tests.attack.worlds import DAYS, EVERY, Gain, world
from tests.figures import Figures, add_option

#: How many the parties are.
SOCK_PUPPETS, INSIDERS = 37, 5
#: Bounds on the mean gain: on what is shown in nDCG@10, and on a competition's private part.
SHOWN, PRIVATE = 0.005, 0.002
#: Minimum gain of the same attack with the protections of the previous release. Measured: 0.029 to 0.030, because
#: rounding differs between machines.
CONTROL = 0.025
#: The share of honest teams, where curators approve them, that see a score within 24 hours.
SERVED = 0.95
#: The name of the protections that there were before.
BEFORE = "the release before"
#: The name of those that say nothing of what is better than the baseline, and what saying it may add to the gain.
UNCERTAIN = "without: what is better than the baseline"
CERTAINTY = 0.001
#: The name of those without a contamination gap, which may add as little.
NO_GAP = "without: the contamination gap"
#: Name of the protections without a comparison of results with the baseline.
NO_BASELINE = "without: results against the baseline"
#: Sock puppets, of whom there are more and whose luck evens out, are played so many times less often.
LESS = 10


def attack(rules: Rules, teams: int, number: int = 0, days: int = DAYS) -> Gain:
    """The gain of so many teams that work together, in world `number`."""
    given = world(rules, number)
    board = Board(rules, given.public, given.systems.baseline)
    share = SHARE if rules.competition else 1.0
    reader = Reader(TASKS[rules.measure], given.systems.totals, share, rules.step, seed=number)
    baseline = rules.published(float(given.systems.baseline[given.public].mean()))
    if rules.certainty:
        least = board.least_difference
        reader.told_least_difference(least, PUBLIC_STEP if rules.competition else MIN_STEP, baseline)
    sent = {}

    def shown_mean(choice: NDArray[np.bool_]) -> float:
        return float(given.values(choice)[given.public].mean())

    def learn(result: Result) -> None:
        choice, beside, tested, doubtful = sent[result]
        _learn(reader, choice, result)
        if result.told_on is None:
            return
        for other, step in zip(beside, rules.further, strict=True):
            reader.told_beside(other, shown_mean(other), step)
        for index in range(rules.slices):
            part = np.arange(QUERIES) % rules.slices == index
            gains = np.where(choice, given.systems.change, 0.0)[given.public & part]
            reader.observe_slice(choice, part, float(gains.mean()))
        if rules.tests:
            # As good as a bit can be: of an equation of its own, whichever way it goes as likely as the other.
            middle = reader.expected(tested)
            reader.compared(tested, middle, above=shown_mean(tested) > middle)
        elif rules.certainty:
            reader.compared(choice, baseline + least, above=board.is_better(result))
        if rules.certainty and rules.gap:
            # The open half is theirs to choose. They gain there, for sure, what turns the chip at this very score.
            public = Interval(*[doubtful - baseline + least + rules.step] * 3)
            reader.compared(choice, doubtful, above=not board.has_gap(result, public))

    for day in range(days + 1):
        for result in board.next_day():
            learn(result)
        if day == days:  # the teams are young no longer: what was held of them is not told
            break
        for team in range(teams):
            if (day + team) % EVERY:
                continue
            choice = reader.design()
            result = board.submit(team, given.values(choice))
            beside = [reader.beside() for _ in rules.further]
            tested = reader.beside() if rules.tests else choice
            sent[result] = choice, beside, tested, reader.expected(choice)
            learn(result)
    gain = np.where(reader.final(), given.systems.change, 0.0)
    told = sum(result.told_on is not None for result in board.results)
    private = float(gain[~given.public].mean()) if rules.competition else 0.0
    return Gain(float(gain[given.public].mean()), private, told)


def _learn(reader: Reader, choice: NDArray[np.bool_], result: Result) -> None:
    if result.told_on is not None:
        reader.told(choice, result.score)
    elif result.needed is not None:
        reader.held(choice, result.needed)


class Served(NamedTuple):
    """Of honest teams the share that saw a score within 24 hours of sending a run, and the share of runs told."""

    teams: float
    runs: float
    longest_wait: int


def serve(rules: Rules, number: int = 0, teams: int = 70) -> Served:
    """Honest teams over the same three months: most come in the last week of a month, before a deadline.

    Each has a system of its own, better than the baseline by the task's quality. A team sends one to six runs, each a
    variation of its system that is better or worse by about .01.
    """
    random = np.random.default_rng(1000 + number)
    task, given = TASKS[rules.measure], world(rules, number)
    board = Board(rules, given.public, given.systems.baseline)
    arrivals: list[tuple[int, int]] = []
    quality = random.triangular(*task.quality, teams)
    for team in range(teams):
        late = random.random() < 0.6
        first = int(random.integers(21, 30) + 30 * random.integers(3)) if late else int(random.integers(DAYS - 5))
        further = random.integers(first, DAYS, random.integers(0, 6)).tolist()
        arrivals += [(day, team) for day in sorted([first, *further])]
    arrivals.sort()
    spread = 0.3 * random.normal(size=(teams, QUERIES))
    for day in range(DAYS + 1):
        if day:
            board.next_day()
        for _, team in (each for each in arrivals if each[0] == day):
            change = quality[team] + 0.01 * random.normal() + spread[team] + 0.1 * random.normal(size=QUERIES)
            board.submit(team, task.observe(given.systems.baseline + change - spread[team].mean()))
    told = [result for result in board.results if result.told_on is not None]
    waits = [result.told_on - result.day for result in told if result.told_on is not None]
    served = {result.team for result, wait in zip(told, waits, strict=True) if wait <= 1}
    return Served(len(served) / teams, len(told) / len(board.results), max(waits, default=0))


def protections(full: Rules) -> Mapping[str, Rules]:
    """All of them, and each alone switched off."""
    found = {"all": full}
    if not full.approved:
        found["without: unapproved teams count as one"] = replace(full, one_party=False)
    found["without: the Ladder" + ("" if full.competition else " of young teams")] = replace(full, ladder=False)
    found["without: the wide step"] = replace(full, wide=False)
    found["without: a step that grows with tries"] = replace(full, tries=False)
    found[NO_BASELINE] = replace(full, baseline=False)
    if full.competition:
        found["without: the primary measure alone"] = replace(full, primary_alone=False)
    found["without: values in steps"] = replace(full, coarse=False)
    found["without: rounding"] = replace(full, rounding=False)
    found["without: the daily budget"] = replace(full, budget=None)
    found[UNCERTAIN] = replace(full, certainty=False)
    found[NO_GAP] = replace(full, gap=False)
    found["with: a test of each result told"] = replace(full, tests=True)
    found["with: scores of three slices"] = replace(full, slices=3)
    found["with: scores of nine slices"] = replace(full, slices=9)
    found[BEFORE] = before(competition=full.competition, measure=full.measure)
    return found


class Party(NamedTuple):
    """Number of teams that attack, whether curators approved them, and their strategy."""

    teams: int
    approved: bool
    strategy: Callable[[Rules, int, int], Gain] = attack

    def rows(self, full: Rules) -> Mapping[str, Rules]:
        """Return the protections against which the party plays, by name."""
        found = protections(full)
        return found if self.strategy is attack else {name: found[name] for name in ("all", NO_BASELINE)}

    def shown_bound(self, measure: str) -> float:
        """Return the bound on the mean gain shown: the same share of the possible gain for all measures.

        By climbing in exact match, teams may gain twice as much (docs/decisions/0018).
        """
        return SHOWN * TASKS[measure].scale * (2 if self.strategy is climb and measure == "EM" else 1)


PARTIES = {
    f"{SOCK_PUPPETS} sock puppets": Party(SOCK_PUPPETS, approved=False),
    f"{INSIDERS} approved teams": Party(INSIDERS, approved=True),
    f"{INSIDERS} approved teams, few queries at first": Party(INSIDERS, True, climb),
}


def play(rules: Rules, party: Party, splits: int, pool: ProcessPoolExecutor) -> NDArray[np.float64]:
    """Gains shown and private, and scores told, shape (splits, 3)."""
    splits = splits if party.approved else -(-splits // LESS)
    return np.array(list(pool.map(partial(party.strategy, rules, party.teams), range(splits))), dtype=np.float64)


def _gains(figures: Figures, measure: str, competition: bool, splits: int, pool: ProcessPoolExecutor) -> None:
    """The table of both parties under one policy, compared with the bounds."""
    policy = f"{'competition' if competition else 'standard'}, {measure}"
    rows = []
    gained, scale = 0.0, TASKS[measure].scale
    for party, played_by in PARTIES.items():
        for name, rules in played_by.rows(Rules(competition, approved=played_by.approved, measure=measure)).items():
            played = play(rules, played_by, splits, pool)
            mean, error = played.mean(axis=0), played.std(axis=0, ddof=1) / np.sqrt(len(played))
            shown, private = f"{mean[0]:+.4f} ± {error[0]:.4f}", f"{mean[1]:+.4f}" if competition else "–"
            if name == "all":
                shown += f" ({figures.bound(f'{party}, {policy}, shown', mean[0], played_by.shown_bound(measure))})"
                private += f" ({figures.bound(f'{party}, {policy}, private', mean[1], PRIVATE)})"
                gained = mean[0]
            elif name == UNCERTAIN:
                figures.bound(f"{party}, {policy}: what certainty adds", gained - mean[0], CERTAINTY * scale)
            elif name == NO_GAP:
                figures.bound(f"{party}, {policy}: what the gap adds", gained - mean[0], CERTAINTY * scale)
            elif name == BEFORE:
                figures.bound(f"{party}, {policy}: what the control lacks", CONTROL - mean[0], 0)
            highest = f"{np.percentile(played[:, 0], 95):+.4f}"
            rows.append([party, name, shown, highest, private, f"{mean[2]:.0f} of {played_by.teams * DAYS // EVERY}"])
    figures.say(f"{policy[0].upper()}{policy[1:]}:")
    figures.table(["attackers", "protections", "shown: mean", "95th percentile", "private: mean", "scores told"], rows)


def _service(figures: Figures, splits: int, pool: ProcessPoolExecutor) -> None:
    """The table of honest teams, held against the bound where curators approve them."""
    rows = []
    for measure, competition, approved in product(TASKS, (False, True), (True, False)):
        rules = Rules(competition, approved=approved, measure=measure)
        served = np.array(list(pool.map(partial(serve, rules), range(splits))))
        policy = f"{'competition' if competition else 'standard'}, {measure}, {'' if approved else 'not '}approved"
        if approved:
            figures.bound(f"{policy}: teams without a score", 1 - served[:, 0].mean(), 1 - SERVED)
        shares = [f"{served[:, 0].mean():.1%}", f"{served[:, 1].mean():.0%}", f"{served[:, 2].max():.0f}"]
        rows.append([policy, *shares])
    figures.table(
        ["70 honest teams", "see a score within 24 hours", "of their runs are reported", "longest wait, days"],
        rows,
    )


def main() -> int:
    """Print the tables, or write them; 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("splits", type=int, nargs="?", default=100)
    add_option(parser)
    arguments = parser.parse_args()
    figures = Figures(__file__, "make attack")
    with ProcessPoolExecutor(2) as pool:
        for measure, competition in product(TASKS, (False, True)):
            _gains(figures, measure, competition, arguments.splits, pool)
        _service(figures, arguments.splits, pool)
    return figures.finish(arguments.write)


if __name__ == "__main__":
    sys.exit(main())
