"""Which workers can run models: each tries its own sandbox and says so, since nobody else can try it for them."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from submissions import sandbox
from submissions.models import Job, Worker
from submissions.sandbox.supervision import require_free_disk

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
        """Whether such a worker takes jobs with models; `unprotected`: those that may run without a sandbox."""
        return self.works and (self.isolates or unprotected)

    def will_run(self, *, unprotected: bool) -> bool:
        """The same, once there is room on its disk: jobs that end make some, and so does the sweep."""
        return (self.works or self.lacks == "disk") and (self.isolates or unprotected)

    def permitted(self) -> Q:
        """The same for rows of jobs."""
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
    """Whether a worker of these queues is one that models may come to."""
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
    """How many workers of this queue were heard of lately and take work, and how many of them refuse it."""
    alive = [worker for worker in Worker.objects.heard_within(SILENCE) if queue in worker.queues]
    refusing = sum(bool(worker.refusal) for worker in alive)
    return len(alive) - refusing, refusing


def workers_alive(queue: str) -> int:
    """How many workers of this queue were heard of lately and take work."""
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
    """Why no living worker of its queue takes a job that waits; None where one does, or none is alive."""
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
