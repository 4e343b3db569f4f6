"""Errors, problems, strings on disk, and the order of a ranking."""
