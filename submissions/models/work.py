"""Submissions, jobs, workers, and stage times."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Max, Q
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from leaderboard.models import Dataset, RunType


class State(models.TextChoices):
    """State of a job and of its submission. `queue.TRANSITIONS` defines the allowed transitions."""

    UPLOADING = "uploading", "uploading"
    VALIDATING = "validating", "validating"
    QUEUED = "queued", "queued"
    RETRIEVING = "retrieving", "retrieving"
    SCORING = "scoring", "scoring"
    DONE = "done", "done"
    REJECTED = "rejected", "rejected"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"
    TIMED_OUT = "timed_out", "timed out"
    WITHDRAWN = "withdrawn", "withdrawn"


TERMINAL = frozenset({State.DONE, State.REJECTED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.WITHDRAWN})
#: Terminal states that a process other than the job's worker can set.
ENDED_BY_OTHERS = frozenset({State.TIMED_OUT, State.CANCELLED})
#: Period after a failure on our side in which a job can be retried and its file is kept.
RETRY_PERIOD = timedelta(days=14)
#: States in which a job without a lease waits for a worker.
WAITING = frozenset({State.QUEUED, State.VALIDATING})


def new_identifier() -> str:
    """Return a random public id of 12 lowercase letters and digits, which does not reveal the number of submissions."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "".join(secrets.choice(alphabet) for _ in range(12))


class Submission(models.Model):
    """A user's submission for one team. Its state follows from its jobs. Written by `intake` and `jobs.changes`."""

    class Kind(models.TextChoices):
        """Kind of the submitted files."""

        RUN = "run", "run files"
        MODEL = "model", "a model"

    id = models.CharField(primary_key=True, max_length=20, default=new_identifier, editable=False)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.RUN)
    submitter = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="submissions")
    team = models.ForeignKey("leaderboard.Team", on_delete=models.PROTECT, related_name="submissions")
    system = models.ForeignKey("leaderboard.System", on_delete=models.PROTECT, related_name="submissions")
    configuration = models.CharField(max_length=80, blank=True)
    engine = models.CharField(max_length=40, blank=True, help_text="Engine that runs the model.")
    parameters = models.JSONField(default=dict, blank=True, help_text="All parameters of the engine.")
    checkpoint = models.ForeignKey(
        "Checkpoint", null=True, blank=True, on_delete=models.PROTECT, related_name="submissions"
    )
    reusable = models.BooleanField(default=False, help_text="Allow others to re-rank or fuse the runs.")
    round = models.ForeignKey(
        "leaderboard.Round", null=True, blank=True, on_delete=models.PROTECT, related_name="submissions"
    )
    late = models.BooleanField(default=False, help_text="Whether the submission arrived after its round had closed.")
    run_type = models.CharField(max_length=10, blank=True, choices=RunType.choices)
    priority = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Priority among the team's runs for pooling; 1 is highest."
    )
    public = models.BooleanField(default=True)
    note = models.TextField(blank=True)
    bulk = models.CharField(
        max_length=20, blank=True, db_index=True, help_text="Id of the bulk import, whose submissions share one notice."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawal_reason = models.CharField(max_length=300, blank=True)
    noticed_at = models.DateTimeField(
        null=True, blank=True, db_index=True, help_text="Time when the team was notified of the outcome."
    )

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.system} ({self.id})"

    def get_absolute_url(self) -> str:
        return reverse("submission", args=[self.id])


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs, filtered by their state in the queue."""

    def waiting(self) -> Self:
        """Return the jobs without a lease that a worker may claim now, by the database's clock.

        Jobs that score runs on a collecting dataset wait for its first judgments.
        """
        now, longest = Now(), timedelta(seconds=2 * max(settings.QUEUE_TIMES.retries))
        return self.filter(
            Q(state__in=WAITING),
            Q(lease_expires_at=None),
            # A time beyond the longest backoff was written before the clock was set back; ignore it.
            Q(not_before=None) | Q(not_before__lte=now) | Q(not_before__gt=now + longest),
        ).exclude(
            # Scoring waits for judgments. Validation, baselines, and pooling do not.
            Q(kind__in=Job.NEEDS_JUDGEMENTS) | Q(kind=Job.Kind.SCORE, validated=True),
            dataset__state="collecting",
            dataset__current_qrels=None,
        )

    def blocking_resubmission(self) -> Self:
        """Return the jobs that block resubmission of the same file because they made, or may still make, a result.

        Jobs that failed do not block, nor do scored runs of a seed set that can no longer be completed.
        """
        unfinished = Job.objects.filter(
            submission=models.OuterRef("submission"), dataset=models.OuterRef("dataset")
        ).exclude(state__in=TERMINAL)
        failure_states = [State.REJECTED, State.FAILED, State.CANCELLED, State.TIMED_OUT]
        return self.exclude(
            Q(state__in=failure_states)
            | Q(state=State.WITHDRAWN, entry=None)
            | Q(state=State.DONE, entry=None) & ~Q(seed="") & ~models.Exists(unfinished)
        )

    def lost_by_us(self) -> Self:
        """Return the jobs that failed because of a problem on our side and can still be retried.

        Models that exceeded their own time limit are not included.
        """
        earliest = timezone.now() - RETRY_PERIOD
        is_our_failure = Q(state=State.FAILED) | Q(state=State.TIMED_OUT, kind=Job.Kind.SCORE)
        kinds = (Job.Kind.SCORE, Job.Kind.MODEL)
        return self.filter(is_our_failure, kind__in=kinds, finished_at__gt=earliest, submission__withdrawn_at=None)

    def needing_files(self) -> Self:
        """Return the jobs whose files must be kept because they are unfinished or can be retried."""
        return self.filter(~Q(state__in=TERMINAL) | Q(pk__in=Job.objects.lost_by_us().values("pk")))

    def claimed_by(self, worker: str) -> Self:
        """Return the unfinished jobs of this worker's pool processes, whose claims start with its name."""
        return self.exclude(state__in=TERMINAL).filter(worker__startswith=f"{worker}:", lease_expires_at__isnull=False)

    def silent_or_ended(self, worker: str) -> Self:
        """Return the worker's jobs that were not renewed for half a lease, or that another process has ended.

        Jobs ended by another process are in one of the states `ENDED_BY_OTHERS`.
        """
        limit = Now() + timedelta(seconds=settings.QUEUE_TIMES.lease / 2)
        worker_jobs = self.filter(worker__startswith=f"{worker}:")
        return worker_jobs.filter(Q(lease_expires_at__lt=limit) | Q(state__in=ENDED_BY_OTHERS))

    def expired(self) -> Self:
        """Return the unfinished jobs whose lease has expired by the database's clock."""
        # A lease that ends later than any lease granted now was granted before the clock was set back.
        now, longest = Now(), timedelta(seconds=2 * settings.QUEUE_TIMES.lease)
        return self.exclude(state__in=TERMINAL).filter(
            Q(lease_expires_at__lt=now) | Q(lease_expires_at__gt=now + longest)
        )


class Job(models.Model):
    """A unit of work. The row is authoritative; the broker only carries wakeups. Written by `queue` and `intake`."""

    class Kind(models.TextChoices):
        """Kind of work."""

        SCORE = "score", "score a run"
        RETRIEVE = "retrieve", "retrieve and score"
        BASELINE = "baseline", "baseline"
        MODEL = "model", "run a model and score"
        SHARD = "shard", "encode a shard"
        SAMPLE_MODEL = "sample_model", "sample model"
        CERTAINTY = "certainty", "intervals and tests"
        STATISTICS = "statistics", "statistics of a collection"
        POOL = "pool", "draw a pool"
        MERGE = "merge", "merge judgments"
        RESCORE = "rescore", "rescore"
        PROTECT = "protect", "split a competition's queries"
        REVEAL = "reveal", "reveal a round"
        DOWNLOAD = "download", "download a collection"
        RENEW = "renew", "start a new batch of topics"

    #: Job kinds that cannot start without judgments. Uploaded runs need them only for scoring.
    NEEDS_JUDGEMENTS = (Kind.RETRIEVE, Kind.MODEL, Kind.SHARD, Kind.SAMPLE_MODEL, Kind.CERTAINTY)

    class Queue(models.TextChoices):
        """Queue whose workers run the job."""

        SCORE = "score", "score"
        CPU = "cpu", "cpu"
        GPU = "gpu", "gpu"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    queue = models.CharField(max_length=8, choices=Queue.choices)
    turn = models.PositiveIntegerField(
        default=0, help_text="Round of fair scheduling in the queue; a team has one job per round (queue.next_turn)."
    )
    submission = models.ForeignKey(Submission, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs")
    # Annotated as always set: only downloads of new collections have none, and they do not read it.
    dataset: models.ForeignKey[Dataset, Dataset] = models.ForeignKey(  # type: ignore[misc]
        "leaderboard.Dataset", null=True, blank=True, on_delete=models.PROTECT, related_name="jobs"
    )
    payload = models.JSONField(default=dict, blank=True)
    file_name = models.CharField(max_length=200, blank=True, help_text="File name sent by the client.")
    upload_sha256 = models.CharField(max_length=64, blank=True)
    seed = models.CharField(
        max_length=80, blank=True, help_text="Seed label, if the submission has several runs for the dataset."
    )
    validated = models.BooleanField(
        default=False, help_text="Whether the file passed validation before the job was queued."
    )

    state = models.CharField(max_length=10, choices=State.choices)
    stage = models.CharField(max_length=20, blank=True)
    progress = models.FloatField(default=0.0, help_text="Completed share of the current state's work, from 0 to 1.")
    progress_note = models.CharField(
        max_length=120, blank=True, help_text="Progress in words, such as “12,000 of 50,000 documents”."
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    fence = models.PositiveIntegerField(
        default=0, help_text="Number of claims; only the holder of the last claim may write."
    )
    worker = models.CharField(max_length=120, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True, db_index=True)
    not_before = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)

    report = models.JSONField(default=dict, blank=True, help_text="Validation report.")
    error_code = models.CharField(max_length=40, blank=True)
    fault = models.CharField(max_length=16, blank=True, help_text="Id of the failure in the log.")
    entry = models.ForeignKey(
        "leaderboard.Entry",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="jobs",
        help_text="Entry that the job created, alone or as part of a seed set.",
    )
    evaluation = models.ForeignKey(
        "leaderboard.Evaluation",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Evaluation of a run of a seed set, which becomes an entry once the set is complete.",
    )
    further_entries = models.ManyToManyField(
        "leaderboard.Entry", blank=True, related_name="+", help_text="Variants of the result, such as smaller depths."
    )
    waits_for = models.ForeignKey(
        "Encoding", null=True, blank=True, on_delete=models.PROTECT, related_name="waiting_jobs"
    )
    log = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[models.Manager[Job]] = JobQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["state", "queue"])]
        constraints = [
            models.CheckConstraint(condition=Q(progress__gte=0) & Q(progress__lte=1), name="progress_is_a_share"),
            models.CheckConstraint(
                condition=Q(dataset__isnull=False) | Q(kind="download"), name="job_has_a_dataset_unless_it_downloads"
            ),
            # A job cannot create a second entry, because its state changes to "done" once, with the entry.
            models.UniqueConstraint(fields=["entry"], condition=Q(seed=""), name="entry_of_one_job"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.dataset} ({self.state})"

    @property
    def model_parameters(self) -> dict[str, Any]:
        """Engine parameters on this dataset: the submission's, overridden by dataset-specific ones."""
        parameters = self.submission.parameters if self.submission else {}
        return {**parameters, **self.payload.get("parameters", {})}


class WorkerQuerySet(models.QuerySet["Worker"]):
    """Workers, filtered by their last heartbeat. Times are the database's, because clocks of machines may differ."""

    def heard_within(self, time_ago: timedelta) -> Self:
        return self.filter(seen_at__gt=Now() - time_ago)

    def database_now(self) -> datetime:
        """Return the current time by the clock that wrote the heartbeats."""
        now: datetime = self.aggregate(now=Max(Now(), default=Now()))["now"]
        return now


class Worker(models.Model):
    """A registered worker process. Times are from the database's clock. Written by `queue.workers`."""

    name = models.CharField(max_length=120, unique=True)
    queues = models.JSONField(default=list)
    version = models.CharField(max_length=40, blank=True)
    hardware_class = models.CharField(
        max_length=200, blank=True, help_text="Hardware class of timings measured by this worker."
    )
    sandbox = models.JSONField(
        default=dict, blank=True, help_text="Sandbox for models, with the fields of capability.Capability."
    )
    refusal = models.CharField(max_length=300, blank=True, help_text="Reason why the worker accepts no jobs.")
    dispatched_at = models.DateTimeField(
        null=True, blank=True, help_text="Time when the worker last acted as dispatcher."
    )
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)

    objects = WorkerQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name


class StageTime(models.Model):
    """A cumulative histogram bucket: how often a stage of this kind of job took at most `limit` seconds.

    The bucket without a limit counts all stages and has the sum of their seconds. Written by `submissions.queue.lease`.
    """

    kind = models.CharField(max_length=12, help_text="Job.Kind")
    stage = models.CharField(max_length=20)
    limit = models.FloatField(help_text="Upper bound in seconds; 0 means no limit.")
    count = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)

    class Meta:
        ordering = ["kind", "stage", "limit"]
        constraints = [models.UniqueConstraint(fields=["kind", "stage", "limit"], name="one_bucket_of_a_stage")]

    def __str__(self) -> str:
        return f"{self.kind} {self.stage} ≤ {self.limit or '∞'} s: {self.count}"
