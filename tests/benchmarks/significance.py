"""How fast a board's certainty is found, beside scipy one pair at a time: `python tests/benchmarks/significance.py`.

100 systems × 7,000 queries × 10,000 permutations by default (and as many resamples). scipy's permutation_test and
bootstrap are given one system against one other, in one batch at a time, and their seconds are multiplied by how many
systems there are. Both sides run in this process, one after the other, with the same number of threads.
"""

from __future__ import annotations

import argparse
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

from evaluation.statistics.comparison import count_wins, intervals  # noqa: E402
from evaluation.statistics.randomisation import (  # noqa: E402  # noqa: E402
    PermutedSums,
    corrected_pairs,
    holm,
    randomisation_test,
    rank_intervals,
)
from tests.figures import Figures, add_option  # noqa: E402

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
    both = with_differences(values)
    spent = {"intervals of means and differences": timed(lambda: intervals(both, resamples=draws))}
    kept: list[PermutedSums] = []
    spent["sums under random signs"] = timed(lambda: kept.append(PermutedSums(values, permutations=draws)))
    sums, best = kept[0], int(values.mean(axis=0).argmax())
    spent["p-values against BM25 and the best, wins, ties, losses"] = timed(
        lambda: ([holm(sums.p_values(anchor)) for anchor in (0, best)], count_wins(values, 0))
    )
    spent["all pairs, rank intervals"] = timed(lambda: rank_intervals(values.mean(axis=0), corrected_pairs(sums)))
    return spent


def with_differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, and their differences to those of the first system."""
    return np.hstack([values, values - values[:, [0]]])


def whole_board(values: NDArray[np.float64], draws: int, measures: int) -> Spent:
    """All measures of a board, which share their resamples; each is given the same values."""

    def work() -> None:
        intervals(np.hstack([with_differences(values)] * measures), resamples=draws)
        for _ in range(measures):
            sums = PermutedSums(values, permutations=draws)
            for anchor in (0, int(values.mean(axis=0).argmax())):
                holm(sums.p_values(anchor))
            rank_intervals(values.mean(axis=0), corrected_pairs(sums))
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


def row(name: str, spent: Spent, peer: Spent | None = None) -> list[str]:
    ratio = f"{spent.cpu / peer.cpu:.4f}" if peer else ""
    return [name, f"{spent.cpu:.2f}", f"{spent.wall:.2f}", ratio]


def total(spent: dict[str, Spent]) -> Spent:
    return Spent(sum(one.cpu for one in spent.values()), sum(one.wall for one in spent.values()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", type=int, default=100)
    parser.add_argument("--queries", type=int, default=7_000)
    parser.add_argument("--draws", type=int, default=10_000, help="permutations, and resamples")
    parser.add_argument("--measures", type=int, default=11, help="of the whole board; 0 to leave it out")
    add_option(parser)
    asked = parser.parse_args()
    figures = Figures(__file__)
    values = scores(asked.queries, asked.systems)
    before = memory()
    found = ours(values, asked.draws)
    at_most = [f"one measure {memory() - before:.0f} MiB"]
    if asked.measures:
        board = whole_board(values, asked.draws, asked.measures)
        at_most.append(f"a whole board {memory() - before:.0f} MiB")
    theirs = scipy_pair(values, asked.draws)
    pairs = asked.systems - 1
    one_anchor = theirs["permutation_test"].times(pairs)
    drawn = theirs["bootstrap"].times(2 * asked.systems)
    drawing = found.pop("intervals of means and differences")
    rows = [
        *(row(name, spent) for name, spent in found.items()),
        row("**these together**", total(found), one_anchor),
        row("intervals of means and differences", drawing, drawn),
        row("scipy `permutation_test`, one pair", theirs["permutation_test"]),
        row(f"scipy `permutation_test` × {pairs} pairs, one anchor", one_anchor),
        row("scipy `bootstrap`, one system", theirs["bootstrap"]),
        row(f"scipy `bootstrap` × {2 * asked.systems}, means and differences", drawn),
    ]
    if asked.measures:
        rows.append(row(f"**a whole board**, {asked.measures} measures", board))
    figures.say(
        f"{asked.systems:,} systems × {asked.queries:,} queries, {asked.draws:,} permutations and as many resamples."
    )
    figures.table(["", "CPU s", "wall s", "× scipy, CPU"], rows)
    p = randomisation_test(values[:, :2], 0, permutations=asked.draws)[1]
    figures.say(f"Memory above the values: {', '.join(at_most)}. p of the pair: {p:.4f} here, {PAIR[0]:.4f} by scipy.")
    sys.exit(figures.finish(asked.write))


if __name__ == "__main__":
    main()
