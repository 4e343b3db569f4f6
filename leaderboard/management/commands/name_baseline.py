"""`manage.py name_baseline ENTRY`: deltas are taken against it from now on."""

from __future__ import annotations

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Entry
from leaderboard.results.publishing.visibility import name_baseline


class Command(CurationCommand):
    """Names the baseline of a comparison group."""

    help = "Take the deltas of a board against this result, which is public and was scored here."
    subjects = ("entry",)

    def curate(self, entry: Entry, **options: Any) -> str:
        name_baseline(entry)
        return f"{entry} (entry {entry.pk}) is the baseline now."
