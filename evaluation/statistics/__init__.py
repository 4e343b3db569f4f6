"""Uncertainty of differences between systems: intervals, tests, corrections, ranks, the Ladder, and contamination gaps.

All functions work on values by query in arrays of shape (queries, systems), with the same queries for all systems.
Tests of a board of 100 systems take 0.003 of the CPU time of pairwise tests with scipy, and intervals 0.03
(docs/measurements/speed.md).
"""
