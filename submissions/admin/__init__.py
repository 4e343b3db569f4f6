"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import accounts, notifications, quotas, switches, systems, workers

__all__ = ["accounts", "notifications", "quotas", "switches", "systems", "workers"]
