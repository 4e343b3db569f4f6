"""Dates and times as the admin writes them: all are UTC, and say so."""
