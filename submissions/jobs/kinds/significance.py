"""Jobs that find out something of what is published: intervals and tests of a board, and what is asked for again."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from leaderboard.core.work_requests import request_certainty, request_statistics
from leaderboard.results.significance.computing import analyse_board, request_if_changed, store_certainty
from submissions.jobs.kinds.score import begin
from submissions.jobs.registry import register_kind
from submissions.models import Job, State
from submissions.queue.lease import Lease, LeaseLost
from submissions.queue.lifecycle import advance, write_log

#: How long what failed is left alone.
FIRST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=1)
_FAILED = (State.FAILED, State.TIMED_OUT)
_ASK = {Job.Kind.CERTAINTY: request_certainty, Job.Kind.STATISTICS: request_statistics}


@register_kind(Job.Kind.CERTAINTY)
def certainty_job(job: Job, lease: Lease) -> None:
    """Find intervals, tests and ranks of the dataset's board, and keep them unless the board changed meanwhile.

    Raises LeaseLost or Cancelled, with nothing kept.
    """
    begin(job, State.SCORING)
    finding = analyse_board(job.dataset, lease.report)
    with transaction.atomic():
        # The state goes first: a lost claim keeps nothing.
        if not advance(job.pk, State.DONE, fence=job.fence, progress=1.0):
            raise LeaseLost
        if finding is not None and store_certainty(finding) is not None:
            write_log(job.pk, f"Found for {len(finding.board.entries):,} results.")
        elif request_if_changed(job.dataset_id):
            write_log(job.pk, "The board changed meanwhile: it is to be looked at again.")
        else:
            write_log(job.pk, "Nothing new to find.")


def retry_failed_certainty() -> int:
    """Ask once more for what failed, a while after; how often. One query where nothing has.

    An hour after the first failure, twice as long after each further one in a row, a day at most: what was in the way
    may be gone by then, and else it costs little.
    """
    last = ~Exists(
        Job.objects.filter(kind=OuterRef("kind"), dataset=OuterRef("dataset"), pk__gt=OuterRef("pk"))
    )
    count = 0
    for job in Job.objects.filter(last, kind__in=_ASK, state__in=_FAILED):
        of_dataset = Job.objects.filter(kind=job.kind, dataset=job.dataset_id)
        done = of_dataset.filter(state=State.DONE).order_by("-pk").values_list("pk", flat=True).first()
        failures = of_dataset.filter(state__in=_FAILED, pk__gt=done or 0).count()
        wait = min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT)
        if job.finished_at is not None and job.finished_at + wait <= timezone.now():
            _ASK[Job.Kind(job.kind)](job.dataset_id)
            count += 1
    return count
