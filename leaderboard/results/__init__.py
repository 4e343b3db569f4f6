"""Runs and evaluations, their publication, and the rows of current and past boards."""
