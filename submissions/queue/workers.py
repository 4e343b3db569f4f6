"""Workers: the identity of this process, whether it may take work and run models, and how it announces itself.

Each worker tries its own sandbox and reports whether it works, since nobody else can try it. Pages can so tell "no
worker is alive" from "12 before you".
"""

import functools
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from evaluation.efficiency import describe
from evaluation.efficiency.hardware import own_gpu
from leaderboard.core.schema_version import mismatch
from submissions import sandbox
from submissions.models import Job, Worker
from submissions.sandbox.supervision import require_free_disk

logger = logging.getLogger(__name__)

#: Set when this process is to stop: it takes no more work, and gives back what it has.
STOPPING = threading.Event()
#: Held by whoever works in this process: the task that a wakeup started, or the thread that polls.
AT_WORK = threading.Lock()


@dataclass
class _ProcessIdentity:
    """The worker that this process is, or is a pool process of."""

    worker: str = ""
    queues: tuple[str, ...] = ()
    #: Why it may take nothing, and when that was asked (on the monotonic clock).
    refusal: str = ""
    asked_at: float = -math.inf


_own = _ProcessIdentity()


def set_identity(queues: tuple[str, ...]) -> None:
    """Say that this process is a worker of these queues; its pool processes, forked later, inherit that."""
    _own.worker, _own.queues = f"{socket.gethostname()}:{os.getpid()}", queues


def worker_name() -> str:
    """Return the name that the worker announces itself under."""
    return _own.worker or f"{socket.gethostname()}:{os.getpid()}"


def process_name() -> str:
    """The name that claims of this process are made under: the worker's, and behind the last colon its process id."""
    return f"{worker_name()}:{os.getpid()}"


def process_number(name: str) -> int:
    """Return the process id in the name of a claim; 0 where there is none."""
    number = name.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def own_queues() -> tuple[str, ...]:
    """Return the queues that the worker serves."""
    return _own.queues


def refusal(*, heartbeats: int = 1) -> str:
    """Return a sentence that says why this process must not start work now, empty if it may.

    The database is queried once in `heartbeats` heartbeats, and in each one while the answer is a refusal. Raises
    django.db.Error if the database does not answer.
    """
    if STOPPING.is_set():
        return "The worker is stopping."
    age = time.monotonic() - _own.asked_at
    if age >= settings.QUEUE_TIMES.heartbeat * (1 if _own.refusal else heartbeats):
        reason = mismatch()
        if reason and reason != _own.refusal:
            logger.error("This worker takes no work. %s", reason)
        elif reason != _own.refusal:
            logger.warning("Code and database match again: this worker takes work.")
        _own.refusal, _own.asked_at = reason, time.monotonic()
    return _own.refusal


# --- what a worker can do


#: A worker not heard of for so long counts as dead.
SILENCE = timedelta(seconds=settings.QUEUE_TIMES.worker_silence)
#: The queues whose workers run models, and the kinds of jobs that do.
QUEUES = frozenset({Job.Queue.CPU, Job.Queue.GPU})
KINDS = (Job.Kind.MODEL, Job.Kind.SHARD)
#: In a job's payload: it may run without a sandbox, since staff brought it from the machine itself.
UNPROTECTED = "unprotected"
#: What a worker may lack, and seconds until it tries again whether that works now. To try a GPU takes a core for some.
_AGAIN = {"sandbox": 60.0, "GPU": 600.0, "disk": 60.0}
_GPU_REMEDY = "nvidia-smi   (and a build of torch for CUDA: pip install --requirement locks/torch-cuda.txt)"
#: How often any process of this worker has asked for another try: the memory is shared by those that are forked later.
_resets = RawValue("L", 0)


@dataclass(frozen=True, slots=True)
class Capability:
    """What a worker found when it tried its sandbox: whether it works and isolates, else why not and what helps.

    One of the queue gpu has tried its GPU in it, too. `lacks` is which of the two does not work, or "disk" where only
    room is missing.
    """

    works: bool
    isolates: bool
    backend: str = ""
    reason: str = ""
    remedy: str = ""
    lacks: str = "sandbox"

    @classmethod
    def from_row(cls, told: Mapping[str, Any]) -> Self:
        """From what `as_dict` gave; whatever else another version of ours wrote is left out."""
        names = cls.__dataclass_fields__
        return cls(**{name: value for name, value in told.items() if name in names})

    def as_dict(self) -> dict[str, Any]:
        """As the worker's row holds it."""
        return asdict(self)

    @property
    def because(self) -> str:
        """Why it does not work, as the end of a sentence."""
        return self.reason if self.reason.endswith((".", "?", "!")) else f"{self.reason}."

    @property
    def refusal(self) -> str:
        """Why such a worker takes nothing at all, as a sentence: it is there for its GPU. Else empty."""
        return f"Its GPU cannot be used: {self.because}" if not self.works and self.lacks == "GPU" else ""

    def runs(self, *, unprotected: bool) -> bool:
        """Return whether such a worker takes jobs with models; `unprotected`: those that may run without a sandbox."""
        return self.works and (self.isolates or unprotected)

    def will_run(self, *, unprotected: bool) -> bool:
        """Return the same, once there is room on its disk: jobs that end make some, and so does the sweep."""
        return (self.works or self.lacks == "disk") and (self.isolates or unprotected)

    def permitted(self) -> Q:
        """Return the same for rows of jobs."""
        if self.works and self.isolates:
            return Q()
        others = ~Q(kind__in=KINDS)
        return (others | Q(**{f"payload__{UNPROTECTED}": True})) if self.works else others


class _RetryTime:
    """When this process tries again what did not work, and how many resets it knows of."""

    until = math.inf
    resets = 0


def own_capability(queues: Container[str] = ()) -> Capability:
    """What this process can do for these queues. One that found something not to work tries again after a while."""
    if time.monotonic() > _RetryTime.until:
        reset_own_capability()
    if _RetryTime.resets != _resets.value:
        _forget()
    found = _probe(gpu=Job.Queue.GPU in queues)
    if not found.works:
        _RetryTime.until = min(_RetryTime.until, time.monotonic() + _AGAIN[found.lacks])
    return found


def reset_own_capability() -> None:
    """Have all processes of this worker try it anew: what worked has failed, or the other way round."""
    _resets.value += 1
    _forget()


def _forget() -> None:
    _RetryTime.until, _RetryTime.resets = math.inf, _resets.value
    sandbox.backend.cache_clear()


def _probe(*, gpu: bool) -> Capability:
    try:
        chosen = sandbox.backend()
    except ImproperlyConfigured as error:
        return Capability(False, False, reason=str(error), remedy="SANDBOX=auto for the worker")
    if not chosen.available:
        return Capability(False, False, chosen.name, chosen.reason, chosen.remedy)
    if gpu and chosen.cuda_reason:
        return Capability(False, False, chosen.name, chosen.cuda_reason, _GPU_REMEDY, "GPU")
    try:
        require_free_disk(Path(settings.VAR), sandbox.SandboxLimits.from_settings())
    except sandbox.SandboxUnavailable as error:
        return Capability(False, chosen.isolates, chosen.name, str(error), lacks="disk")
    return Capability(True, chosen.isolates, chosen.name)


def runs_models(queues: Iterable[str]) -> bool:
    """Return whether a worker of these queues is one that models may come to."""
    return not QUEUES.isdisjoint(queues)


def reported_capabilities(time_ago: timedelta = SILENCE, queues: Iterable[str] = QUEUES) -> list[Capability]:
    """What workers of these queues told who were heard of within this time, the last heard of first.

    By default those that are alive.
    """
    recent = Worker.objects.heard_within(time_ago).order_by("-seen_at")
    wanted = set(queues)
    return [
        Capability.from_row(told)
        for served, told in recent.values_list("queues", "sandbox")
        if told and not wanted.isdisjoint(served)
    ]


def count_workers(queue: str) -> tuple[int, int]:
    """Return how many workers of this queue were heard of lately and take work, and how many of them refuse it."""
    alive = [worker for worker in Worker.objects.heard_within(SILENCE) if queue in worker.queues]
    refusing = sum(bool(worker.refusal) for worker in alive)
    return len(alive) - refusing, refusing


def workers_alive(queue: str) -> int:
    """Return how many workers of this queue were heard of lately and take work."""
    return count_workers(queue)[0]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a job waits although workers are alive, and what helps."""

    reason: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """Both in a sentence each, commands between backticks."""
        return f"{self.reason} What helps: `{self.remedy}`." if self.remedy else self.reason


def find_obstacle(job: Job) -> Obstacle | None:
    """Return why no living worker of its queue takes a job that waits; None where one does, or none is alive."""
    if job.kind not in KINDS:
        return None
    told = reported_capabilities(queues=[job.queue])
    if not told or any(each.runs(unprotected=job.payload.get(UNPROTECTED) is True) for each in told):
        return None
    lack = common_obstacle(told)
    if lack is not None:
        wanted = "room on its disk" if lack.lacks == "disk" else f"a working {lack.lacks}"
        return Obstacle(f"No worker that is alive has {wanted}: {lack.because}", lack.remedy)
    return Obstacle(
        "Models run here without a sandbox now, for staff on the machine itself; this one waits for a worker that has "
        "one."
    )


def common_obstacle(told: Sequence[Capability]) -> Capability | None:
    """One of these workers, for what all of them lack; None where a sandbox, or doing without one, works."""
    return told[0] if told and not any(each.works for each in told) else None


# --- signs of life


#: Seconds between two signs of life.
INTERVAL: float = settings.QUEUE_TIMES.heartbeat
#: What a worker could do is remembered for so long after it was last heard of: jobs for its like are taken, and wait.
MEMORY = timedelta(days=1)


class Heartbeat:
    """A thread that keeps one worker's row fresh."""

    def __init__(
        self, name: str, queues: Sequence[str], version: str, each_time: Callable[[], object] | None = None
    ) -> None:
        """`each_time` is called after every sign of life."""
        self.name, self.queues, self.version = name, sorted(queues), version
        self._each_time = each_time
        self._announced = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def start(self) -> None:
        """Announce the worker and keep announcing it."""
        self._thread.start()

    def stop(self) -> None:
        """Take the worker off the list."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            try:
                # First: while the database is away this process lives, and waits for it.
                if settings.HEARTBEAT_FILE:
                    Path(settings.HEARTBEAT_FILE).touch()
                self._write_row()
                if self._each_time is not None:
                    self._each_time()
            except DatabaseError as error:
                logger.warning("no heartbeat written: %s", type(error).__name__)
                connection.close()
            except Exception:
                logger.exception("fault %s in the heartbeat", secrets.token_hex(4))
            if self._ended.wait(INTERVAL):
                break
        try:
            # Not removed: where nobody is alive, what the last ones could do still says what the next will.
            Worker.objects.filter(name=self.name).update(seen_at=Now() - SILENCE)
        except DatabaseError:
            logger.warning("the worker's row could not be changed; it ages out")
        finally:
            connection.close()

    @functools.cached_property
    def _hardware_class(self) -> str:
        """Hardware class of the timings that are made here; empty for a worker that makes none."""
        device = "cuda" if Job.Queue.GPU in self.queues else "cpu"
        return describe(settings.MODEL_THREADS, device).slug if runs_models(self.queues) else ""

    def _write_row(self) -> None:
        """Write the row; that of a worker for models waits until its sandbox has been tried."""
        able = own_capability(self.queues) if runs_models(self.queues) else None
        row = {
            "queues": self.queues,
            "version": self.version,
            "hardware_class": self._hardware_class,
            "sandbox": {**able.as_dict(), "device": own_device(self.queues)} if able else {},
            # Whoever takes work in this worker asks for itself, and more often.
            "refusal": (refusal(heartbeats=6) or (able.refusal if able else ""))[:300],
            "seen_at": Now(),
        }
        if self._announced and Worker.objects.filter(name=self.name).update(**row):
            return
        # A container that is started again has the name and the number of the one before.
        Worker.objects.update_or_create(name=self.name, defaults={**row, "started_at": Now()})
        self._announced = True


def own_device(queues: Sequence[str]) -> str:
    """What a worker of these queues computes on, for operators: "cuda:3", by the number it has there, or "cpu"."""
    return f"cuda:{own_gpu().number}" if Job.Queue.GPU in queues else "cpu"


def delete_silent_workers() -> None:
    """Remove the rows of workers not heard of for a day."""
    Worker.objects.filter(seen_at__lt=Now() - MEMORY).delete()
