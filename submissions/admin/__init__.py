"""Admin of submissions, in addition to `leaderboard.admin`."""

from submissions.admin import accounts, datasets, operators, quotas, results

__all__ = ["accounts", "datasets", "operators", "quotas", "results"]
