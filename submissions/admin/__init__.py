"""Admin of submissions, in addition to `leaderboard.admin`."""

from submissions.admin import accounts, operators, quotas, results

__all__ = ["accounts", "operators", "quotas", "results"]
