"""Change a dataset's protection: the work of a PROTECT job. It reads private storage, so it is the scorer's."""

from __future__ import annotations

from django.db import transaction

from leaderboard.core.audit import acting
from leaderboard.models import User
from leaderboard.models.datasets import Protection
from leaderboard.results.publishing.protection import find_parts, switch_protection
from submissions.jobs.kinds.score import begin
from submissions.jobs.registry import register_kind
from submissions.models import Job, State
from submissions.queue.lease import Lease, LeaseLost
from submissions.queue.lifecycle import advance, write_log

#: How often results may come between finding parts and switching before the attempt is given up.
_ROUNDS = 20


@register_kind(Job.Kind.PROTECT)
def protect_job(job: Job, lease: Lease) -> None:
    """Find what is missing over the parts of a competition, then change policy and board together.

    Again, nothing is found twice. Raises LeaseLost or Cancelled, with the policy as it was.
    """
    begin(job, State.SCORING)
    wanted = Protection(job.payload["protection"])
    person = User.objects.filter(pk=job.payload.get("by")).first()
    for _ in range(_ROUNDS):
        found = find_parts(job.dataset, lease.report) if wanted == Protection.COMPETITION else 0
        if found:
            write_log(job.pk, f"Found the parts' means of {found:,} results.")
        with transaction.atomic(), acting(person, job.payload.get("why", "")):
            # The policy goes first, since it may find that a result came meanwhile.
            if not switch_protection(job.dataset, wanted):
                continue
            if not advance(job.pk, State.DONE, fence=job.fence, progress=1.0):
                raise LeaseLost
            write_log(job.pk, f"{job.dataset} is under the {wanted.label} policy.")
            return
    raise RuntimeError("results came faster than their parts were found")
