"""What a worker does for each kind of job. The modules in `kinds` and `models` register their functions here."""

from __future__ import annotations

from collections.abc import Callable

from submissions.models import Job
from submissions.queue.lease import Lease

Work = Callable[[Job, Lease], None]

#: By kind, the function that does the work under a lease.
WORK: dict[Job.Kind, Work] = {}


def register_kind(*kinds: Job.Kind) -> Callable[[Work], Work]:
    """Register a function as the work of these kinds."""

    def register(work: Work) -> Work:
        WORK.update(dict.fromkeys(kinds, work))
        return work

    return register
