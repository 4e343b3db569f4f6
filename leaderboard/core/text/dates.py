"""Formatting of dates and times on pages and in mails (`leaderboard.core.formats`). Machines read ISO 8601 instead."""

from datetime import UTC, date, datetime

from django.utils.formats import date_format, get_format


def format_day(day: date | str) -> str:
    """Format a date, or a string in ISO 8601, as in “29 Nov 2026”."""
    return date_format(date.fromisoformat(day[:10]) if isinstance(day, str) else day)


def format_moment(moment: datetime, precision: str = "minutes") -> str:
    """Format a time as in “29 Nov 2026, 07:17 UTC”, with seconds if `precision` is “seconds”."""
    pattern = get_format("DATETIME_FORMAT")
    return date_format(moment.astimezone(UTC), pattern.replace("H:i", "H:i:s") if precision == "seconds" else pattern)
