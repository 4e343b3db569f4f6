"""One account that changes a query at a time, without a site: what it gains under the policy of a competition."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tests.attack.board import SHARE, Board, Rules, everything, public_part
from tests.attack.prober import QUERIES, Prober, honest, synthetic_collection

SUBMISSIONS = 60


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
    def competes(self) -> bool:
        """Whether the dataset is a competition."""
        return self.parts or self.ladder

    @property
    def share(self) -> float:
        """The public part's: the Ladder comes with parts, so without these the private one is as small as may be."""
        return SHARE if self.parts else 0.995

    @property
    def rules(self) -> Rules:
        """What the board goes by: the account is no young team's."""
        return Rules(self.competes, self.rounding, self.ladder, one_party=False, wide=False, budget=None)


ALL = Protections(True, True, True)
EVERY = [Protections(*on) for on in itertools.product([False, True], repeat=3)]


class Gain(NamedTuple):
    """What an attack gained, in nDCG@10 over each part, and how many scores it was told."""

    public: float
    private: float | None
    told: int


def play(protections: Protections, split: int = 0, submissions: int = SUBMISSIONS) -> Gain:
    """So many submissions, of which the last is what the prober believes to be best."""
    collection = synthetic_collection()
    public = public_part(collection.totals, protections.share, split) if protections.competes else everything()
    baseline = collection.values({query: ranking[::-1] for query, ranking in honest().items()})
    board = Board(protections.rules, public, baseline)
    measured = public if protections.parts else np.ones(QUERIES, bool)
    prober = Prober(collection.totals, int(measured.sum()), precision=protections.rules.step)
    told = 0
    for _ in range(submissions - 1):
        result = board.submit(0, collection.values(prober.next_run()))
        prober.learn(result.score if result.told_on is not None else None)
        told += result.told_on is not None
    gain = collection.values(prober.final()) - collection.values(honest())
    return Gain(
        public=float(gain[measured].mean()),
        private=float(gain[~measured].mean()) if protections.parts else None,
        told=told,
    )
