"""Which workers can run models: each tries its own sandbox and says so, since nobody else can try it for them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from submissions import sandbox
from submissions.models import Job, Worker

#: A worker not heard of for so long counts as dead.
SILENCE = timedelta(seconds=settings.WORKER_SILENCE_SECONDS)
#: The queues whose workers run models, and the kinds of jobs that do.
QUEUES = frozenset({Job.Queue.CPU, Job.Queue.GPU})
KINDS = (Job.Kind.MODEL, Job.Kind.SHARD)
#: In a job's payload: it may run without a sandbox, since staff brought it from the machine itself.
UNPROTECTED = "unprotected"
#: Seconds until a worker tries again whether what it lacked has been installed.
_AGAIN = 60.0


@dataclass(frozen=True, slots=True)
class Capability:
    """What a worker found when it tried its sandbox: whether it works and isolates, else why not and what helps."""

    works: bool
    isolates: bool
    backend: str = ""
    reason: str = ""
    remedy: str = ""

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

    def runs(self, *, unprotected: bool) -> bool:
        """Whether such a worker takes jobs with models; `unprotected`: those that may run without a sandbox."""
        return self.works and (self.isolates or unprotected)

    def permitted(self) -> Q:
        """The same for rows of jobs."""
        if self.works and self.isolates:
            return Q()
        others = ~Q(kind__in=KINDS)
        return (others | Q(**{f"payload__{UNPROTECTED}": True})) if self.works else others


class _RetryTime:
    """When this process tries again what did not work."""

    until = math.inf


def own_capability() -> Capability:
    """What this process can do. One that found no working sandbox tries again after a minute."""
    if time.monotonic() > _RetryTime.until:
        reset_own_capability()
    found = _probe_sandbox()
    if not found.works:
        _RetryTime.until = min(_RetryTime.until, time.monotonic() + _AGAIN)
    return found


def reset_own_capability() -> None:
    """Have it tried anew: what worked has failed, or the other way round."""
    _RetryTime.until = math.inf
    sandbox.backend.cache_clear()


def _probe_sandbox() -> Capability:
    try:
        chosen = sandbox.backend()
    except ImproperlyConfigured as error:
        return Capability(False, False, reason=str(error), remedy="SANDBOX=auto for the worker")
    if not chosen.available:
        return Capability(False, False, chosen.name, chosen.reason, chosen.remedy)
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
        return Obstacle(f"No worker that is alive has a working sandbox: {lack.because}", lack.remedy)
    return Obstacle(
        "Models run here without a sandbox now, for staff on the machine itself; this one waits for a worker that has "
        "one."
    )


def common_obstacle(told: Sequence[Capability]) -> Capability | None:
    """One of these workers, for what all of them lack; None where a sandbox, or doing without one, works."""
    return told[0] if told and not any(each.works for each in told) else None
