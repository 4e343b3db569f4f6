"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import flags, notices, quotas, second_factors, systems, workers

__all__ = ["flags", "notices", "quotas", "second_factors", "systems", "workers"]
