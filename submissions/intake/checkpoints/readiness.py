"""Whether models may be run here, by whom, and how many in a day: what workers say of their sandboxes, and settings."""

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from rest_framework.request import Request

from evaluation.core.problems import ProblemCode
from leaderboard.models import Team, User
from submissions.accounts.permissions import may_go_unprotected
from submissions.core.errors import CHECKPOINT_REFUSED, Refused
from submissions.models import Job, State
from submissions.queue.workers import MEMORY, common_obstacle, reported_capabilities
from submissions.quotas.counting import DailyCount, start_of_day
from submissions.quotas.ledger import QUOTA

#: Checkpoints of a team that the library may refuse within an hour.
REFUSED_CHECKPOINTS_PER_HOUR = 10
SANDBOX_UNAVAILABLE = ProblemCode("sandbox_unavailable", "Models cannot be run here now: no worker has a sandbox "
    "that works.", "The message says why; the operator installs what it names.")  # fmt: skip
NO_GPU = ProblemCode("no_gpu", "A GPU was asked for, and no worker with one was there within a day.",
    "Leave the device out, or say auto or cpu.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this person's models run, else why not and what would help; `unprotected`: without a sandbox.

    `asleep`: what is sent now waits, since no worker is alive that could run it, or none has room on its disk.
    """

    ready: bool
    reason: str = ""
    remedy: str = ""
    unprotected: bool = False
    asleep: bool = False


def readiness(person: User, *, local: bool) -> Readiness:
    """Whether the person may submit a model now; `local`: the request comes from this machine.

    The workers that are alive decide; where there are none, those that were within a day.
    """
    alive = reported_capabilities()
    told = alive or reported_capabilities(MEMORY)
    if any(each.will_run(unprotected=False) for each in told):
        return Readiness(True, asleep=not any(each.runs(unprotected=False) for each in alive))
    if any(each.will_run(unprotected=True) for each in told):
        asleep = not any(each.runs(unprotected=True) for each in alive)
        if may_go_unprotected(person, local=local):
            return Readiness(True, unprotected=True, asleep=asleep)
        reason = "Models run here without a sandbox (SANDBOX=none), which is for staff alone, on the machine itself."
        remedy = "The operator sets SANDBOX=auto, with bubblewrap installed."
        return Readiness(False, reason, remedy, unprotected=True, asleep=asleep)
    lack = common_obstacle(told)
    if lack is None:
        reason = (
            "No worker that runs models is alive, nor was one within a day. One that has just been started says within "
            "seconds what it can do."
        )
        return Readiness(False, reason, "The operator starts a worker of the queue cpu or gpu.", asleep=True)
    who = "no worker that is alive has one" if alive else "the last worker that was alive had none"
    reason = f"Models need a {lack.lacks}, and {who} that works: {lack.because}"
    return Readiness(False, reason, lack.remedy, asleep=not alive)


def refuse_without_gpu(*, unprotected: bool) -> None:
    """Raise Refused where no worker with a GPU was there within a day that would run it: it might wait for ever."""
    if any(each.will_run(unprotected=unprotected) for each in reported_capabilities(MEMORY, [Job.Queue.GPU])):
        return
    message = "No worker with a GPU that runs models is alive, nor was one within a day."
    hint = "Leave device out, or send auto (“A GPU if there is one, else CPU”) or cpu."
    raise Refused.of(NO_GPU, message, hint)


def is_local_request(request: HttpRequest | Request) -> bool:
    """Whether the request comes from this very machine: over loopback, and not through a proxy."""
    if settings.BEHIND_PROXY or "HTTP_X_FORWARDED_FOR" in request.META:
        return False
    try:
        return ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


def quota_of(team: Team | None) -> DailyCount:
    """Count the team's model runs today.

    Runs that failed through our fault, never started, or had a checkpoint that the library refused are not counted.
    """
    used = 0
    if team is not None:
        never_began = Q(state__in=[State.CANCELLED, State.WITHDRAWN], started_at=None)
        jobs = Job.objects.filter(
            kind=Job.Kind.MODEL, submission__team=team, created_at__gte=start_of_day(timezone.now())
        ).exclude(Q(state=State.FAILED) | Q(error_code=CHECKPOINT_REFUSED) | never_began)
        used = jobs.count()
    return DailyCount(used, settings.MODEL_JOBS_PER_DAY)


def refuse_beyond_quota(team: Team, wanted: int) -> None:
    """Raise Refused where the team may not have so many more today, or sent many within an hour that cannot be run."""
    quota = quota_of(team)
    hour_ago = timezone.now() - timedelta(hours=1)
    jobs = Job.objects.filter(submission__team=team, error_code=CHECKPOINT_REFUSED, finished_at__gte=hour_ago)
    refused = jobs.values("submission").distinct().count()  # one for all of its datasets
    if refused >= REFUSED_CHECKPOINTS_PER_HOUR:
        raise Refused.of(
            QUOTA,
            f"The library took none of {refused} checkpoints that your team sent within the last hour.",
            "Ask it on your own machine with `python -m evaluation pack`, and send the next one in an hour.",
        )
    if wanted > quota.left:
        again = f"counting begins anew at {quota.resets_at:%H:%M} UTC on {quota.resets_at:%-d %B}."
        raise Refused.of(
            QUOTA,
            f"Your team may have models run on {quota.limit} datasets a day; {quota.used} are used today, and this "
            f"asks for {wanted}.",
            f"Choose at most {quota.left} now; {again}" if quota.left else f"{again[0].upper()}{again[1:]}",
        )
