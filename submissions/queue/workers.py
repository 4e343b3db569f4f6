"""Workers: identity of this process, permission to start work, capability to run models, and heartbeats.

Each worker tests its own sandbox and reports the result, which cannot be tested from elsewhere. Pages can thus
distinguish "no worker is alive" from "12 jobs before yours".
"""

import functools
import itertools
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
from leaderboard.core.schema_version import describe_mismatch
from submissions import sandbox
from submissions.models import Job, Worker
from submissions.sandbox.supervision import require_free_disk

logger = logging.getLogger(__name__)

#: Set while this process stops: it claims no more jobs and returns its claimed ones.
STOPPING = threading.Event()
#: Held while this process works, in a task started by a wakeup or in the polling thread.
AT_WORK = threading.Lock()


@dataclass
class _ProcessIdentity:
    """Identity of the worker to which this process belongs."""

    worker: str = ""
    queues: tuple[str, ...] = ()
    #: Reason to start no work, and the time of that check on the monotonic clock.
    refusal: str = ""
    asked_at: float = -math.inf


_identity = _ProcessIdentity()


def set_identity(queues: tuple[str, ...]) -> None:
    """Make this process a worker of these queues. Pool processes that are forked later inherit this."""
    _identity.worker, _identity.queues = f"{socket.gethostname()}:{os.getpid()}", queues


def worker_name() -> str:
    return _identity.worker or f"{socket.gethostname()}:{os.getpid()}"


def process_name() -> str:
    """Return the name under which this process claims jobs: the worker's name, a colon, and the process id."""
    return f"{worker_name()}:{os.getpid()}"


def process_number(name: str) -> int:
    """Return the process id in the name of a claim, or 0 if there is none."""
    number = name.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def own_queues() -> tuple[str, ...]:
    return _identity.queues


def refusal(*, heartbeats: int = 1) -> str:
    """Return a sentence on why this process must not start work now, or "" if it may.

    The database is queried once in `heartbeats` heartbeats, or in each one while work is refused. Raises
    django.db.Error if the database does not respond.
    """
    if STOPPING.is_set():
        return "The worker is stopping."
    age = time.monotonic() - _identity.asked_at
    if age >= settings.QUEUE_TIMES.heartbeat * (1 if _identity.refusal else heartbeats):
        reason = describe_mismatch()
        if reason and reason != _identity.refusal:
            logger.error("This worker starts no work. %s", reason)
        elif reason != _identity.refusal:
            logger.warning("Code and database versions match again: this worker resumes work.")
        _identity.refusal, _identity.asked_at = reason, time.monotonic()
    return _identity.refusal


# --- capabilities


#: Time without a heartbeat after which a worker counts as dead.
SILENCE = timedelta(seconds=settings.QUEUE_TIMES.worker_silence)
#: Queues whose workers run models, and the kinds of these jobs.
QUEUES = frozenset({Job.Queue.CPU, Job.Queue.GPU})
KINDS = (Job.Kind.MODEL, Job.Kind.SHARD)
#: Key in a job's payload: the job may run without a sandbox, since staff submitted it on the machine itself.
UNPROTECTED = "unprotected"
#: Seconds until a failed test of sandbox, GPU, or disk is repeated. Testing a GPU occupies a core for some seconds.
_RETEST_SECONDS = {"sandbox": 60.0, "GPU": 600.0, "disk": 60.0}
_GPU_REMEDY = "nvidia-smi   (and a build of torch for CUDA: pip install --requirement locks/torch-cuda.txt)"
#: Number of retests that processes of this worker requested, in memory shared with processes forked later.
_resets = RawValue("L", 0)


@dataclass(frozen=True, slots=True)
class Capability:
    """Result of a worker's test of its sandbox, with the reason and remedy of a failure.

    Workers of the queue gpu also test their GPU in the sandbox. `lacks` names the part that does not work: "sandbox",
    "GPU", or "disk" if only disk space is missing. With `lacks_memory_groups`, models can exceed their memory limit.
    """

    works: bool
    isolates: bool
    backend: str = ""
    reason: str = ""
    remedy: str = ""
    lacks: str = "sandbox"
    lacks_memory_groups: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Create a capability from a worker's row, ignoring fields of other versions."""
        names = cls.__dataclass_fields__
        return cls(**{name: value for name, value in row.items() if name in names})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def reason_sentence(self) -> str:
        """Reason of the failure, as the end of a sentence."""
        return self.reason if self.reason.endswith((".", "?", "!")) else f"{self.reason}."

    @property
    def refusal(self) -> str:
        """Sentence on why the worker starts no work at all because its GPU does not work; empty otherwise."""
        return f"Its GPU cannot be used: {self.reason_sentence}" if not self.works and self.lacks == "GPU" else ""

    def runs(self, *, unprotected: bool) -> bool:
        """Return whether the worker can run a model. `unprotected` allows running it without a sandbox."""
        return self.works and (self.isolates or unprotected)

    def will_run(self, *, unprotected: bool) -> bool:
        """Return whether the worker can run a model now, or once jobs or the sweep have freed disk space."""
        return (self.works or self.lacks == "disk") and (self.isolates or unprotected)

    def job_filter(self) -> Q:
        """Return a filter for the jobs that the worker can run."""
        if self.works and self.isolates:
            return Q()
        other_kinds = ~Q(kind__in=KINDS)
        return (other_kinds | Q(**{f"payload__{UNPROTECTED}": True})) if self.works else other_kinds


class _RetryTime:
    """Time at which this process repeats a failed test, and the number of resets that it has followed."""

    next_test = math.inf
    resets = 0


def own_capability(queues: Container[str] = ()) -> Capability:
    """Return the capability of this process for these queues, repeating failed tests after a while."""
    if time.monotonic() > _RetryTime.next_test:
        reset_own_capability()
    if _RetryTime.resets != _resets.value:
        _forget()
    capability = _probe(gpu=Job.Queue.GPU in queues)
    if not capability.works:
        _RetryTime.next_test = min(_RetryTime.next_test, time.monotonic() + _RETEST_SECONDS[capability.lacks])
    return capability


def reset_own_capability() -> None:
    """Make all processes of this worker repeat the test, because the result has changed."""
    _resets.value += 1
    _forget()


def _forget() -> None:
    _RetryTime.next_test, _RetryTime.resets = math.inf, _resets.value
    sandbox.backend.cache_clear()


def _probe(*, gpu: bool) -> Capability:
    """Test the sandbox, the GPU if `gpu` is set, and the free disk space; return the result with the first failure."""
    try:
        backend = sandbox.backend()
    except ImproperlyConfigured as error:
        return Capability(False, False, reason=str(error), remedy="SANDBOX=auto for the worker")
    if not backend.available:
        return Capability(False, False, backend.name, backend.reason, backend.remedy)
    if gpu and backend.cuda_reason:
        return Capability(False, False, backend.name, backend.cuda_reason, _GPU_REMEDY, "GPU")
    try:
        require_free_disk(Path(settings.VAR), sandbox.SandboxLimits.from_settings())
    except sandbox.SandboxUnavailable as error:
        return Capability(False, backend.isolates, backend.name, str(error), lacks="disk")
    return Capability(True, backend.isolates, backend.name, lacks_memory_groups=backend.lacks_memory_groups)


def runs_models(queues: Iterable[str]) -> bool:
    return not QUEUES.isdisjoint(queues)


def reported_capabilities(time_ago: timedelta = SILENCE, queues: Iterable[str] = QUEUES) -> list[Capability]:
    """Return the capabilities that workers of these queues reported within this time, latest heartbeat first.

    The default time covers all living workers.
    """
    workers = Worker.objects.heard_within(time_ago).order_by("-seen_at")
    queue_names = set(queues)
    return [
        Capability.from_row(row)
        for worker_queues, row in workers.values_list("queues", "sandbox")
        if row and not queue_names.isdisjoint(worker_queues)
    ]


def count_workers(queue: str, living_workers: Iterable[Worker] | None = None) -> tuple[int, int]:
    """Return how many living workers of this queue accept work, and how many refuse it.

    `living_workers` are those of all queues, if they are known.
    """
    workers = Worker.objects.heard_within(SILENCE) if living_workers is None else living_workers
    refusals = [bool(worker.refusal) for worker in workers if queue in worker.queues]
    return refusals.count(False), refusals.count(True)


def workers_alive(queue: str) -> int:
    return count_workers(queue)[0]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Reason why a job waits although workers are alive, with a remedy."""

    reason: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """Reason and remedy as sentences, with commands between backticks."""
        return f"{self.reason} To fix it: `{self.remedy}`." if self.remedy else self.reason


def find_obstacle(job: Job) -> Obstacle | None:
    """Return why no living worker of the queue can run a waiting job; None if one can, or none is alive."""
    if job.kind not in KINDS:
        return None
    capabilities = reported_capabilities(queues=[job.queue])
    is_unprotected = job.payload.get(UNPROTECTED) is True
    if not capabilities or any(capability.runs(unprotected=is_unprotected) for capability in capabilities):
        return None
    obstacle = common_obstacle(capabilities)
    if obstacle is not None:
        requirement = "enough disk space" if obstacle.lacks == "disk" else f"a working {obstacle.lacks}"
        return Obstacle(f"No worker with {requirement} is online: {obstacle.reason_sentence}", obstacle.remedy)
    return Obstacle(
        "Workers currently run models without a sandbox, for staff on the machine itself. This job waits for a "
        "worker with a sandbox."
    )


def common_obstacle(capabilities: Sequence[Capability]) -> Capability | None:
    """Return the first capability if none of these workers works, else None."""
    return capabilities[0] if capabilities and not any(capability.works for capability in capabilities) else None


# --- heartbeats


#: Seconds between two heartbeats.
INTERVAL: float = settings.QUEUE_TIMES.heartbeat
#: Time after a worker's last heartbeat in which its capability still counts, so jobs for similar workers are accepted.
MEMORY = timedelta(days=1)


class Heartbeat:
    """Thread that keeps a worker's row up to date."""

    def __init__(
        self, name: str, queues: Sequence[str], version: str, callback: Callable[[], object] | None = None
    ) -> None:
        """Initialize the thread; `callback` is called after every second heartbeat."""
        self.name, self.queues, self.version = name, sorted(queues), version
        self._callback = callback
        #: Columns of the worker's row as last written, without its times.
        self._row: dict[str, Any] = {}
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and mark the worker as dead."""
        self._stop_event.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        """Write the worker's row at each interval until `stop` is called, and then mark the worker as dead.

        Touches HEARTBEAT_FILE, if set, and calls the callback. Errors are only logged.
        """
        for beat in itertools.count():
            try:
                # Touch the file first: while the database is down, this process is alive and waits for it.
                if settings.HEARTBEAT_FILE:
                    Path(settings.HEARTBEAT_FILE).touch()
                self._write_row()
                if self._callback is not None and beat % 2 == 0:
                    self._callback()
            except DatabaseError as error:
                logger.warning("No heartbeat written: %s", type(error).__name__)
                connection.close()
            except Exception:
                logger.exception("Fault %s in the heartbeat", secrets.token_hex(4))
            if self._stop_event.wait(INTERVAL):
                break
        try:
            # Keep the row: if no worker is alive, the last capability predicts that of the next worker.
            Worker.objects.filter(name=self.name).update(seen_at=Now() - SILENCE)
        except DatabaseError:
            logger.warning("Could not update the worker's row; it expires on its own.")
        finally:
            connection.close()

    @functools.cached_property
    def _hardware_class(self) -> str:
        """Slug of the hardware class for timings made here; empty if this worker makes none."""
        device = "cuda" if Job.Queue.GPU in self.queues else "cpu"
        return describe(settings.MODEL_THREADS, device).slug if runs_models(self.queues) else ""

    def _write_row(self) -> None:
        """Write the worker's row; workers that run models test their sandbox first."""
        capability = own_capability(self.queues) if runs_models(self.queues) else None
        row = {
            "queues": self.queues,
            "version": self.version,
            "hardware_class": self._hardware_class,
            "sandbox": {**capability.as_dict(), "device": own_device(self.queues)} if capability else {},
            # Processes that start work check this themselves, and more often.
            "refusal": (refusal(heartbeats=6) or (capability.refusal if capability else ""))[:300],
        }
        changes = {} if row == self._row else row
        if not self._row or not Worker.objects.filter(name=self.name).update(**changes, seen_at=Now()):
            # A restarted container has the same name and process id as its predecessor.
            Worker.objects.update_or_create(name=self.name, defaults={**row, "seen_at": Now(), "started_at": Now()})
        self._row = row


def own_device(queues: Sequence[str]) -> str:
    """Return the device of a worker of these queues for operators: "cuda:3" in the host's numbering, or "cpu"."""
    return f"cuda:{own_gpu().number}" if Job.Queue.GPU in queues else "cpu"


def delete_silent_workers() -> None:
    """Delete the rows of workers without a heartbeat for a day."""
    Worker.objects.filter(seen_at__lt=Now() - MEMORY).delete()
