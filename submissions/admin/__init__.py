"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import accounts, notifications, quotas, systems, workers

__all__ = ["accounts", "notifications", "quotas", "systems", "workers"]
