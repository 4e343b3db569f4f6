"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import accounts, flags, notifications, quotas, second_factors, systems, teams, workers

__all__ = ["accounts", "flags", "notifications", "quotas", "second_factors", "systems", "teams", "workers"]
