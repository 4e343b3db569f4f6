"""The ledger: what is charged when a submission is stored, and given back when it could not be scored.

Refused files cost nothing, up to a limit by day, and are written down here too.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from evaluation.core.problems import Problem, ProblemCode, is_free
from leaderboard.core.audit import actor, record
from leaderboard.core.database_grants import may_change
from leaderboard.core.work_requests import request_settlement
from leaderboard.models import Dataset, Team, User, WorkRequest
from submissions.core.errors import Refused
from submissions.models import TERMINAL, Flag, Job, QuotaException, QuotaUse, State, Submission
from submissions.quotas import counting

#: Rejected files for hidden datasets per user and day (UTC); further files are not read.
REFUSALS_PER_DAY = 20
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

    def __init__(self, spent: Sequence[counting.Quota], wanted: int) -> None:
        self.quotas = tuple(spent)
        problems = [_spent_problem(quota, others=wanted > len(spent)) for quota in spent]
        super().__init__(QUOTA, problems[0].message, problems)


def _spent_problem(quota: counting.Quota, *, others: bool) -> Problem:
    month = quota.month.left == 0
    window, period = (quota.month, "this month") if month else (quota.day, "today")
    own = bool(window.limit) and window.by_person >= (window.limit or 0)
    whose = "you" if own or quota.team is None else f"your team {quota.team.name}"
    if window.limit == 0:
        return QUOTA.problem(f"{quota.dataset} takes no submissions of {whose} for now.", "Ask a curator.")
    message = (
        f"{whose[0].upper()}{whose[1:]} ha{'ve' if whose == 'you' else 's'} used {window.used} of {window.limit} "
        f"submissions to {quota.dataset} {period}; its judgements are hidden."
    )
    hint = f"The next one may come {quota.resets_in}, at {quota.resets_at:%H:%M} UTC on {quota.resets_at:%-d %B}."
    return QUOTA.problem(message, hint + (" Leave it out to submit the others." if others else ""))


def refuse_unapproved(team: Team | None, datasets: Iterable[Dataset]) -> None:
    """Raise Refused where a curator is to approve the team first, for it would submit to hidden judgements.

    `team` None: one that is yet to be made.
    """
    if not counting.needs_approval(team):
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


def lock_quota(person: User, team: Team) -> Team:
    """Let nobody else count for the person or the team until the transaction ends; the team as it is now.

    Always in this order, after boards and before a system's row is held, so that no two requests wait for each other.
    Rows that refer to the two can be written meanwhile.
    """
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    return Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def charge(submission: Submission, datasets: Iterable[Dataset]) -> None:
    """Count a stored submission once on each hidden dataset, in the transaction that stores it, after `lock_quota`.

    Raises QuotaSpent where the person or the team has had its share, and Refused where the team is not approved; then
    nothing is counted.
    """
    hidden = list(Dataset.objects.filter(pk__in={dataset.pk for dataset in datasets}, hidden=True))
    if not hidden:
        return
    refuse_unapproved(submission.team, hidden)
    _refuse_spent(submission.submitter, submission.team, hidden, len({dataset.pk for dataset in datasets}))
    now = timezone.now()
    QuotaUse.objects.bulk_create(
        QuotaUse(
            dataset=dataset, team=submission.team, person=submission.submitter, submission=submission, at=now
        )
        for dataset in hidden
    )


def _refuse_spent(person: User, team: Team | None, hidden: Sequence[Dataset], wanted: int) -> None:
    """Raise QuotaSpent where the person or the team has no more of a quota; `wanted` counts all datasets asked for."""
    quotas = counting.quotas_of(person, [team], hidden) if hidden else []
    if spent := [quota for quota in quotas if quota.spent]:
        raise QuotaSpent(spent, wanted)


def charge_again(submission: Submission, datasets: Iterable[int]) -> None:
    """Count a submission that is tried again, once, where its unit was given back; after `lock_quota`.

    It is one of today's. Raises QuotaSpent where the unit was used for another submission meanwhile.
    """
    given_back = QuotaUse.objects.filter(
        submission=submission, dataset__in=datasets, kind=QuotaUse.Kind.SUBMISSION, refund_reason=OUR_FAULT
    ).exclude(refunded_at=None)
    hidden = [use.dataset for use in given_back.select_related("dataset")]
    _refuse_spent(submission.submitter, submission.team, hidden, len(hidden))
    given_back.update(refunded_at=None, refund_reason="", at=timezone.now())


def refund_use(use: QuotaUse, why: str) -> bool:
    """Give back one use of the ledger. False where it was given back before, or was a refusal."""
    unit = QuotaUse.objects.filter(pk=use.pk, kind=QuotaUse.Kind.SUBMISSION, refunded_at=None)
    return unit.update(refunded_at=timezone.now(), refund_reason=why[:120]) == 1


def settle_quota(job_id: int) -> None:
    """Give back the unit of a job that has just ended if no result can come of it, in the transaction that ended it.

    Of a seed set the last job that ends decides. A process whose role of the database may not write the ledger, which
    is a retriever, asks the dispatcher to do it. `advance` and `settle_requested` alone call this.
    """
    if not may_change(QuotaUse._meta.db_table):
        datasets = Job.objects.filter(pk=job_id).exclude(submission=None).values_list("dataset", flat=True)
        for dataset in datasets:
            request_settlement(dataset, job_id)
        return
    uses = QuotaUse.objects.filter(
        submission__jobs=job_id,
        dataset=F("submission__jobs__dataset"),
        kind=QuotaUse.Kind.SUBMISSION,
        refunded_at=None,
    )
    # Held before the jobs are read: of two seeds that end at once, the second sees the first.
    use = uses.select_for_update(of=("self",)).first()
    if use is None:
        return
    ended = Job.objects.filter(submission=use.submission_id, dataset=use.dataset_id)
    jobs = list(ended.exclude(kind=Job.Kind.SHARD))
    if any(job.state not in TERMINAL for job in jobs):
        return
    why = _refund_reason(jobs)
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
                settle_quota(job)


def _refund_reason(jobs: Sequence[Job]) -> str:
    """Why what a submission cost on one dataset is given back; empty where it counts.

    What failed through us does not, a seed set of which we lost one run included: nothing is told of an incomplete
    set. What was scored counts, and what was cancelled or withdrawn after a worker began: its sender chose the moment.
    """
    states = {job.state for job in jobs}
    # A run that takes the scorer too long is our fault; models' own time is not.
    if State.FAILED in states or any(
        job.state == State.TIMED_OUT and job.kind != Job.Kind.MODEL for job in jobs
    ):
        return OUR_FAULT
    began = any(job.state in (State.CANCELLED, State.TIMED_OUT) and job.started_at for job in jobs)
    if began or states & {State.DONE, State.WITHDRAWN}:
        return ""
    return REJECTED if State.REJECTED in states else NEVER_BEGAN


TOO_MANY_REFUSALS = ProblemCode("too_many_refusals", "Many of your files for hidden datasets were refused today; "
    "only so many cost nothing.", "Check files first, which is never counted.", is_free=True)  # fmt: skip


def refusals_of(person: User) -> counting.DailyCount:
    """Count the person's files that were refused today, over all hidden datasets and teams."""
    midnight = counting.start_of_day(timezone.now())
    uses = QuotaUse.objects.filter(kind=QuotaUse.Kind.REFUSAL, person=person, at__gte=midnight)
    return counting.DailyCount(uses.count(), REFUSALS_PER_DAY)


@contextmanager
def recording_refusals(person: User, datasets: Iterable[Dataset]) -> Iterator[None]:
    """Around reading what was sent, outside of any transaction: a refusal is written down, on hidden datasets.

    Raises Refused before anything is read where the person has nothing left, or had too many files refused today, and
    in place of a verdict where that many were meanwhile: of many that come at once no more than the limit are told.
    """
    hidden = list({dataset.pk: dataset for dataset in datasets if dataset.hidden}.values())
    if hidden:
        # The person's own count, without a team's exceptions: who has one is counted again under the lock.
        if not person.teams.exclude(quota_exceptions=None).exists():
            _refuse_spent(person, None, hidden, len(hidden))
        _refuse_beyond_limit(person)
    try:
        yield
    except Refused as refusal:
        # Where files are wrong too, theirs is the first code.
        if hidden and not is_free(refusal.code):
            with transaction.atomic():
                # Held before they are counted: of two that end at once the second sees the first.
                User.objects.select_for_update(no_key=True).get(pk=person.pk)
                _refuse_beyond_limit(person)
                wrong, now = {file.dataset for file in refusal.files if not file.report.valid}, timezone.now()
                QuotaUse.objects.bulk_create(
                    QuotaUse(kind=QuotaUse.Kind.REFUSAL, dataset=dataset, person=person, at=now)
                    for dataset in hidden
                    if not wrong or dataset.slug in wrong
                )
        raise


def _refuse_beyond_limit(person: User) -> None:
    refusals = refusals_of(person)
    if refusals.left:
        return
    raise Refused.of(
        TOO_MANY_REFUSALS,
        f"Today {refusals.used} of your files for datasets with hidden judgements were refused, and only "
        f"{refusals.limit} a day cost nothing.",
        f"Submit to these again {counting.format_remaining(refusals.resets_at)}, at {refusals.resets_at:%H:%M} UTC on "
        f"{refusals.resets_at:%-d %B}. Until then “Check only” says what is wrong with a file.",
    )


def refund_unit(use: QuotaUse) -> None:
    """Give a unit back for the reason of the act, which its people read. Raises ValueError where none is charged."""
    if not refund_use(use, actor().reason):
        what = "was given back before" if use.refunded_at else "is a refused file, and cost nothing"
        raise ValueError(f"{use} ({use.pk}) {what}.")
    record("quota refunded", use, dataset=use.dataset_id, after={"submission": use.submission_id})


def grant_exception(
    team: Team, dataset: Dataset | None, *, daily: int | None, monthly: int | None, until: datetime | None
) -> QuotaException:
    """Give the team another quota on a dataset (None: on all) until a moment (None: for good); None is no limit."""
    reason = actor().reason
    values = {"daily": daily, "monthly": monthly, "until": until, "reason": reason[:300]}
    row, _ = QuotaException.objects.update_or_create(team=team, dataset=dataset, defaults=values)
    told = {**values, "until": until.isoformat() if until else None}
    record("quota exception", row, dataset=dataset, after=told)
    return row


def end_exception(team: Team, dataset: Dataset | None) -> None:
    """Put the team under the dataset's own quota again. Raises ValueError where it had no other."""
    row = QuotaException.objects.filter(team=team, dataset=dataset).first()
    if row is None:
        raise ValueError(f"{team} has no quota of its own on {dataset or 'all datasets'}.")
    record("quota exception ended", row, dataset=dataset)
    row.delete()


def settle_flag(flag: Flag, state: Flag.State) -> None:
    """Clear the flag, confirm it, or open it again. Nothing else follows: that is the curator's to say."""
    before, who = flag.state, actor()
    flag.state, flag.note = state, who.reason[:300]
    opened = state == Flag.State.OPEN
    flag.settled_by, flag.settled_at = (None, None) if opened else (who.person, timezone.now())
    flag.save(update_fields=["state", "note", "settled_by", "settled_at"])
    record(
        f"flag {Flag.State(state).label}", flag, dataset=flag.dataset_id,
        before={"state": before}, after={"state": state},
    )  # fmt: skip


def flag_details(flag: Flag) -> str:
    """Return the cause of a flag, in words: never a score, a query or a document."""
    details = flag.details
    if flag.kind == Flag.Kind.FEW_QUERIES:
        return f"{details['answered']} of {details['topics']} queries answered"
    if flag.kind == Flag.Kind.FEW_DOCUMENTS:
        return f"{details['usual_documents']:g} documents for most queries"
    if flag.kind == Flag.Kind.SAME_SCORES:
        return f"as submission {details['submission']}"
    text = (
        f"{details['same_documents']} of {details['compared']} queries have the same first ten documents as "
        f"submission {details['submission']}, {details['same_order']} in the same order"
    )
    linked = len(details.get("chain", ()))
    return f"{text}; a chain of {linked + 1} submissions" if linked > 1 else text
