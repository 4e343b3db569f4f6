"""Quota ledger: charges for stored submissions, refunds for unscored ones, and refused files.

Refused files are free up to a daily limit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import Problem, ProblemCode, is_free
from leaderboard.core.audit import actor, record
from leaderboard.core.database_grants import may_change
from leaderboard.core.text.dates import format_moment
from leaderboard.core.work_requests import request_settlement
from leaderboard.models import Dataset, Team, User, WorkRequest
from submissions.core.errors import Refused
from submissions.models import TERMINAL, Flag, Job, QuotaException, QuotaUse, State, Submission
from submissions.quotas import counting

#: Maximum number of refused files for hidden datasets per user and day (UTC); further files are not read.
REFUSALS_PER_DAY = 20
QUOTA = ProblemCode("quota", "You or your team have used up the daily or monthly submissions to a hidden dataset, "
    "or your team has used up today's runs of models.", "The message states when you can submit again.",
    is_free=True)  # fmt: skip
TEAM_NOT_APPROVED = ProblemCode("team_not_approved", "The dataset is hidden, and a curator must approve your team "
    "before its first submission to a hidden dataset. No quota was used.", "Ask the operators of this site to approve "
    "your team. You can submit to open datasets in the meantime.", is_free=True)  # fmt: skip

#: Reasons for refunds, as submitters read them. The ledger stores these texts, and `charge_again` compares them.
OUR_FAULT = "the fault was ours"
REJECTED = "it was refused, and never scored"
NEVER_BEGAN = "it was canceled before a worker began"


class QuotaSpent(Refused):
    """Refusal because quotas are used up; `quotas` lists them."""

    def __init__(self, quotas: Sequence[counting.Quota], dataset_count: int) -> None:
        self.quotas = tuple(quotas)
        problems = [_spent_problem(quota, has_others=dataset_count > len(quotas)) for quota in quotas]
        super().__init__(QUOTA, problems[0].message, problems)


def _spent_problem(quota: counting.Quota, *, has_others: bool) -> Problem:
    """Build the problem that a quota is used up, with whose quota it is and when it resets.

    If `has_others`, the hint suggests to submit to the other datasets.
    """
    month = quota.month.left == 0
    window, period = (quota.month, "this month") if month else (quota.day, "today")
    limits_person = bool(window.limit) and window.by_person >= (window.limit or 0)
    subject = "you" if limits_person or quota.team is None else f"your team {quota.team.name}"
    if window.limit == 0:
        return QUOTA.problem(
            f"{quota.dataset} does not accept submissions from {subject} at present.", "Ask a curator."
        )
    message = (
        f"{subject[0].upper()}{subject[1:]} ha{'ve' if subject == 'you' else 's'} used {window.used} of {window.limit} "
        f"submissions to the hidden dataset {quota.dataset} {period}."
    )
    hint = f"You can submit again {quota.resets_in} ({format_moment(quota.resets_at)})."
    return QUOTA.problem(message, hint + (" Leave it out to submit the others." if has_others else ""))


def refuse_unapproved(team: Team | None, datasets: Iterable[Dataset]) -> None:
    """Raise Refused if a dataset is hidden and a curator must approve the team before it submits to hidden datasets.

    `team` is None for a team that is created with the submission.
    """
    if not counting.needs_approval(team):
        return
    if names := list(dict.fromkeys(dataset.name for dataset in datasets if dataset.hidden)):
        subject = f"Your team {team.name}" if team is not None else "Your team"
        raise Refused.for_problem(
            TEAM_NOT_APPROVED,
            f"{subject} is not approved yet. The judgments of {', '.join(names)} are hidden, and a curator must "
            "approve a team before its first submission to a hidden dataset.",
            "No quota was used. Ask the operators of this site to approve the team. You can submit to open "
            "datasets in the meantime.",
        )


def lock_quota(person: User, team: Team) -> Team:
    """Lock the counts of the user and the team until the transaction ends; return the current team.

    To avoid deadlocks, the order is always: boards, user, team, system. Rows that refer to user or team can still be
    written by others.
    """
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    return Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def charge(submission: Submission, datasets: Iterable[Dataset]) -> None:
    """Charge a stored submission once per hidden dataset.

    Call it in the transaction that stores the submission, after `lock_quota`.

    Raises:
        QuotaSpent: If the quota of the user or the team is used up. No dataset is charged then.
        Refused: If the team is not approved. No dataset is charged then.
    """
    hidden_datasets = list(Dataset.objects.filter(pk__in={dataset.pk for dataset in datasets}, hidden=True))
    if not hidden_datasets:
        return
    refuse_unapproved(submission.team, hidden_datasets)
    _refuse_spent(submission.submitter, submission.team, hidden_datasets, len({dataset.pk for dataset in datasets}))
    now = timezone.now()
    QuotaUse.objects.bulk_create(
        QuotaUse(dataset=dataset, team=submission.team, person=submission.submitter, submission=submission, at=now)
        for dataset in hidden_datasets
    )


def _refuse_spent(person: User, team: Team | None, hidden_datasets: Sequence[Dataset], dataset_count: int) -> None:
    """Raise QuotaSpent if a quota on the hidden datasets is used up.

    `team` is None to check only the user's own count. `dataset_count` is the number of all requested datasets.
    """
    quotas = counting.get_quotas(person, [team], hidden_datasets) if hidden_datasets else []
    if spent_quotas := [quota for quota in quotas if quota.spent]:
        raise QuotaSpent(spent_quotas, dataset_count)


def charge_again(submission: Submission, datasets: Iterable[int]) -> None:
    """Charge a retried submission once more if its unit was refunded because of a fault on our side.

    It counts as one of today's submissions. Call it after `lock_quota`. Raises QuotaSpent if the quota has been used
    up.
    """
    refunded_uses = QuotaUse.objects.filter(
        submission=submission, dataset__in=datasets, kind=QuotaUse.Kind.SUBMISSION, refund_reason=OUR_FAULT
    ).exclude(refunded_at=None)
    hidden_datasets = [use.dataset for use in refunded_uses.select_related("dataset")]
    _refuse_spent(submission.submitter, submission.team, hidden_datasets, len(hidden_datasets))
    refunded_uses.update(refunded_at=None, refund_reason="", at=timezone.now())


def refund_use(use: QuotaUse, reason: str) -> bool:
    """Refund one use; return False if it was refunded before or is a refusal."""
    unit = QuotaUse.objects.filter(pk=use.pk, kind=QuotaUse.Kind.SUBMISSION, refunded_at=None)
    return unit.update(refunded_at=timezone.now(), refund_reason=reason[:120]) == 1


def settle_quota(job_id: int) -> None:
    """Refund the unit of a job that has just ended, if it must not count, once all jobs on its dataset have ended.

    If the run was rejected, also count it as a refused file. Called only by `advance`, in the transaction that ended
    the job, and by `settle_requested`. A retriever only stores a request for the dispatcher, because its database role
    may not write the ledger.
    """
    if not may_change(QuotaUse._meta.db_table):
        for dataset in Job.objects.filter(pk=job_id).exclude(submission=None).values_list("dataset", flat=True):
            request_settlement(dataset, job_id)
        return
    uses = QuotaUse.objects.filter(
        submission__jobs=job_id,
        dataset=F("submission__jobs__dataset"),
        kind=QuotaUse.Kind.SUBMISSION,
        refunded_at=None,
    )
    # Lock before reading the jobs: if two seeds end at the same time, the second sees the first.
    use = uses.select_for_update(of=("self",)).first()
    if use is None:
        return
    dataset_jobs = Job.objects.filter(submission=use.submission_id, dataset=use.dataset_id)
    jobs = list(dataset_jobs.exclude(kind=Job.Kind.SHARD).select_related("submission__checkpoint"))
    if any(job.state not in TERMINAL for job in jobs):
        return
    if reason := _refund_reason(jobs):
        refund_use(use, reason)
    if reason == REJECTED:
        QuotaUse.objects.create(
            kind=QuotaUse.Kind.REFUSAL,
            dataset_id=use.dataset_id,
            team_id=use.team_id,
            person_id=use.person_id,
            submission_id=use.submission_id,
            at=timezone.now(),
        )


def settle_requested() -> None:
    """Settle the quota of the jobs in all open requests from retrievers, according to the states of the jobs."""
    for request in WorkRequest.objects.filter(taken_at=None, kind=WorkRequest.Kind.SETTLE):
        job = request.payload.get("job") if isinstance(request.payload, dict) else None
        with transaction.atomic():
            claimed_count = WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now())
            if claimed_count and isinstance(job, int) and 0 < job < 2**63:
                settle_quota(job)


def _refund_reason(jobs: Sequence[Job]) -> str:
    """Return the reason to refund the unit of one dataset, given its ended jobs, or "" if it counts.

    Failures on our side are refunded. That includes a seed set of which one run was lost, since an incomplete set
    reveals no scores. Rejected runs and jobs canceled before they started are refunded, too. Scored jobs count, and so
    do jobs canceled or withdrawn after they started, because the submitter chose the moment. Rejected container images
    count, because the team's own code read the texts and chose how to fail.
    """
    states = {job.state for job in jobs}
    # A timeout of scoring is our fault; a timeout of a model is not.
    has_scoring_timeout = any(job.state == State.TIMED_OUT and job.kind != Job.Kind.MODEL for job in jobs)
    if State.FAILED in states or has_scoring_timeout:
        return OUR_FAULT
    has_begun = any(job.state in (State.CANCELLED, State.TIMED_OUT) and job.started_at for job in jobs)
    # A downloaded image has a checkpoint once it has arrived.
    models = [job.submission.checkpoint for job in jobs if job.state == State.REJECTED and job.submission is not None]
    has_begun |= any(model is not None and model.kind == CheckpointKind.CONTAINER for model in models)
    if has_begun or states & {State.DONE, State.WITHDRAWN}:
        return ""
    return REJECTED if State.REJECTED in states else NEVER_BEGAN


TOO_MANY_REFUSALS = ProblemCode("too_many_refusals", "Too many of your files for hidden datasets were refused "
    "today.", "Use “Check only” first, which never counts.", is_free=True)  # fmt: skip


def count_refusals(person: User) -> counting.DailyCount:
    """Count the user's files refused today, over all hidden datasets and teams."""
    midnight = counting.start_of_day(timezone.now())
    uses = QuotaUse.objects.filter(kind=QuotaUse.Kind.REFUSAL, person=person, at__gte=midnight)
    return counting.DailyCount(uses.count(), REFUSALS_PER_DAY)


@contextmanager
def recording_refusals(person: User, datasets: Iterable[Dataset]) -> Iterator[None]:
    """Record a Refused that the block raises as a refused file on the hidden datasets, and raise it again.

    Use it outside of any transaction. Raises Refused before the block if the user has no quota left or had too many
    files refused today. If many requests run at once, the limit also replaces the verdict, so that users see at most as
    many verdicts as the limit allows. Refusals for other reasons than the content of a file are not recorded.
    """
    if hidden_datasets := list({dataset.pk: dataset for dataset in datasets if dataset.hidden}.values()):
        # Exceptions for teams are not considered here: a user with one is counted again under the lock.
        if not person.teams.exclude(quota_exceptions=None).exists():
            _refuse_spent(person, None, hidden_datasets, len(hidden_datasets))
        _refuse_beyond_limit(person)
    try:
        yield
    except Refused as refusal:
        # If files have errors too, the refusal has the code of the files.
        if hidden_datasets and not is_free(refusal.code):
            with transaction.atomic():
                # Lock before counting: if two requests end at the same time, the second sees the first.
                User.objects.select_for_update(no_key=True).get(pk=person.pk)
                _refuse_beyond_limit(person)
                invalid_slugs = {file.dataset for file in refusal.files if not file.report.valid}
                now = timezone.now()
                QuotaUse.objects.bulk_create(
                    QuotaUse(kind=QuotaUse.Kind.REFUSAL, dataset=dataset, person=person, at=now)
                    for dataset in hidden_datasets
                    if not invalid_slugs or dataset.slug in invalid_slugs
                )
        raise


def _refuse_beyond_limit(person: User) -> None:
    """Raise Refused if the user reached the daily limit of refused files for hidden datasets."""
    refusals = count_refusals(person)
    if refusals.left:
        return
    raise Refused.for_problem(
        TOO_MANY_REFUSALS,
        f"{refusals.used} of your files for hidden datasets were refused today; the limit is {refusals.limit} a day.",
        f"Submit to these datasets again {counting.format_remaining(refusals.resets_at)}, at "
        f"{format_moment(refusals.resets_at)}. “Check only” still shows a file's problems.",
    )


def refund_unit(use: QuotaUse) -> None:
    """Refund a unit and record it, with the reason of the current action (`audit.acting`), which submitters can see.

    Raises ValueError if no unit is charged.
    """
    if not refund_use(use, actor().reason):
        explanation = "was refunded before" if use.refunded_at else "is a refused file, which used no quota"
        raise ValueError(f"{use} ({use.pk}) {explanation}.")
    record("quota refunded", use, dataset=use.dataset_id, after={"submission": use.submission_id})


def grant_exception(
    team: Team, dataset: Dataset | None, *, daily: int | None, monthly: int | None, until: datetime | None
) -> QuotaException:
    """Store and record a team's own quota on a dataset, or on all datasets if `dataset` is None.

    `daily` and `monthly` are None for no limit, and `until` is None for an unlimited period. An existing exception of
    the team for the same dataset is replaced.
    """
    values = {"daily": daily, "monthly": monthly, "until": until, "reason": actor().reason[:300]}
    row, _ = QuotaException.objects.update_or_create(team=team, dataset=dataset, defaults=values)
    record("quota exception", row, dataset=dataset, after={**values, "until": until.isoformat() if until else None})
    return row


def end_exception(team: Team, dataset: Dataset | None) -> None:
    """End the team's own quota on a dataset. Raises ValueError if it has none."""
    row = QuotaException.objects.filter(team=team, dataset=dataset).first()
    if row is None:
        raise ValueError(f"{team} has no quota of its own on {dataset or 'all datasets'}.")
    record("quota exception ended", row, dataset=dataset)
    row.delete()


def settle_flag(flag: Flag, state: Flag.State) -> None:
    """Set and record the state of a flag: cleared or confirmed. This has no further consequences."""
    previous_state, decision = flag.state, actor()
    flag.state, flag.note = state, decision.reason[:300]
    flag.settled_by, flag.settled_at = decision.person, timezone.now()
    flag.save(update_fields=["state", "note", "settled_by", "settled_at"])
    record(
        f"flag {Flag.State(state).label}",
        flag,
        dataset=flag.dataset_id,
        before={"state": previous_state},
        after={"state": state},
    )


#: Format of each kind's description, filled from `Flag.details`.
_FLAG_CAUSES = {
    Flag.Kind.FEW_QUERIES: "{answered} of {topics} queries answered",
    Flag.Kind.FEW_DOCUMENTS: "{usual_documents:g} documents for most queries",
    Flag.Kind.SAME_SCORES: "same scores as submission {submission}",
    Flag.Kind.NEARLY_THE_SAME: "{same_documents} of {compared} queries have the same top ten documents as submission "
    "{submission}, {same_order} in the same order",
}


def flag_details(flag: Flag) -> str:
    """Describe the cause of a flag, without scores, queries, or documents."""
    text = _FLAG_CAUSES[Flag.Kind(flag.kind)].format_map(flag.details)
    chain_length = len(flag.details.get("chain", ()))
    return f"{text}; a chain of {chain_length + 1} submissions" if chain_length > 1 else text
