"""Jobs that start batches of topics and run earlier models on them."""

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from leaderboard.importing.topics.batches import SourceExhausted
from leaderboard.importing.topics.renewal import RenewalRefused, renew
from leaderboard.models import Entry, TopicBatch, TopicSource, WorkRequest
from submissions.jobs.kinds.handover import RetrievalResult
from submissions.jobs.kinds.score import begin
from submissions.models import Job, State
from submissions.queue.lease import Lease, finish
from submissions.queue.queue import log_line, next_turn, wake_worker
from submissions.queue.workers import UNPROTECTED

#: Keys of a job's payload that describe what it runs.
_INPUTS = ("configuration", "run_ids", "parameters", "hub_name", "hub_commit", UNPROTECTED)
#: Visibilities of results that a curator or their team removed.
_REMOVED = (Entry.Visibility.QUARANTINED, Entry.Visibility.UNPUBLISHED, Entry.Visibility.WITHDRAWN)


def renew_job(job: Job, lease: Lease) -> None:
    """Start the batch of topics in the payload, or disable a rolling benchmark without further topics.

    A renewal that is refused is requested again later, on schedule.

    Raises LeaseLost, Cancelled, or InvalidContent.
    """
    begin(job, State.SCORING, "reading")
    source, number = TopicSource.objects.get(pk=job.payload["source"]), job.payload["number"]
    try:
        line = f"Batch {number} started." if renew(source, number) else f"Batch {number} had already started."
    except SourceExhausted as error:
        TopicSource.objects.filter(pk=source.pk).update(enabled=False)
        line = str(error)
    except RenewalRefused as error:
        line = str(error)
    finish(job, line)


def create_jobs_on_new_batches() -> None:
    """Create the jobs for pending requests to run earlier models on a new batch.

    The jobs belong to the original submissions and systems, and use no quota.
    """
    for request in WorkRequest.objects.filter(taken_at=None, kind=WorkRequest.Kind.REPEAT):
        with transaction.atomic():
            if WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now()):
                _create_jobs(request)


def _create_jobs(request: WorkRequest) -> None:
    """Create one job for each site configuration and each public model with a public result on an earlier batch.

    Results that were removed from a board are not repeated. Models that were submitted after the start of the batch
    need a submission for it, which uses quota. Models that search stored runs cannot be run again, because these runs
    do not exist for new topics.
    """
    model_jobs = Q(kind=Job.Kind.MODEL, submission__public=True, submission__withdrawn_at=None)
    site_jobs = Q(kind__in=(Job.Kind.RETRIEVE, Job.Kind.SAMPLE_MODEL))
    jobs = Job.objects.filter(model_jobs | site_jobs, state=State.DONE, dataset__in=request.payload["datasets"])
    jobs = jobs.filter(created_at__lt=TopicBatch.objects.get(dataset=request.dataset).started_at)
    removed_jobs = jobs.filter(entry__visibility__in=_REMOVED)
    identities = {_identity(job) for job in (*Job.objects.filter(dataset=request.dataset), *removed_jobs)}
    public_jobs = jobs.filter(entry__visibility=Entry.Visibility.PUBLIC)
    for job in public_jobs.select_related("submission").order_by("-pk"):
        if _identity(job) in identities or job.payload.get("run_ids"):
            continue
        identities.add(_identity(job))
        retrieval = RetrievalResult.from_payload(job.payload)
        queue = retrieval.queue if retrieval else job.queue  # a scorer may have finished the job
        Job.objects.create(
            kind=job.kind,
            queue=queue,
            turn=next_turn(queue, job.submission.team_id if job.submission else None),
            submission=job.submission,
            dataset=request.dataset,
            state=State.QUEUED,
            validated=True,
            payload={name: job.payload[name] for name in _INPUTS if name in job.payload},
            log=log_line("Run again on a new batch of topics. No quota is used."),
        )
        wake_worker(queue)


def _identity(job: Job) -> tuple[str, str | None, str]:
    return job.kind, job.submission_id, job.payload.get("configuration", "")
