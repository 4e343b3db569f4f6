"""`manage.py unpublish ENTRY`: off the board; its team is told why."""

from __future__ import annotations

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Entry
from leaderboard.results.publishing.visibility import unpublish


class Command(CurationCommand):
    """Takes a result off its board."""

    help = "Take a result off its board: nothing of it stays there, and its team reads --why."
    subjects = ("entry",)

    def curate(self, entry: Entry, why: str, **options: Any) -> str:
        entry = unpublish(entry, why)
        return f"Taken off the board: {entry} (entry {entry.pk})."
