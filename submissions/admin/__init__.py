"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import flags, notices, quotas, systems

__all__ = ["flags", "notices", "quotas", "systems"]
