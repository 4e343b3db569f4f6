"""Jobs of shards, and the jobs that wait for them: made, requeued, ended and cancelled together.

Whoever calls what writes here holds the encoding's row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum

from evaluation.engines.corpus_encoding import SHARD_FORMAT
from submissions.models import TERMINAL, Encoding, Job, Shard, State
from submissions.queue.capability import UNPROTECTED
from submissions.queue.lifecycle import advance, write_log
from submissions.queue.queue import next_turn, request_cancel, wake_worker

logger = logging.getLogger(__name__)

#: States of a shard's job that end the jobs which wait for it. A cancelled one is made again if somebody waits.
_ENDED_BADLY = frozenset({State.FAILED, State.REJECTED, State.TIMED_OUT})
#: Shards that are one turn of their team's: a worker that goes on to another model has to load it.
SHARDS_A_TURN = 8
#: So many shards of a corpus wait in the queue: each claim looks at all that waits. The dispatcher makes more when half
#: of them are taken, which is enough for 50 shards a second.
_MOST_WAITING = 512


def settle_shard_waiters(job: Job) -> None:
    """See to those who wait for a shard whose job has just ended, or may have; where it is there, they know it."""
    unmade = Shard.objects.filter(job=job.pk).exclude(job__state=State.DONE)
    for encoding in unmade.values_list("encoding_id", flat=True):
        settle_encoding(encoding)


def settle_waiting_jobs() -> None:
    """Requeue jobs whose shards are there, after a crash or a lost wakeup too, and cancel shards that nobody needs."""
    for pk in (
        Encoding.objects.filter(waiting_jobs__in=waiting_jobs()).distinct().values_list("pk", flat=True)
    ):
        settle_encoding(pk)
    cancel_unneeded_shards()


def cancel_unneeded_shards() -> None:
    """Cancel the shards that no job waits for any more."""
    under_way = Job.objects.filter(kind=Job.Kind.SHARD, cancel_requested=False).exclude(state__in=TERMINAL)
    for job in under_way.filter(shard__encoding__waiting_jobs=None):
        request_cancel(job)


def settle_encoding(encoding_id: int) -> None:
    """Requeue or end those who wait for an encoding, as its shards are, and see that these are made."""
    with transaction.atomic():
        encoding = lock_encodings(Encoding.objects.filter(pk=encoding_id))
        waiting = list(waiting_jobs().filter(waits_for=encoding_id))
        if encoding is None or not waiting:
            return
        if encoding.format != SHARD_FORMAT:
            requeue_waiting(
                encoding, "The corpus is encoded anew: this version writes shards of another format."
            )
            return
        counts = count_shards(encoding)
        if counts["failed"]:
            _fail_waiting(waiting, encoding)
        elif not counts["missing"]:
            requeue_waiting(encoding)
        elif make_shard_jobs(encoding, waiting[0], counts["queued"]):
            wake_worker(waiting[0].queue)
        else:
            report_progress(encoding, counts)


def waiting_jobs() -> QuerySet[Job]:
    """Jobs that gave their claim up for an encoding."""
    return Job.objects.filter(state=State.RETRIEVING, lease_expires_at=None, waits_for__isnull=False)


def lock_encodings(encodings: QuerySet[Encoding]) -> Encoding | None:
    return encodings.select_for_update(of=("self",)).first()


def count_shards(encoding: Encoding) -> Mapping[str, float]:
    """How many shards are missing, how many of these have failed, how many wait, and the sum of what is under way."""
    missing = Q(done_at=None)
    return encoding.shards.aggregate(
        missing=Count("pk", filter=missing),
        failed=Count("pk", filter=missing & Q(job__state__in=_ENDED_BADLY)),
        queued=Count("pk", filter=Q(job__state=State.QUEUED)),
        under_way=Sum("job__progress", filter=missing & Q(job__lease_expires_at__isnull=False), default=0.0),
    )


def forget_failures(encoding: Encoding) -> None:
    """Have shards that failed whoever waited before be tried anew, also those that get no job of theirs yet."""
    encoding.shards.filter(done_at=None, job__state__in=_ENDED_BADLY).update(job=None)


def make_shard_jobs(encoding: Encoding, like: Job, queued: float) -> int:
    """Jobs, in the queue of the one that waits, for shards that nobody makes, where few wait; returns how many.

    `queued`: of how many shards jobs wait already.
    """
    room = int(_MOST_WAITING - queued)
    if room < _MOST_WAITING // 2:
        return 0
    unmade = encoding.shards.filter(Q(job=None) | Q(job__state__in=TERMINAL), done_at=None).order_by("number")
    shards = list(unmade[:room])
    if not shards:
        return 0
    turn = next_turn(like.queue, like.submission.team if like.submission else None)
    jobs = Job.objects.bulk_create(
        Job(
            kind=Job.Kind.SHARD,
            queue=like.queue,
            turn=turn + count // SHARDS_A_TURN,
            dataset=like.dataset,
            state=State.QUEUED,
            validated=True,
            payload={
                **_unprotected_payload(like),
                "shard": shard.number,
                "shards": encoding.shards_expected,
            },
        )
        for count, shard in enumerate(shards)
    )
    for shard, job in zip(shards, jobs, strict=True):
        shard.job = job
    Shard.objects.bulk_update(shards, ["job"])
    return len(shards)


def _unprotected_payload(job: Job) -> dict[str, bool]:
    """Whether the job, and so its shards, may run without a sandbox."""
    return {UNPROTECTED: True} if job.payload.get(UNPROTECTED) is True else {}


def report_progress(encoding: Encoding, counts: Mapping[str, float]) -> None:
    """Show whoever waits how far the shards are, as counted, those under way by their own progress."""
    done = encoding.shards_expected - counts["missing"] + counts["under_way"]
    # One that somebody withdraws is left out: who waited for it here would hold rows that they want.
    waiting = waiting_jobs().filter(waits_for=encoding).select_for_update(skip_locked=True, no_key=True)
    Job.objects.filter(pk__in=list(waiting.values_list("pk", flat=True))).update(
        progress=min(done / encoding.shards_expected, 1.0),
    )


def requeue_waiting(encoding: Encoding, line: str = "All shards are encoded.") -> None:
    """Put everyone who waits back into the queue."""
    for job in waiting_jobs().filter(waits_for=encoding):
        if advance(job.pk, State.QUEUED, stage="", progress=0.0, progress_note="", not_before=None):
            write_log(job.pk, line)
            wake_worker(job.queue)


def _fail_waiting(waiting: Iterable[Job], encoding: Encoding) -> None:
    """End those who wait as the first shard that failed has ended, with its reason."""
    failed = encoding.shards.filter(done_at=None, job__state__in=_ENDED_BADLY).select_related("job")
    shard = failed[0]
    cause = shard.job
    assert cause is not None
    for job in waiting:
        write_log(job.pk, f"Shard {shard.number + 1} of the corpus could not be encoded.")
        advance(
            job.pk,
            State(cause.state),
            report=cause.report,
            error_code=cause.error_code,
            fault=cause.fault,
        )
    logger.warning("shard %s failed %s", shard.pk, cause.error_code)
