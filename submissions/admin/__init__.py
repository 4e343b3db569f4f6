"""Admin of submissions, in addition to `leaderboard.admin`."""

from submissions.admin import accounts, datasets, operators, quotas, renewals, results

__all__ = ["accounts", "datasets", "operators", "quotas", "renewals", "results"]
