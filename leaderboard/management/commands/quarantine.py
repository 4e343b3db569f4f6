"""`manage.py quarantine ENTRY`: out of the ranking, with the reason for everyone to read."""

from __future__ import annotations

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Entry
from leaderboard.results.publishing.visibility import quarantine


class Command(CurationCommand):
    """Quarantines a result."""

    help = "Take a result out of the ranking: it keeps its place below, without scores, and --why is public."
    subjects = ("entry",)

    def curate(self, entry: Entry, why: str, **options: Any) -> str:
        entry = quarantine(entry, why)
        return f"Quarantined: {entry} (entry {entry.pk})."
