"""Submissions that ended: found by the dispatcher, told once."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from submissions.models import TERMINAL, Job, NoticeKind, State, Submission
from submissions.notifications.deliveries import deliver
from submissions.notifications.messages import ended_message
from submissions.notifications.outbox import members, tell
from submissions.notifications.results import result_body
from submissions.status.description import SubmissionStatus, describe, with_jobs

logger = logging.getLogger(__name__)

#: What ended longer ago is no news: what an older release never told of, or a site that was switched off.
NEWS_FOR = timedelta(days=3)
#: At most so many at a look, so that the dispatcher gets on with everything else.
AT_A_TIME = 50

#: What a submission's end is, as a kind of notice. What its people ended themselves they know.
KINDS = {
    State.DONE: NoticeKind.FINISHED,
    State.REJECTED: NoticeKind.REJECTED,
    State.FAILED: NoticeKind.FAILED,
    State.TIMED_OUT: NoticeKind.FAILED,
}


def tell_of_ended() -> int:
    """Tell of every submission whose jobs all ended and whose people have not been told. Returns how many ended.

    Notices, deliveries and the mark that it was told are one transaction: a crash tells nobody, or everybody once.
    """
    count = 0
    for submission in with_jobs(ended_submissions())[:AT_A_TIME]:
        try:
            count += _tell_of(submission)
        except Exception:
            logger.exception("the end of submission %s could not be told", submission.pk)
    return count


def ended_submissions() -> QuerySet[Submission]:
    """Those whose jobs all ended and whose people have not been told."""
    jobs = Job.objects.filter(submission=OuterRef("pk"))
    under_way = jobs.exclude(state__in=TERMINAL)
    return Submission.objects.filter(Exists(jobs), ~Exists(under_way), noticed_at=None).order_by(
        "created_at", "pk"
    )


@transaction.atomic
def _tell_of(submission: Submission) -> bool:
    """Tell of one, unless somebody else has."""
    now = timezone.now()
    if not Submission.objects.filter(pk=submission.pk, noticed_at=None).update(noticed_at=now):
        return False
    status = describe(submission, complete=True, compare=False)
    ended_at = max((job.finished_at for job in submission.jobs.all() if job.finished_at), default=now)
    if status.state in KINDS and ended_at > now - NEWS_FOR:
        _write(submission, status)
    return True


def _write(submission: Submission, status: SubmissionStatus) -> None:
    people = members([submission.team])
    tell(people, ended_message(KINDS[status.state], status))
    deliver(submission.team, "finished", f"submission-{submission.pk}", result_body(submission, status))
