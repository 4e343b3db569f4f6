"""Submissions, their jobs, the workers that do them, and how long they take."""

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

from leaderboard.models import RunType


class State(models.TextChoices):
    """The states of a job, and of the submission it belongs to. `queue.TRANSITIONS` says which may follow."""

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


TERMINAL = frozenset(
    {State.DONE, State.REJECTED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.WITHDRAWN}
)
#: States that others than its holder bring a claimed job to.
ENDED_BY_OTHERS = frozenset({State.TIMED_OUT, State.CANCELLED})
#: So long after a fault of ours a job may be tried again, and its file is kept.
RETRIED_FOR = timedelta(days=14)
#: States in which a job waits for a worker (when nobody holds a lease on it).
WAITING = frozenset({State.QUEUED, State.VALIDATING})


def new_identifier() -> str:
    """A short public id that tells nothing about how many there are: 12 lower-case letters and digits."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "".join(secrets.choice(alphabet) for _ in range(12))


class Submission(models.Model):
    """One act of one person for one team. Written by `intake` and `withdrawal`; its state follows from its jobs."""

    class Kind(models.TextChoices):
        """What was brought."""

        RUN = "run", "run files"
        MODEL = "model", "a model"

    id = models.CharField(primary_key=True, max_length=20, default=new_identifier, editable=False)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.RUN)
    submitter = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="submissions"
    )
    team = models.ForeignKey("leaderboard.Team", on_delete=models.PROTECT, related_name="submissions")
    system = models.ForeignKey("leaderboard.System", on_delete=models.PROTECT, related_name="submissions")
    configuration = models.CharField(max_length=80, blank=True)
    engine = models.CharField(max_length=40, blank=True, help_text="What a model is run with.")
    parameters = models.JSONField(default=dict, blank=True, help_text="All of the engine's parameters.")
    checkpoint = models.ForeignKey(
        "Checkpoint", null=True, blank=True, on_delete=models.PROTECT, related_name="submissions"
    )
    reusable = models.BooleanField(default=False, help_text="Others may re-rank or fuse its runs.")
    round = models.ForeignKey(
        "leaderboard.Round", null=True, blank=True, on_delete=models.PROTECT, related_name="submissions"
    )
    late = models.BooleanField(default=False, help_text="It came after its round had closed.")
    run_type = models.CharField(max_length=10, blank=True, choices=RunType.choices)
    priority = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="The team's own order of its runs for pooling, 1 first."
    )
    public = models.BooleanField(default=True)
    note = models.TextField(blank=True)
    bulk = models.CharField(
        max_length=20,
        blank=True,
        db_index=True,
        help_text="The import of many that it came with: told of as one.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawal_reason = models.CharField(max_length=300, blank=True)
    noticed_at = models.DateTimeField(
        null=True, blank=True, db_index=True, help_text="When its people were told how it ended."
    )

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.system} ({self.id})"

    def get_absolute_url(self) -> str:
        """The status page."""
        return reverse("submission", args=[self.id])


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs, by what the queue may do with them."""

    def waiting(self) -> Self:
        """Those that a worker may claim now, by the database's clock."""
        now, longest = Now(), timedelta(seconds=2 * max(settings.QUEUE_TIMES.retries))
        return self.filter(
            Q(state__in=WAITING),
            Q(lease_expires_at=None),
            # None waits longer than the longest backoff: a later moment comes of a clock that has been set back since.
            Q(not_before=None) | Q(not_before__lte=now) | Q(not_before__gt=now + longest),
        ).exclude(
            # What is scored waits for judgements; files are checked, baselines retrieved and pools drawn meanwhile.
            Q(kind__in=Job.NEEDS_JUDGEMENTS) | Q(kind=Job.Kind.SCORE, validated=True),
            dataset__state="collecting",
            dataset__current_qrels=None,
        )

    def blocking_resubmission(self) -> Self:
        """Those that stand in the way of the same file sent again: they made a result, or still may.

        Not those that ended badly, nor the scored runs of a seed set that will never be complete.
        """
        unfinished = Job.objects.filter(
            submission=models.OuterRef("submission"), dataset=models.OuterRef("dataset")
        ).exclude(state__in=TERMINAL)
        lost = [State.REJECTED, State.FAILED, State.CANCELLED, State.TIMED_OUT]
        return self.exclude(
            Q(state__in=lost)
            | Q(state=State.WITHDRAWN, entry=None)
            | Q(state=State.DONE, entry=None) & ~Q(seed="") & ~models.Exists(unfinished)
        )

    def lost_by_us(self) -> Self:
        """Those of submissions that ended through our fault, lately enough to be tried again.

        A model's own time is its owner's affair.
        """
        since = timezone.now() - RETRIED_FOR
        ours = Q(state=State.FAILED) | Q(state=State.TIMED_OUT, kind=Job.Kind.SCORE)
        kinds = (Job.Kind.SCORE, Job.Kind.MODEL)
        return self.filter(ours, kind__in=kinds, finished_at__gt=since, submission__withdrawn_at=None)

    def needing_files(self) -> Self:
        """Those that have not ended, or may be tried again: what they are to work on is kept."""
        lost = Job.objects.lost_by_us().values("pk")
        return self.filter(~Q(state__in=TERMINAL) | Q(pk__in=lost))

    def held_by(self, worker: str) -> Self:
        """Those that pool processes of this worker hold; claims bear their ids behind its name."""
        return self.exclude(state__in=TERMINAL).filter(
            worker__startswith=f"{worker}:", lease_expires_at__isnull=False
        )

    def silent_or_ended(self, worker: str) -> Self:
        """Those that pool processes of this worker have not told of for half a lease, or have not let go of.

        The latter somebody else ended, and they are in one of the states `ENDED_BY_OTHERS`.
        """
        limit = Now() + timedelta(seconds=settings.QUEUE_TIMES.lease / 2)
        own = self.filter(worker__startswith=f"{worker}:")
        return own.filter(Q(lease_expires_at__lt=limit) | Q(state__in=ENDED_BY_OTHERS))

    def expired(self) -> Self:
        """Those whose worker went silent by the database's clock, in every state that is not terminal."""
        # One that ends later than any that is given now was given by a clock that has been set back since.
        now, longest = Now(), timedelta(seconds=2 * settings.QUEUE_TIMES.lease)
        return self.exclude(state__in=TERMINAL).filter(
            Q(lease_expires_at__lt=now) | Q(lease_expires_at__gt=now + longest)
        )


class Job(models.Model):
    """A piece of work: the row is the truth, the broker only carries wakeups. Written by `queue` and `intake` alone."""

    class Kind(models.TextChoices):
        """What is to be done."""

        SCORE = "score", "score a run"
        RETRIEVE = "retrieve", "retrieve and score"
        BASELINE = "baseline", "baseline"
        MODEL = "model", "run a model and score"
        SHARD = "shard", "encode a shard"
        SAMPLE_MODEL = "sample_model", "sample model"
        CERTAINTY = "certainty", "intervals and tests"
        STATISTICS = "statistics", "figures of a collection"
        POOL = "pool", "draw a pool"
        MERGE = "merge", "merge judgements"
        RESCORE = "rescore", "rescore"
        PROTECT = "protect", "draw a competition's parts"
        REVEAL = "reveal", "sum up a round"

    #: What cannot begin without judgements; of uploaded runs only the scoring.
    NEEDS_JUDGEMENTS = (Kind.RETRIEVE, Kind.MODEL, Kind.SHARD, Kind.SAMPLE_MODEL, Kind.CERTAINTY)

    class Queue(models.TextChoices):
        """Which workers take it."""

        SCORE = "score", "score"
        CPU = "cpu", "cpu"
        GPU = "gpu", "gpu"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    queue = models.CharField(max_length=8, choices=Queue.choices)
    turn = models.PositiveIntegerField(
        default=0,
        help_text="The round of its queue that it is in; a team has one job in each (queue.next_turn).",
    )
    submission = models.ForeignKey(
        Submission, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs"
    )
    dataset = models.ForeignKey("leaderboard.Dataset", on_delete=models.PROTECT, related_name="jobs")
    payload = models.JSONField(default=dict, blank=True)
    file_name = models.CharField(max_length=200, blank=True, help_text="What the sender called the file.")
    upload_sha256 = models.CharField(max_length=64, blank=True)
    seed = models.CharField(
        max_length=80,
        blank=True,
        help_text="Its label, where the submission brought several runs for the dataset.",
    )
    validated = models.BooleanField(
        default=False, help_text="The file passed validation before it was queued."
    )

    state = models.CharField(max_length=10, choices=State.choices)
    stage = models.CharField(max_length=20, blank=True)
    progress = models.FloatField(default=0.0, help_text="Share of the current state's work, 0 to 1.")
    progress_note = models.CharField(
        max_length=120, blank=True, help_text="What a bar cannot say: 12,000 of 50,000 documents."
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    fence = models.PositiveIntegerField(
        default=0, help_text="Counts the claims; only the last claim may write."
    )
    worker = models.CharField(max_length=120, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True, db_index=True)
    not_before = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)

    report = models.JSONField(default=dict, blank=True, help_text="The validation report.")
    error_code = models.CharField(max_length=40, blank=True)
    fault = models.CharField(
        max_length=16, blank=True, help_text="The id under which our log knows the failure."
    )
    entry = models.ForeignKey(
        "leaderboard.Entry",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="jobs",
        help_text="What it made, or, for a run of a seed set, made a part of.",
    )
    evaluation = models.ForeignKey(
        "leaderboard.Evaluation",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Of a run of a seed set, which makes an entry only with all others of the set.",
    )
    further_entries = models.ManyToManyField(
        "leaderboard.Entry", blank=True, related_name="+", help_text="Variants, such as lesser depths."
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
            models.CheckConstraint(
                condition=Q(progress__gte=0) & Q(progress__lte=1), name="progress_is_a_share"
            ),
            # That a job makes no second entry is its state's affair, which changes to "done" once, with the entry.
            models.UniqueConstraint(fields=["entry"], condition=Q(seed=""), name="entry_of_one_job"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.dataset} ({self.state})"

    @property
    def model_parameters(self) -> dict[str, Any]:
        """The engine's parameters on this dataset: its submission's, with those that are the dataset's own."""
        shared = self.submission.parameters if self.submission else {}
        return {**shared, **self.payload.get("parameters", {})}


class WorkerQuerySet(models.QuerySet["Worker"]):
    """Workers, by when they were heard of. Times are the database's: the clocks of several machines may differ."""

    def heard_within(self, time_ago: timedelta) -> Self:
        """Those heard of in so much time before now."""
        return self.filter(seen_at__gt=Now() - time_ago)

    def database_now(self) -> datetime:
        """What time it is by the clock that wrote when they were heard of."""
        now: datetime = self.aggregate(now=Max(Now(), default=Now()))["now"]
        return now


class Worker(models.Model):
    """A worker process that announced itself, at times of the database's clock. Written by `heartbeat`."""

    name = models.CharField(max_length=120, unique=True)
    queues = models.JSONField(default=list)
    version = models.CharField(max_length=40, blank=True)
    hardware_class = models.CharField(
        max_length=200, blank=True, help_text="What timings made by it are filed under."
    )
    sandbox = models.JSONField(
        default=dict, blank=True, help_text="What it can run models in, as capability.Capability."
    )
    refusal = models.CharField(max_length=300, blank=True, help_text="Why it takes no work.")
    dispatched_at = models.DateTimeField(
        null=True, blank=True, help_text="When it last took the dispatcher's turn."
    )
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)

    objects = WorkerQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name


class StageTime(models.Model):
    """One bucket of a histogram: how many times a stage of this kind of job took at most `limit` seconds.

    The bucket without a limit counts all of them, and has the sum of their seconds. Written by
    `submissions.queue.lease`.
    """

    kind = models.CharField(max_length=12, help_text="Job.Kind")
    stage = models.CharField(max_length=20)
    limit = models.FloatField(help_text="Seconds; 0 stands for no limit.")
    count = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)

    class Meta:
        ordering = ["kind", "stage", "limit"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "stage", "limit"], name="one_bucket_of_a_stage")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.stage} ≤ {self.limit or '∞'} s: {self.count}"
