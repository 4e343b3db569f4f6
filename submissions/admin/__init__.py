"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import flags, notices, people, quotas, second_factors, systems, teams, workers

__all__ = ["flags", "notices", "people", "quotas", "second_factors", "systems", "teams", "workers"]
