"""`manage.py unpublish ENTRY`: off the board; its team is told why."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_entry
from leaderboard.results.publishing import unpublish


class Command(CurationCommand):
    """Takes a result off its board."""

    help = "Take a result off its board: nothing of it stays there, and its team reads --why."

    def add_more(self, parser: CommandParser) -> None:
        """Which one."""
        parser.add_argument("entry", help="its number, or DATASET/SYSTEM by their slugs")

    def curate(self, **options: Any) -> str:
        """Take it off."""
        entry = unpublish(find_entry(options["entry"]), options["why"])
        return f"Taken off the board: {entry} (entry {entry.pk})."
