"""`manage.py measure_again ENTRY` measures the costs of a result again, without another score."""

from __future__ import annotations

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Entry
from submissions.jobs.measuring import request_measurement


class Command(CurationCommand):
    """Command that requests another measurement."""

    help = "Run a result's model again and measure its costs anew, for example after a busy machine made them doubtful."
    subjects = ("entry",)
    why_help = "kept in the record"

    def curate(self, entry: Entry, **options: Any) -> str:
        job = request_measurement(entry)
        return f"Job {job.pk} measures {entry} again. The present costs remain until it ends."
