"""The same attack without a site: the split, the rounding and the Ladder themselves, on the synthetic collection.

Which queries are public is drawn by a secret, so what an attack gains is a matter of luck too: `python
tests/attack/offline.py 200` plays it over so many splits, and prints mean, 95th percentile and maximum. Split number n
is drawn by the same secret each time, here and where the attack is played through the site.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.splits import Parts, draw_parts
from evaluation.statistics.ladder import paired_standard_error, rung
from tests.attack.prober import QUERIES, Collection, Prober, honest, synthetic_collection

SUBMISSIONS = 60
#: Decimals of a hidden dataset's published values, and of those that nobody rounds.
DECIMALS, FULL = 3, 15
SPLITS = 200


@dataclass(frozen=True)
class Protections:
    """Which are on."""

    rounding: bool
    parts: bool
    ladder: bool

    def __str__(self) -> str:
        named = [name for name in ("rounding", "parts", "ladder") if getattr(self, name)]
        return ", ".join(named) or "none"

    @property
    def share(self) -> float:
        """The public part's: the Ladder comes with parts, so without these the private one is as small as may be."""
        return 1 / 3 if self.parts else 0.995

    @property
    def precision(self) -> float:
        """The width of the rounding, 0 for none."""
        return 10.0**-DECIMALS if self.rounding else 0.0


ALL = Protections(True, True, True)
EVERY = [Protections(*on) for on in itertools.product([False, True], repeat=3)]


class Gain(NamedTuple):
    """What an attack gained, in nDCG@10 over each part, and how many scores it was told."""

    public: float
    private: float | None
    told: int


def secret(number: int) -> bytes:
    """What draws split `number`."""
    return hashlib.sha256(f"split {number}".encode()).digest()


def public_part(collection: Collection, protections: Protections, split: int) -> NDArray[np.bool_]:
    """Which queries are public in this split, shape (QUERIES,)."""
    relevant = {f"q{query}": int(total) for query, total in enumerate(collection.totals)}
    drawn = draw_parts(relevant, protections.share, Parts(secret(split), {}))
    return drawn.mask(list(relevant))


class Board:
    """What answers a prober: a mean over the public part, or None for no significant change."""

    def __init__(self, protections: Protections, public: NDArray[np.bool_]) -> None:
        self._protections = protections
        self._public = public
        self._best: tuple[float, NDArray[np.float64]] | None = None

    def answer(self, values: NDArray[np.float64]) -> float | None:
        """The published score of a run with these values, shape (QUERIES,)."""
        shown = values[self._public]
        score = round(float(shown.mean()), DECIMALS if self._protections.rounding else FULL)
        if self._protections.ladder and self._best is not None:
            best_score, best = self._best
            if not rung(score, best_score, paired_standard_error(shown, best)).passed:
                return None
        if self._best is None or score > self._best[0]:
            self._best = (score, shown)
        return score


def play(protections: Protections, split: int = 0, submissions: int = SUBMISSIONS) -> Gain:
    """So many submissions, of which the last is what the prober believes to be best."""
    collection = synthetic_collection()
    whole = not (protections.parts or protections.ladder)
    public = np.ones(QUERIES, bool) if whole else public_part(collection, protections, split)
    board = Board(protections, public)
    measured = public if protections.parts else np.ones(QUERIES, bool)
    prober = Prober(collection.totals, int(measured.sum()), precision=protections.precision)
    told = 0
    for _ in range(submissions - 1):
        score = board.answer(collection.values(prober.next_run()))
        prober.learn(score)
        told += score is not None
    gain = collection.values(prober.final()) - collection.values(honest())
    return Gain(
        public=float(gain[measured].mean()),
        private=float(gain[~measured].mean()) if protections.parts else None,
        told=told,
    )


def main(splits: int) -> None:
    """Print a table over so many splits, for every set of protections that draws one."""
    whole = play(Protections(False, False, False)).public
    print(
        f"\nOver {splits} splits; with no protection {whole:+.4f}, a quarter of which is {whole / 4:+.4f}.\n"
    )
    print(
        "| protections | board: mean | 95th percentile | maximum | over a quarter | private part: mean | maximum |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for protections in EVERY:
        if protections.parts:
            played = [play(protections, split) for split in range(splits)]
            public = np.array([each.public for each in played])
            private = np.array([each.private for each in played])
            print(
                f"| {protections} | {public.mean():+.4f} | {np.percentile(public, 95):+.4f} | {public.max():+.4f} "
                f"| {np.count_nonzero(public > whole / 4)} | {private.mean():+.4f} | {private.max():+.4f} |"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS)
