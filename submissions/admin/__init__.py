"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import accounts, operators, quotas, results

__all__ = ["accounts", "operators", "quotas", "results"]
