"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import accounts, agreements, entries, notifications, quotas, switches, systems, workers

__all__ = ["accounts", "agreements", "entries", "notifications", "quotas", "switches", "systems", "workers"]
