"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import accounts, agreements, notifications, quotas, switches, systems, workers

__all__ = ["accounts", "agreements", "notifications", "quotas", "switches", "systems", "workers"]
