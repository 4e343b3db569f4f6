"""What operators see of workers and queues: who is there and does what, what waits, what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min

from leaderboard.models import HardwareClass, WorkRequest
from submissions.models import TERMINAL, WAITING, Job, State, Worker
from submissions.notifications.backlog import unsent
from submissions.queue.capability import SILENCE
from submissions.queue.process import process_number

#: What is called a failure here; a file that cannot be scored is its sender's affair, and listed for its code.
_ENDED_BADLY = (State.FAILED, State.TIMED_OUT, State.REJECTED)
_PERIOD = timedelta(days=1)
#: What serves each queue is called, as in `make run` and compose.
SERVICES = {
    "score": "scorer", "cpu": "retriever", "gpu": "GPU retriever", "notices": "notifier", "dispatch": "dispatcher",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job that a worker holds."""

    job: Job
    process: int
    since: timedelta
    #: Until the lease ends, unless it is extended before; negative when it has.
    lease: timedelta

    @property
    def is_silent(self) -> bool:
        """Whether its worker has not been heard of for more than half a lease, or it has run out."""
        return self.lease < timedelta(0)


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker that was heard of within a day."""

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
        """What it is, by the queues that it serves."""
        return ", ".join(SERVICES.get(queue, queue) for queue in self.worker.queues)

    @property
    def state(self) -> str:
        """In a word or two."""
        if not self.alive:
            return "gone"
        if self.worker.refusal:
            return "takes nothing"
        return "at work" if self.jobs else "idle"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue: what waits in it, and for whom. `under_way` is None where nothing is noted while it is done."""

    name: str
    waiting: int
    oldest: timedelta | None
    #: Those that are tried again later, or wait for judgements.
    later: int
    under_way: int | None
    workers: int
    refusing: int
    #: What waits, one of it.
    unit: str = "job"

    @property
    def problem(self) -> str:
        """Why nothing of it is taken, as a sentence; empty where somebody takes it, or nothing waits."""
        if not self.waiting or self.workers:
            return ""
        waits = f"{self.waiting:,} {self.unit}{'s wait' if self.waiting != 1 else ' waits'}"
        if self.refusing:
            return f"{waits} in {self.name}: its workers are of another version than the database."
        return f"{waits} in {self.name}, and no {self.name} worker is alive."


@dataclass(frozen=True, slots=True)
class FailureRow:
    """How often jobs of one kind ended with one code."""

    code: str
    kind: str
    state: str
    count: int
    last: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it, at one moment."""

    at: datetime
    queues: Sequence[QueueRow]
    workers: Sequence[WorkerRow]
    jobs: Sequence[JobRow]
    failures: Sequence[FailureRow]

    @property
    def problems(self) -> list[str]:
        """What somebody should see to, a sentence each."""
        refusals = dict.fromkeys(
            row.worker.refusal for row in self.workers if row.alive and row.worker.refusal
        )
        return [*(queue.problem for queue in self.queues if queue.problem), *refusals]


def overview() -> Overview:
    """As the rows tell it now."""
    now = Worker.objects.database_now()
    jobs = _jobs(now)
    workers = _workers(now, jobs)
    queues = [_queue(name, now, workers) for name in Job.Queue.values]
    queues += [_messages(now, workers), _requests(now, workers)]
    return Overview(now, queues, workers, jobs, _failures(now))


def _jobs(now: datetime) -> list[JobRow]:
    held = Job.objects.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False)
    rows = []
    for job in held.select_related("dataset", "submission").defer("log", "report", "payload"):
        assert job.lease_expires_at is not None
        since = max(now - (job.started_at or now), timedelta(0))
        rows.append(JobRow(job, process_number(job.worker), since, job.lease_expires_at - now))
    return rows


def _workers(now: datetime, jobs: Sequence[JobRow]) -> list[WorkerRow]:
    names = dict(HardwareClass.objects.values_list("slug", "name"))
    rows = []
    for worker in Worker.objects.order_by("name"):
        rows.append(
            WorkerRow(
                worker=worker,
                hardware=names.get(worker.hardware_class, worker.hardware_class),
                silent=max(now - worker.seen_at, timedelta(0)),
                alive=now - worker.seen_at < SILENCE,
                jobs=[row for row in jobs if row.job.worker.rpartition(":")[0] == worker.name],
            )
        )
    return sorted(rows, key=lambda row: not row.alive)


def _queue(name: str, now: datetime, workers: Sequence[WorkerRow]) -> QueueRow:
    of_queue = Job.objects.filter(queue=name).order_by()
    waiting = (
        Job.objects.waiting().filter(queue=name).order_by().aggregate(n=Count("pk"), oldest=Min("created_at"))
    )
    unclaimed = of_queue.filter(state__in=WAITING, lease_expires_at=None).count()
    under_way = of_queue.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False).count()
    later = unclaimed - waiting["n"]
    return QueueRow(
        name, waiting["n"], _age(waiting["oldest"], now), later, under_way, *_serving(name, workers)
    )


def _messages(now: datetime, workers: Sequence[WorkerRow]) -> QueueRow:
    """Mail and messages to webhooks, which the notifier sends."""
    rows = unsent()
    serving = _serving("notices", workers)
    return QueueRow("notices", rows.now, _age(rows.oldest, now), rows.later, None, *serving, unit="message")


def _requests(now: datetime, workers: Sequence[WorkerRow]) -> QueueRow:
    """Wishes for work that the dispatcher has not made jobs of yet."""
    rows = (
        WorkRequest.objects.filter(taken_at=None)
        .order_by()
        .aggregate(n=Count("pk"), oldest=Min("created_at"))
    )
    serving = _serving("dispatch", workers)
    return QueueRow("dispatch", rows["n"], _age(rows["oldest"], now), 0, None, *serving, unit="request")


def _age(since: datetime | None, now: datetime) -> timedelta | None:
    return max(now - since, timedelta(0)) if since else None


def _serving(name: str, workers: Sequence[WorkerRow]) -> tuple[int, int]:
    """How many take from the queue, and how many would if they were of the database's version."""
    serving = [row for row in workers if row.alive and name in row.worker.queues]
    return sum(not row.worker.refusal for row in serving), sum(bool(row.worker.refusal) for row in serving)


def _failures(now: datetime) -> list[FailureRow]:
    ended = Job.objects.filter(state__in=_ENDED_BADLY, finished_at__gte=now - _PERIOD).order_by()
    counted = ended.values("error_code", "kind", "state").annotate(count=Count("pk"), last=Max("finished_at"))
    return [
        FailureRow(
            row["error_code"],
            Job.Kind(row["kind"]).label,
            State(row["state"]).label,
            row["count"],
            row["last"],
        )
        for row in counted.order_by("-count", "error_code", "kind")
    ]
