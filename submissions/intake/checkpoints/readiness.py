"""Readiness of the site to run a user's models, given the workers' sandboxes, the settings, and the team's quota."""

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from rest_framework.request import Request

from evaluation.core.problems import ProblemCode
from leaderboard.core.text.dates import format_moment
from leaderboard.models import Team, User
from submissions.accounts.permissions import may_go_unprotected
from submissions.core.errors import CHECKPOINT_REFUSED, Refused
from submissions.models import Job, State
from submissions.queue.workers import MEMORY, common_obstacle, reported_capabilities
from submissions.quotas.counting import DailyCount, start_of_day
from submissions.quotas.ledger import QUOTA

#: Maximum number of a team's checkpoints that the library may reject within an hour.
REFUSED_CHECKPOINTS_PER_HOUR = 10
SANDBOX_UNAVAILABLE = ProblemCode(
    "sandbox_unavailable", "Models cannot run at present, because no worker has a working sandbox.",
    "The operator must install the component in the message.",
)  # fmt: skip
NO_GPU = ProblemCode("no_gpu", "A GPU was requested, but no GPU worker was online within the last day.",
    "Omit the device, or choose auto or cpu.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the user's models can run; if not, the reason and the remedy.

    `unprotected` models run without a sandbox. If `asleep`, jobs wait because no suitable worker is online or none
    has free disk space.
    """

    ready: bool
    reason: str = ""
    remedy: str = ""
    unprotected: bool = False
    asleep: bool = False


def readiness(person: User, *, local: bool) -> Readiness:
    """Return whether the user may submit a model now, and otherwise why not.

    `local` requests are sent from this machine. The answer depends on the sandboxes of live workers or, if there are
    none, of workers that were online within the last day. Only staff on the machine may run models without a sandbox.
    """
    live_capabilities = reported_capabilities()
    capabilities = live_capabilities or reported_capabilities(MEMORY)
    if any(capability.will_run(unprotected=False) for capability in capabilities):
        return Readiness(True, asleep=not any(capability.runs(unprotected=False) for capability in live_capabilities))
    if any(capability.will_run(unprotected=True) for capability in capabilities):
        asleep = not any(capability.runs(unprotected=True) for capability in live_capabilities)
        if may_go_unprotected(person, local=local):
            return Readiness(True, unprotected=True, asleep=asleep)
        reason = "This site runs models without a sandbox (SANDBOX=none), which only staff on the machine may use."
        remedy = "The operator must install bubblewrap and set SANDBOX=auto."
        return Readiness(False, reason, remedy, unprotected=True, asleep=asleep)
    obstacle = common_obstacle(capabilities)
    if obstacle is None:
        reason = (
            "No worker that runs models was online within the last day. A new worker registers within "
            "seconds after its start."
        )
        return Readiness(False, reason, "The operator must start a worker of the queue cpu or gpu.", asleep=True)
    worker_state = (
        "no live worker has a working one" if live_capabilities else "the last live worker had no working one"
    )
    reason = f"Models need a {obstacle.lacks}, but {worker_state}: {obstacle.reason_sentence}"
    return Readiness(False, reason, obstacle.remedy, asleep=not live_capabilities)


def refuse_without_gpu(*, unprotected: bool) -> None:
    """Raise Refused if no suitable GPU worker was online within the last day, because the job might wait forever.

    A worker is suitable if it can run the model, in a sandbox unless `unprotected`.
    """
    if any(worker.will_run(unprotected=unprotected) for worker in reported_capabilities(MEMORY, [Job.Queue.GPU])):
        return
    message = "No GPU worker that runs models was online within the last day."
    raise Refused.for_problem(NO_GPU, message, "Omit device, or send auto (“GPU if available, otherwise CPU”) or cpu.")


def is_local_request(request: HttpRequest | Request) -> bool:
    """Return whether the request was sent from this machine, over loopback and not through a proxy."""
    if settings.BEHIND_PROXY or "HTTP_X_FORWARDED_FOR" in request.META:
        return False
    try:
        return ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


def count_model_runs(team: Team | None) -> DailyCount:
    """Return the team's model runs today and the daily limit.

    Runs do not count if they failed on our side, never started, or had a checkpoint that the library rejected. None
    stands for a new team without runs.
    """
    used = 0
    if team is not None:
        never_began = Q(state__in=[State.CANCELLED, State.WITHDRAWN], started_at=None)
        jobs = Job.objects.filter(
            kind=Job.Kind.MODEL, submission__team=team, created_at__gte=start_of_day(timezone.now())
        ).exclude(Q(state=State.FAILED) | Q(error_code=CHECKPOINT_REFUSED) | never_began)
        used = jobs.count()
    return DailyCount(used, settings.MODEL_JOBS_PER_DAY)


def refuse_beyond_quota(team: Team, dataset_count: int) -> None:
    """Raise Refused if the request exceeds the daily quota, or too many checkpoints failed within the last hour.

    `dataset_count` is the number of model runs that the request needs.
    """
    quota = count_model_runs(team)
    hour_ago = timezone.now() - timedelta(hours=1)
    jobs = Job.objects.filter(submission__team=team, error_code=CHECKPOINT_REFUSED, finished_at__gte=hour_ago)
    rejected_count = jobs.values("submission").distinct().count()  # a checkpoint counts once for all datasets
    if rejected_count >= REFUSED_CHECKPOINTS_PER_HOUR:
        raise Refused.for_problem(
            QUOTA,
            f"The library rejected {rejected_count} checkpoints of your team within the last hour, which is the limit.",
            "Check them on your machine with `python -m evaluation pack`, and send the next one in an hour.",
        )
    if dataset_count > quota.left:
        reset_note = f"the quota resets at {format_moment(quota.resets_at)}."
        raise Refused.for_problem(
            QUOTA,
            f"Your team can run models on {quota.limit} datasets per day; {quota.used} are used today, and "
            f"this request needs {dataset_count}.",
            f"Choose at most {quota.left} now; {reset_note}"
            if quota.left
            else f"{reset_note[0].upper()}{reset_note[1:]}",
        )
