"""How sure a difference between systems is: intervals, paired tests, corrections, tiers.

Everything works on values by query: an array of shape (queries, systems), the same queries for all systems.
"""

from evaluation.certainty.bootstrap import INTERVAL, RESAMPLES, intervals
from evaluation.certainty.comparison import Counts, PairedResult, count_wins, paired
from evaluation.certainty.correction import CORRECTION, holm
from evaluation.certainty.randomisation import PERMUTATIONS, TEST, PermutedSums, randomisation_test
from evaluation.certainty.tiers import LETTERS, tiers

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
