"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import notices, systems

__all__ = ["notices", "systems"]
