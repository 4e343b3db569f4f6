"""`manage.py restore ENTRY`: back on the board, or back to its team where that keeps it."""

from __future__ import annotations

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Entry
from leaderboard.results.publishing.visibility import restore


class Command(CurationCommand):
    """Undoes a quarantine or an un-publishing."""

    help = "Show a result again that was quarantined or taken off; where its team keeps it back, it stays private."
    subjects = ("entry",)

    def curate(self, entry: Entry, **options: Any) -> str:
        entry = restore(entry)
        return f"Restored: {entry} (entry {entry.pk}), {entry.get_visibility_display()} now."
