"""Curation of what is submitted, beside `leaderboard.admin`."""

from submissions.admin import notices

__all__ = ["notices"]
