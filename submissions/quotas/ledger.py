"""The ledger: what is charged when a submission is stored, and given back when it could not be scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import transaction
from django.utils import timezone

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.database_grants import may_change
from leaderboard.core.work_requests import request_settlement
from leaderboard.models import Dataset, Team, User, WorkRequest
from submissions.core.errors import Refused
from submissions.models import TERMINAL, Job, QuotaUse, State, Submission
from submissions.quotas.counting import Quota, Window, needs_approval, quotas_of

QUOTA = ProblemCode("quota", "You or your team have used the submissions that a dataset with hidden judgements takes "
    "in a day or month, or your team its runs of models for today.", "The message says when counting begins anew.",
    is_free=True)  # fmt: skip
TEAM_NOT_APPROVED = ProblemCode("team_not_approved", "The dataset's judgements are hidden, and a curator approves a "
    "team before it first submits to such a dataset. Nothing was counted.", "Ask whoever runs the site to approve "
    "your team. Datasets with open judgements take its submissions.", is_free=True)  # fmt: skip

#: Why a unit was given back, as its people read it.
OUR_FAULT = "the fault was ours"
REJECTED = "it was refused, and never scored"
NEVER_BEGAN = "it was cancelled before a worker began"


class QuotaSpent(Refused):
    """There is no more of a quota now; `quotas` are those that are used up."""

    def __init__(self, spent: Sequence[Quota], wanted: int) -> None:
        self.quotas = tuple(spent)
        problems = [_told(quota, others=wanted > len(spent)) for quota in spent]
        super().__init__(QUOTA, problems[0].message, problems)


def _told(quota: Quota, *, others: bool) -> Problem:
    month = quota.month.left == 0
    window, period = (quota.month, "this month") if month else (quota.day, "today")
    whose = _whose(quota, window)
    if window.limit == 0:
        return QUOTA.problem(f"{quota.dataset} takes no submissions of {whose} for now.", "Ask a curator.")
    message = (
        f"{whose[0].upper()}{whose[1:]} ha{'ve' if whose == 'you' else 's'} used {window.used} of {window.limit} "
        f"submissions to {quota.dataset} {period}; its judgements are hidden."
    )
    hint = f"The next one may come {quota.resets_in}, at {quota.resets_at:%H:%M} UTC on {quota.resets_at:%-d %B}."
    return QUOTA.problem(message, hint + (" Leave it out to submit the others." if others else ""))


def _whose(quota: Quota, window: Window) -> str:
    own = bool(window.limit) and window.by_person >= (window.limit or 0)
    return "you" if own or quota.team is None else f"your team {quota.team.name}"


def refuse_unapproved(team: Team | None, datasets: Iterable[Dataset]) -> None:
    """Raises Refused where a curator is to approve the team first, for it would submit to hidden judgements.

    `team` None: one that is yet to be made.
    """
    if not needs_approval(team):
        return
    hidden = list(dict.fromkeys(dataset.name for dataset in datasets if dataset.hidden))
    if hidden:
        named = f"Your team {team.name}" if team is not None else "Your team"
        raise Refused.of(
            TEAM_NOT_APPROVED,
            f"{named} is not approved yet: the judgements of {', '.join(hidden)} are hidden, and a curator approves a "
            "team before it first submits to such a dataset.",
            "Nothing was counted. Ask whoever runs this site to approve the team; datasets with open judgements take "
            "your submissions now.",
        )


def hold(person: User, team: Team) -> None:
    """Let nobody else count for the person or the team until the transaction ends.

    Always in this order, after boards and before a system's row is held, so that no two requests wait for each other.
    Rows that refer to the two can be written meanwhile.
    """
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def charge(submission: Submission, datasets: Iterable[Dataset]) -> None:
    """Count a stored submission once on each hidden dataset, in the transaction that stores it.

    Raises QuotaSpent where the person or the team has had its share, and Refused where the team is not approved; then
    nothing is counted.
    """
    hidden = list(Dataset.objects.filter(pk__in={dataset.pk for dataset in datasets}, hidden=True))
    if not hidden:
        return
    hold(submission.submitter, submission.team)
    refuse_unapproved(Team.objects.get(pk=submission.team_id), hidden)
    quotas = quotas_of(submission.submitter, [submission.team], hidden)
    if spent := [quota for quota in quotas if quota.spent]:
        raise QuotaSpent(spent, len({dataset.pk for dataset in datasets}))
    now = timezone.now()
    QuotaUse.objects.bulk_create(
        QuotaUse(
            dataset=dataset, team=submission.team, person=submission.submitter, submission=submission, at=now
        )
        for dataset in hidden
    )


def refund(submission: Submission, dataset: Dataset, why: str) -> bool:
    """Give back what the submission cost on the dataset. False where it cost nothing, or was given back before."""
    return bool(_give_back(QuotaUse.objects.filter(submission=submission, dataset=dataset), why))


def refund_use(use: QuotaUse, why: str) -> bool:
    """Give back one use of the ledger. False where it was given back before, or was a refusal."""
    return bool(_give_back(QuotaUse.objects.filter(pk=use.pk), why))


def _give_back(uses: object, why: str) -> int:
    rows = uses.filter(kind=QuotaUse.Kind.SUBMISSION, refunded_at=None)  # type: ignore[attr-defined]
    count: int = rows.update(refunded_at=timezone.now(), refund_reason=why[:120])
    return count


def settle(job_id: int) -> None:
    """Give back the unit of a job that has just ended if no result can come of it, in the transaction that ended it.

    Of a seed set the last job that ends decides. A process whose role of the database may not write the ledger, which
    is a retriever, asks the dispatcher to do it. `advance` and `settle_requested` alone call this.
    """
    ended = Job.objects.filter(pk=job_id).exclude(submission=None).values("submission", "dataset").first()
    if ended is None:
        return
    if not may_change(QuotaUse._meta.db_table):
        request_settlement(ended["dataset"], job_id)
        return
    with transaction.atomic():
        uses = QuotaUse.objects.filter(**ended, kind=QuotaUse.Kind.SUBMISSION, refunded_at=None)
        # Held before the jobs are read: of two seeds that end at once, the second sees the first.
        use = uses.select_for_update(of=("self",)).first()
        if use is None:
            return
        jobs = list(Job.objects.filter(**ended).exclude(kind=Job.Kind.SHARD))
        if any(job.state not in TERMINAL for job in jobs):
            return
        why = _why_refunded(jobs)
        if why:
            refund_use(use, why)
        if why == REJECTED:
            QuotaUse.objects.create(
                kind=QuotaUse.Kind.REFUSAL,
                dataset_id=use.dataset_id,
                team_id=use.team_id,
                person_id=use.person_id,
                submission_id=use.submission_id,
                at=timezone.now(),
            )


def settle_requested() -> None:
    """Settle what retrievers asked for. A request decides nothing: the states of the jobs do."""
    for request in WorkRequest.objects.filter(taken_at=None, kind=WorkRequest.Kind.SETTLE):
        job = request.payload.get("job") if isinstance(request.payload, dict) else None
        with transaction.atomic():
            taken = WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now())
            if taken and isinstance(job, int) and 0 < job < 2**63:
                settle(job)


def _why_refunded(jobs: Sequence[Job]) -> str:
    """Why what a submission cost on one dataset is given back; empty where it counts.

    What failed through us does not, a seed set of which we lost one run included: nothing is told of an incomplete
    set. What was scored counts, and what was cancelled or withdrawn after a worker began: its sender chose the moment.
    """
    if any(_our_fault(job) for job in jobs):
        return OUR_FAULT
    if any(job.state in (State.DONE, State.WITHDRAWN) for job in jobs):
        return ""
    if any(job.state in (State.CANCELLED, State.TIMED_OUT) and job.started_at is not None for job in jobs):
        return ""
    return REJECTED if any(job.state == State.REJECTED for job in jobs) else NEVER_BEGAN


def _our_fault(job: Job) -> bool:
    """A job that failed, or whose run took the scorer too long; a model's own time is its owner's affair."""
    return job.state == State.FAILED or (job.state == State.TIMED_OUT and job.kind != Job.Kind.MODEL)
