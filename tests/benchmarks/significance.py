"""How fast a board's certainty is found, beside scipy one pair at a time: `python tests/benchmarks/significance.py`.

100 systems × 7,000 queries × 10,000 permutations by default (and as many resamples). scipy's permutation_test and
bootstrap are given one system against one other, in one batch at a time, and their seconds are multiplied by how many
systems there are. Both sides run in this process, one after the other, with the same number of threads.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from scipy import stats  # noqa: E402

from evaluation.statistics import (  # noqa: E402
    PermutedSums,
    count_wins,
    holm,
    intervals,
    randomisation_test,
    tiers,
)

#: Permutations that scipy holds at once: 7,000 queries × 500 × 8 bytes are 28 MB.
BATCH = 500
#: The p-value that scipy found.
PAIR: list[float] = []


class Spent(NamedTuple):
    """Seconds."""

    cpu: float
    wall: float

    def times(self, factor: float) -> Spent:
        return Spent(self.cpu * factor, self.wall * factor)


def timed(work: Callable[[], object]) -> Spent:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


def scores(queries: int, systems: int) -> NDArray[np.float64]:
    """Values by query about means that are 0.002 apart."""
    random = np.random.default_rng(20)
    hard = random.random((queries, 1))
    return np.clip(hard + random.normal(0, 0.2, (queries, systems)) + 0.002 * np.arange(systems), 0, 1)


def ours(values: NDArray[np.float64], draws: int) -> dict[str, Spent]:
    """The steps of what a worker does for one measure of a board."""
    spent = {"intervals": timed(lambda: intervals(values, resamples=draws))}
    kept: list[PermutedSums] = []
    spent["sums under random signs"] = timed(lambda: kept.append(PermutedSums(values, permutations=draws)))
    sums, best = kept[0], int(values.mean(axis=0).argmax())
    spent["p-values against BM25 and the best"] = timed(
        lambda: [holm(sums.p_values(anchor)) for anchor in (0, best)]
    )
    spent["groups, wins, ties, losses"] = timed(
        lambda: (tiers(values.mean(axis=0), sums.p_values), count_wins(values, 0))
    )
    return spent


def whole_board(values: NDArray[np.float64], draws: int, measures: int) -> Spent:
    """All measures of a board, which share their resamples; each is given the same values."""

    def work() -> None:
        intervals(np.hstack([values] * measures), resamples=draws)
        for _ in range(measures):
            sums = PermutedSums(values, permutations=draws)
            for anchor in (0, int(values.mean(axis=0).argmax())):
                holm(sums.p_values(anchor))
            tiers(values.mean(axis=0), sums.p_values)
            count_wins(values, 0)

    return timed(work)


def scipy_pair(values: NDArray[np.float64], draws: int) -> dict[str, Spent]:
    """One pair's p-value and one system's interval."""

    def test() -> None:
        found = stats.permutation_test(
            (values[:, 1], values[:, 0]),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=draws,
            batch=BATCH,
            rng=np.random.default_rng(1),
        )
        PAIR.append(float(found.pvalue))

    def interval() -> None:
        stats.bootstrap(
            (values[:, 1],),
            np.mean,
            method="percentile",
            n_resamples=draws,
            batch=BATCH,
            rng=np.random.default_rng(1),
        )

    return {"permutation_test": timed(test), "bootstrap": timed(interval)}


def memory() -> float:
    """MiB at the most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(name: str, spent: Spent, ratio: float | None = None) -> None:
    told = f"{ratio:.4f}" if ratio is not None else ""
    print(f"| {name} | {spent.cpu:.2f} | {spent.wall:.2f} | {told} |")


def total(spent: dict[str, Spent]) -> Spent:
    return Spent(sum(one.cpu for one in spent.values()), sum(one.wall for one in spent.values()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", type=int, default=100)
    parser.add_argument("--queries", type=int, default=7_000)
    parser.add_argument("--draws", type=int, default=10_000, help="permutations, and resamples")
    parser.add_argument("--measures", type=int, default=11, help="of the whole board; 0 to leave it out")
    asked = parser.parse_args()
    values = scores(asked.queries, asked.systems)
    before = memory()
    found = ours(values, asked.draws)
    at_most = [f"one measure {memory() - before:.0f} MiB"]
    if asked.measures:
        board = whole_board(values, asked.draws, asked.measures)
        at_most.append(f"a whole board {memory() - before:.0f} MiB")
    theirs = scipy_pair(values, asked.draws)
    tests = asked.systems - 1
    print(
        f"{asked.systems:,} systems × {asked.queries:,} queries, {asked.draws:,} permutations and resamples, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| | CPU s | wall s | ÷ scipy (CPU) |\n|---|--:|--:|--:|")
    for name, spent in found.items():
        row(name, spent)
    row("**all of it**, one measure", total(found))
    row("scipy permutation_test, one pair", theirs["permutation_test"])
    row("scipy bootstrap, one system", theirs["bootstrap"])
    one_anchor = theirs["permutation_test"].times(tests)
    tested = total({name: spent for name, spent in found.items() if name != "intervals"})
    row(f"scipy permutation_test × {tests} pairs, one anchor", one_anchor, tested.cpu / one_anchor.cpu)
    drawn = theirs["bootstrap"].times(asked.systems)
    row(f"scipy bootstrap × {asked.systems} systems", drawn, found["intervals"].cpu / drawn.cpu)
    if asked.measures:
        row(f"**a whole board**, {asked.measures} measures", board)
    p = randomisation_test(values[:, :2], 0, permutations=asked.draws)[1]
    print(
        f"\nMemory above the values: {', '.join(at_most)}. p of the pair: {p:.4f} here, {PAIR[0]:.4f} scipy's."
    )


if __name__ == "__main__":
    main()
