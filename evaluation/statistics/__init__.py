"""How sure a difference between systems is: intervals, paired tests, corrections, tiers; and the Ladder.

Everything works on values by query: an array of shape (queries, systems), the same queries for all systems.
"""

from evaluation.statistics.bootstrap import INTERVAL, RESAMPLES, intervals
from evaluation.statistics.comparison import Counts, PairedResult, count_wins, paired
from evaluation.statistics.correction import CORRECTION, holm
from evaluation.statistics.randomisation import PERMUTATIONS, TEST, PermutedSums, randomisation_test
from evaluation.statistics.tiers import LETTERS, tiers

__all__ = [
    "CORRECTION",
    "INTERVAL",
    "LETTERS",
    "PERMUTATIONS",
    "RESAMPLES",
    "TEST",
    "Counts",
    "PairedResult",
    "PermutedSums",
    "count_wins",
    "holm",
    "intervals",
    "paired",
    "randomisation_test",
    "tiers",
]
