"""`manage.py quarantine ENTRY`: out of the ranking, with the reason for everyone to read."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_entry
from leaderboard.results.publishing import quarantine


class Command(CurationCommand):
    """Quarantines a result."""

    help = "Take a result out of the ranking: it keeps its place below, without scores, and --why is public."

    def add_more(self, parser: CommandParser) -> None:
        """Which one."""
        parser.add_argument("entry", help="its number, or DATASET/SYSTEM by their slugs")

    def curate(self, **options: Any) -> str:
        """Quarantine it."""
        entry = quarantine(find_entry(options["entry"]), options["why"])
        return f"Quarantined: {entry} (entry {entry.pk})."
