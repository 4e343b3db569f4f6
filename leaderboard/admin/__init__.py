"""Curation in Django's own admin: what curators may change by hand, and what they may only look at."""

from leaderboard.admin import audit, datasets, judging, rescores, results, rounds, site, tables

__all__ = ["audit", "datasets", "judging", "rescores", "results", "rounds", "site", "tables"]
