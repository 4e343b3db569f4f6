"""Worlds in which groups of accounts attack: the systems on a collection, and the queries that its board shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.attack.board import SHARE, Rules, everything, public_part
from tests.attack.tasks import TASKS, Systems, Values

DAYS = 90
#: A team sends one run every third day: ten a month.
EVERY = 3
#: Number of collections, so that results do not depend on one of them.
COLLECTIONS = 5


class Gain(NamedTuple):
    """Gains in the primary measure on the queries that are shown and on the private ones, and number of scores told."""

    shown: float
    private: float
    told: int


@dataclass(frozen=True)
class World:
    """Systems on a collection, and the queries that the board shows."""

    systems: Systems
    public: NDArray[np.bool_]

    def values(self, choice: NDArray[np.bool_]) -> Values:
        """Return the values by query of a run that takes the other candidate where `choice` says so."""
        return np.where(choice, self.systems.other, self.systems.plain)


def world(rules: Rules, number: int) -> World:
    """Return world `number` under these rules."""
    systems = TASKS[rules.measure].draw(1 + number % COLLECTIONS)
    return World(systems, public_part(systems.totals, SHARE, number) if rules.competition else everything())
