"""How sure a difference between systems is: intervals, paired tests, corrections, ranks; and the Ladder.

Everything works on values by query: an array of shape (queries, systems), the same queries for all systems. Tests of a
board of 100 systems take 0.003 of scipy's CPU time pair by pair, intervals 0.03 (docs/benchmarks.md).
"""

from evaluation.statistics.bootstrap import INTERVAL, RESAMPLES, intervals
from evaluation.statistics.comparison import Counts, PairedResult, compare_paired, count_wins
from evaluation.statistics.correction import CORRECTION, PAIRS_CORRECTION, PATTERNS, corrected_pairs, holm
from evaluation.statistics.randomisation import PERMUTATIONS, TEST, PermutedSums, randomisation_test
from evaluation.statistics.ranks import rank_intervals

__all__ = [
    "CORRECTION",
    "INTERVAL",
    "PAIRS_CORRECTION",
    "PATTERNS",
    "PERMUTATIONS",
    "RESAMPLES",
    "TEST",
    "Counts",
    "PairedResult",
    "PermutedSums",
    "compare_paired",
    "corrected_pairs",
    "count_wins",
    "holm",
    "intervals",
    "randomisation_test",
    "rank_intervals",
]
