"""Comparisons of two to six systems: by dataset, by query, and by top documents."""
