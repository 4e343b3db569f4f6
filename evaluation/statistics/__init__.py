"""How sure a difference between systems is: intervals, paired tests, corrections, ranks; the Ladder, and the
contamination gap.

Everything works on values by query: an array of shape (queries, systems), the same queries for all systems. Tests of a
board of 100 systems take 0.003 of scipy's CPU time pair by pair, intervals 0.03 (docs/measurements/speed.md).
"""
