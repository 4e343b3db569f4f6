"""Jobs that find out something of what is published: intervals and tests of a board."""

from __future__ import annotations

from django.db import transaction

from leaderboard.certainty import find_certainty, keep_certainty
from submissions.lease import Lease, LeaseLost
from submissions.lifecycle import advance, write_log
from submissions.models import Job, State


def certainty_job(job: Job, lease: Lease) -> None:
    """Find intervals, tests and groups of the dataset's board, and keep them unless the board changed meanwhile.

    Raises LeaseLost or Cancelled, with nothing kept.
    """
    if not advance(job.pk, State.SCORING, fence=job.fence, stage=""):
        raise LeaseLost
    finding = find_certainty(job.dataset, lease.report)
    with transaction.atomic():
        # The state goes first: a lost claim keeps nothing.
        if not advance(job.pk, State.DONE, fence=job.fence, progress=1.0):
            raise LeaseLost
        if finding is None:
            write_log(job.pk, "Nothing new to find.")
        elif keep_certainty(finding) is None:
            write_log(job.pk, "The board changed meanwhile: what was found is of the past.")
        else:
            write_log(job.pk, f"Found for {len(finding.board.entries):,} results.")
