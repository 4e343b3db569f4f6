"""Curation pages in Django's admin."""

from leaderboard.admin import audit, datasets, judging, rescores, results, rounds, site, tables, topic_sources

__all__ = ["audit", "datasets", "judging", "rescores", "results", "rounds", "site", "tables", "topic_sources"]
