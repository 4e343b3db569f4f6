"""Submissions that ended: found by the dispatcher, told once."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from leaderboard.models import Entry
from submissions.models import TERMINAL, Job, NoticeKind, State, Submission
from submissions.notifications.deliveries import deliver, has_webhooks
from submissions.notifications.messages import bulk_message, ended_message
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
    count = sum(_tell_of_bulk(bulk) for bulk in ended_bulks())
    for submission in with_jobs(ended_submissions())[:AT_A_TIME]:
        try:
            count += _tell_of(submission)
        except Exception:
            logger.exception("the end of submission %s could not be told", submission.pk)
    return count


def ended_submissions() -> QuerySet[Submission]:
    """Those whose jobs all ended, with no result that waits for its turn, and whose people have not been told.

    Those of a bulk import are told of together.
    """
    jobs = Job.objects.filter(submission=OuterRef("pk"))
    under_way = jobs.exclude(state__in=TERMINAL)
    in_turn = jobs.filter(entry__visibility=Entry.Visibility.HELD, entry__due_at__lte=timezone.now())
    untold = Submission.objects.filter(~Exists(in_turn), noticed_at=None, bulk="")
    return untold.filter(Exists(jobs), ~Exists(under_way)).order_by("created_at", "pk")


def ended_bulks() -> list[str]:
    """Bulk imports whose jobs all ended and whose people have not been told."""
    waiting = Submission.objects.exclude(bulk="").filter(noticed_at=None)
    jobs = Job.objects.filter(submission__bulk=OuterRef("bulk"))
    under_way = jobs.exclude(state__in=TERMINAL)
    in_turn = jobs.filter(entry__visibility=Entry.Visibility.HELD, entry__due_at__lte=timezone.now())
    return list(
        waiting.filter(~Exists(under_way), ~Exists(in_turn))
        .order_by("bulk")
        .values_list("bulk", flat=True)
        .distinct()
    )


@transaction.atomic
def _tell_of_bulk(bulk: str) -> int:
    """One notice of all of an import's submissions, unless somebody else has told of it; webhooks get each result."""
    submissions = list(with_jobs(Submission.objects.filter(bulk=bulk).order_by("created_at", "pk")))
    now = timezone.now()
    if not Submission.objects.filter(bulk=bulk, noticed_at=None).update(noticed_at=now):
        return 0
    told = [describe(each, complete=True, compare=False) for each in submissions]
    tell(members([submissions[0].team]), bulk_message(bulk, told))
    if has_webhooks(submissions[0].team):
        for status in told:
            body = result_body(status.submission, status)
            deliver(status.submission.team, "finished", f"submission-{status.submission.pk}", body)
    return len(told)


@transaction.atomic
def _tell_of(submission: Submission) -> bool:
    """Tell of one, unless somebody else has."""
    now = timezone.now()
    if not Submission.objects.filter(pk=submission.pk, noticed_at=None).update(noticed_at=now):
        return False
    status = describe(submission, complete=True, compare=False)
    jobs = submission.jobs.all()
    ended = [job.finished_at for job in jobs if job.finished_at]
    ended += [
        job.entry.published_at for job in jobs if job.entry is not None
    ]  # later, where it waited for its turn
    ended_at = max(ended, default=now)
    if status.state in KINDS and ended_at > now - NEWS_FOR:
        _write(submission, status)
    return True


def _write(submission: Submission, status: SubmissionStatus) -> None:
    people = members([submission.team])
    tell(people, ended_message(KINDS[status.state], status))
    deliver(submission.team, "finished", f"submission-{submission.pk}", result_body(submission, status))
