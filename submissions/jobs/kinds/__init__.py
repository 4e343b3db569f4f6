"""Implementations of the kinds of jobs."""
