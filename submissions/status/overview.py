"""Snapshots of workers, queues, and running jobs, for the operators' page and the status page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Min, QuerySet

from leaderboard.models import HardwareClass, WorkRequest
from submissions.models import TERMINAL, WAITING, AccountMail, Delivery, Job, Notice, State, Worker
from submissions.models.notifications import is_due
from submissions.queue.workers import SILENCE, count_workers

#: States that count as failures; rejected files are the submitter's responsibility, but their codes are listed.
_ENDED_BADLY = (State.FAILED, State.TIMED_OUT, State.REJECTED)
_PERIOD = timedelta(days=1)
#: Consequences of a queue without a live worker, reported even if no job waits. GPU workers are optional.
_CONSEQUENCES = {
    "score": "runs are accepted but must wait",
    "cpu": "baselines and models must wait",
    "dispatch": "imports and rescores must wait",
}
#: Waiting time after which jobs are reported that live workers have not started.
_MAX_WAIT = timedelta(minutes=10)
#: Name of an item of each queue, in the singular.
_UNITS = {
    "score": "scoring job", "cpu": "CPU job", "gpu": "GPU job", "notices": "message", "dispatch": "request",
}  # fmt: skip
#: The name of the service for each queue, as in `make run` and compose.
SERVICES = {
    "score": "scorer", "cpu": "retriever", "gpu": "GPU retriever", "notices": "notifier", "dispatch": "dispatcher",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job that a worker holds."""

    job: Job
    since: timedelta
    #: Time until the lease ends unless it is extended; negative after its end.
    lease: timedelta

    @property
    def is_silent(self) -> bool:
        """Whether its lease has ended, because its worker is silent."""
        return self.lease < timedelta(0)


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, with its jobs and its time since the last heartbeat."""

    worker: Worker
    hardware: str
    silent: timedelta
    alive: bool
    jobs: Sequence[JobRow]

    @property
    def retrieves(self) -> bool:
        """Whether it runs models, so that its hardware matters."""
        return bool({Job.Queue.CPU.value, Job.Queue.GPU.value} & set(self.worker.queues))

    @property
    def services(self) -> str:
        """Service names for the queues that it serves."""
        return ", ".join(SERVICES.get(queue, queue) for queue in self.worker.queues)

    @property
    def state(self) -> str:
        """State of the worker in a few words."""
        if not self.alive:
            return "gone"
        if self.worker.refusal:
            return "refuses work"
        return "working" if self.jobs else "idle"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue with its waiting work and its workers.

    `under_way` is None if running work is not recorded.
    """

    name: str
    waiting: int
    oldest: timedelta | None
    #: Number of items that are retried later or wait for judgments.
    later: int
    workers: int
    refusing: int
    under_way: int | None = None

    @property
    def unit(self) -> str:
        return _UNITS[self.name]

    @property
    def problem(self) -> str:
        """Problem of the queue, such as a missing worker or jobs that do not start, and its remedy; empty if none."""
        is_late = self.oldest is not None and self.oldest >= _MAX_WAIT
        if self.workers and (self.under_way or not is_late):
            return ""
        remedy = f"Start the {SERVICES[self.name]}."
        if not self.waiting:
            consequence = "" if self.refusing else _CONSEQUENCES.get(self.name)
            return f"No worker for {self.unit}s is online: {consequence}. {remedy}" if consequence else ""
        subject = f"{self.waiting:,} {self.unit}{'s wait' if self.waiting != 1 else ' waits'}"
        if is_late and self.oldest is not None:
            subject += f" (longest wait: {self.oldest.total_seconds() // 60:,.0f} minutes)"
        if self.workers:
            return f"{subject}, but no worker starts {'it' if self.waiting == 1 else 'them'}. See the workers’ logs."
        if self.refusing:
            return f"{subject}: its workers refuse work."
        return f"{subject}, and no worker for {self.unit}s is online. {remedy}"


@dataclass(frozen=True, slots=True)
class Overview:
    """A snapshot of queues, workers, and jobs."""

    at: datetime
    queues: Sequence[QueueRow]
    workers: Sequence[WorkerRow]
    jobs: Sequence[JobRow]
    #: Counts of failed jobs by kind, state, and error code.
    failures: Sequence[dict[str, Any]]

    @property
    def figures(self) -> list[tuple[str, int]]:
        """Numbers of workers and jobs, with labels."""
        return [
            ("Workers online, all queues", sum(row.alive for row in self.workers)),
            ("Jobs running", len(self.jobs)),
            ("Jobs waiting", sum(queue.waiting for queue in self.queues)),
            ("Failed or rejected in 24 hours", sum(row["count"] for row in self.failures)),
        ]

    @property
    def problems(self) -> list[str]:
        """Sentences on problems that need an operator."""
        # Import here, so that processes that only register the admin do not load the broker's client.
        from leaderboard.views.health import broker_answers, disk_state

        live_workers = [row.worker for row in self.workers if row.alive]
        refusals = dict.fromkeys(worker.refusal for worker in live_workers if worker.refusal)
        problems = [*(queue.problem for queue in self.queues if queue.problem), *refusals]
        if not broker_answers():
            problems.insert(0, "The message broker does not answer, so jobs start late. Start Valkey or Redis.")
        if disk_state() != "ok":
            problems.insert(0, "The disk is full, so uploads are refused. Free space under RUNBOARD_VAR.")
        if settings.CONTAINERS:
            names = [worker.name for worker in live_workers if worker.sandbox.get("lacks_memory_groups")]
            problems += [f"Container images can exceed their memory on {name}: set SANDBOX_CGROUP." for name in names]
        return problems


def overview() -> Overview:
    """Return a snapshot of the present workers, queues, and claimed jobs, and of failures of the last day."""
    now = Worker.objects.database_now()
    claimed_jobs = Job.objects.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False)
    jobs = []
    for job in claimed_jobs.select_related("dataset", "submission").defer("log", "report", "payload"):
        assert job.lease_expires_at is not None
        jobs.append(JobRow(job, _age(job.started_at or now, now), job.lease_expires_at - now))
    workers = _worker_rows(now, jobs)
    # Messages for the notifier, and requests that the dispatcher has not processed yet.
    outboxes = (
        AccountMail.objects.all(),
        Notice.objects.filter(mail_state="waiting"),
        Delivery.objects.filter(state="waiting"),
    )
    counts = [
        rows.order_by().aggregate(n=Count("pk"), due=Count("pk", filter=is_due()), oldest=Min("created_at"))
        for rows in outboxes
    ]
    oldest_message = min((row["oldest"] for row in counts if row["oldest"]), default=None)
    messages = sum(row["due"] for row in counts)
    retried_later = sum(row["n"] for row in counts) - messages
    requests, oldest_request = _count_rows(WorkRequest.objects.filter(taken_at=None))
    queues = [
        *_job_queue_rows(now, workers),
        _row("notices", now, workers, oldest_message, waiting=messages, later=retried_later),
        _row("dispatch", now, workers, oldest_request, waiting=requests, later=0),
    ]
    failed_jobs = Job.objects.filter(state__in=_ENDED_BADLY, finished_at__gte=now - _PERIOD).order_by()
    failure_counts = failed_jobs.values("error_code", "kind", "state").annotate(
        count=Count("pk"), last=Max("finished_at")
    )
    failures = [
        {**row, "kind": Job.Kind(row["kind"]).label, "state": State(row["state"]).label}
        for row in failure_counts.order_by("-count", "error_code", "kind")
    ]
    return Overview(now, queues, workers, jobs, failures)


def job_queues() -> list[QueueRow]:
    """Return the present job queues with the numbers of their waiting jobs and workers."""
    now = Worker.objects.database_now()
    return list(_job_queue_rows(now, _worker_rows(now, [])))


def _worker_rows(now: datetime, jobs: Sequence[JobRow]) -> list[WorkerRow]:
    """Return all workers with the jobs that they hold, live workers first."""
    names = dict(HardwareClass.objects.values_list("slug", "name"))
    rows = [
        WorkerRow(
            worker=worker,
            hardware=names.get(worker.hardware_class, worker.hardware_class),
            silent=_age(worker.seen_at, now),
            alive=now - worker.seen_at < SILENCE,
            jobs=[row for row in jobs if row.job.worker.rpartition(":")[0] == worker.name],
        )
        for worker in Worker.objects.order_by("name")
    ]
    return sorted(rows, key=lambda row: not row.alive)


def _row(name: str, now: datetime, workers: Sequence[WorkerRow], oldest: datetime | None, **values: Any) -> QueueRow:
    """Return a queue's row, counting the live workers that accept and refuse work. `values` are its other fields."""
    values["workers"], values["refusing"] = count_workers(name, [row.worker for row in workers if row.alive])
    return QueueRow(name=name, oldest=_age(oldest, now) if oldest else None, **values)


def _job_queue_rows(now: datetime, workers: Sequence[WorkerRow]) -> Iterator[QueueRow]:
    """Yield a row for each job queue, with the numbers of waiting, delayed, and claimed jobs."""
    for name in Job.Queue.values:
        queue_jobs = Job.objects.filter(queue=name).order_by()
        waiting_count, oldest = _count_rows(Job.objects.waiting().filter(queue=name))
        unclaimed_count = queue_jobs.filter(state__in=WAITING, lease_expires_at=None).count()
        under_way = queue_jobs.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False).count()
        counts = {"waiting": waiting_count, "later": unclaimed_count - waiting_count, "under_way": under_way}
        yield _row(name, now, workers, oldest, **counts)


def _count_rows(rows: QuerySet[Any]) -> tuple[int, datetime | None]:
    """Return the number of rows and the creation time of the oldest one."""
    aggregates = rows.order_by().aggregate(n=Count("pk"), oldest=Min("created_at"))
    return aggregates["n"], aggregates["oldest"]


def _age(start: datetime, now: datetime) -> timedelta:
    return max(now - start, timedelta(0))
