"""`manage.py restore ENTRY`: back on the board, or back to its team where that keeps it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_entry
from leaderboard.results.publishing import restore


class Command(CurationCommand):
    """Undoes a quarantine or an un-publishing."""

    help = "Show a result again that was quarantined or taken off; where its team keeps it back, it stays private."

    def add_more(self, parser: CommandParser) -> None:
        """Which one."""
        parser.add_argument("entry", help="its number, or DATASET/SYSTEM by their slugs")

    def curate(self, **options: Any) -> str:
        """Restore it."""
        entry = restore(find_entry(options["entry"]))
        return f"Restored: {entry} (entry {entry.pk}), {entry.get_visibility_display()} now."
