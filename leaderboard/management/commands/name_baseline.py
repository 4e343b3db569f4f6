"""`manage.py name_baseline ENTRY`: deltas are taken against it from now on."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_entry
from leaderboard.results.publishing import name_baseline


class Command(CurationCommand):
    """Names the baseline of a comparison group."""

    help = "Take the deltas of a board against this result, which is public and was scored here."

    def add_more(self, parser: CommandParser) -> None:
        """Which one."""
        parser.add_argument("entry", help="its number, or DATASET/SYSTEM by their slugs")

    def curate(self, **options: Any) -> str:
        """Name it."""
        entry = find_entry(options["entry"])
        name_baseline(entry)
        return f"{entry} (entry {entry.pk}) is the baseline now."
