"""Intake steps shared by runs and models: options, admission, repeated submissions, and storage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from evaluation.core.problems import ProblemCode
from leaderboard.core.text.dates import format_day
from leaderboard.models import Dataset, System, Team, User
from leaderboard.systems.anonymity import EmbargoRefused, make_anonymous
from leaderboard.systems.records import NameTaken, SystemFields, create_system
from submissions.accounts.approval import refuse_unaccepted
from submissions.accounts.permissions import get_teams
from submissions.accounts.teams import personal_team
from submissions.core.errors import ALREADY_SUBMITTED, LABEL_NEEDED, Refused
from submissions.intake.rounds import Admission, RoundEntry, check_admission
from submissions.models import Job, Submission
from submissions.queue import queue
from submissions.quotas.ledger import charge, refuse_unapproved
from submissions.uploads.service import consume_uploads

SYSTEM_NAME_TAKEN = ProblemCode("system_name_taken", "Your team already has a system with this name.",
    "Choose that system, or use another name.", is_free=True)  # fmt: skip
UNKNOWN_TEAM = ProblemCode("unknown_team", "You are not a member of this team.", "Choose one of your "
    "teams, or omit the team to use your first one.", is_free=True)  # fmt: skip
ANONYMITY = ProblemCode("anonymity", "The system cannot be anonymous until this date.",
    "Choose a date after today and at most nine months ahead.", is_free=True)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """Fields of a submission other than its system and its runs or model.

    `team` (default: the submitter's first) and `anonymous_until` apply to new systems. `bulk` is the id of a
    curator's import, which needs no agreement and uses no quota.
    """

    configuration: str = ""
    public: bool = True
    reusable: bool = False
    note: str = ""
    round_entry: RoundEntry = RoundEntry()  # noqa: RUF009  # frozen
    team: Team | None = None
    anonymous_until: date | None = None
    bulk: str = ""

    def columns(self) -> dict[str, Any]:
        names = ("configuration", "public", "reusable", "note", "bulk")
        return {"run_type": self.round_entry.run_type, **{name: getattr(self, name) for name in names}}

    def changes_anonymity(self, system: System) -> bool:
        """Return whether `anonymous_until` is set and differs from the date of the existing system."""
        current_date = system.anonymous_until.date() if system.anonymous_until else None
        return self.anonymous_until not in (None, current_date)


def submitting_team(submitter: User, system: System | SystemFields, options: SubmissionOptions) -> Team:
    """Return the submission's team: the existing system's team, the chosen one, or the submitter's first.

    Raises Refused if the submitter is not a member of the chosen team.
    """
    if isinstance(system, System):
        return system.team or personal_team(submitter)
    if options.team is None:
        return get_teams(submitter).first() or personal_team(submitter)
    if not get_teams(submitter).filter(pk=options.team.pk).exists():
        raise Refused.for_problem(UNKNOWN_TEAM, f"You are not a member of “{options.team.name}”.", "Choose your team.")
    return options.team


def admit(
    submitter: User,
    team: Team,
    datasets: Sequence[Dataset],
    options: SubmissionOptions,
    tags: Sequence[str | None] = (),
) -> Admission:
    """Return the admission to the current round, with the problems that prevent it.

    Raises Refused if the team is not approved or an agreement is not accepted. Only after `lock_quota`, the result
    remains valid until the end of the transaction.
    """
    refuse_unapproved(team, datasets)
    if not options.bulk:
        refuse_unaccepted(submitter, datasets)
    return check_admission(submitter, team, datasets, options.round_entry, tags)


def system_row(system: System | SystemFields, team: Team, options: SubmissionOptions) -> System:
    """Return the row of an existing system, locked until the end of the transaction, or create the row of a new one.

    The lock ensures that concurrent repeats are detected. Raises Refused if the team has a system of the new one's
    name, or its anonymous period is invalid.
    """
    if isinstance(system, System):
        return System.objects.select_for_update(no_key=True).get(pk=system.pk)
    try:
        row = create_system(team, system)
        if options.anonymous_until is not None:
            make_anonymous(row, options.anonymous_until)
    except EmbargoRefused as error:
        message = f"The system cannot be anonymous until {options.anonymous_until}."
        raise Refused.for_problem(ANONYMITY, message, str(error)) from error
    except NameTaken as error:
        raise Refused.for_problem(
            SYSTEM_NAME_TAKEN,
            f"Your team already has a system named “{error.system.name}”.",
            f"Choose it (system={error.system.slug}), or use another name.",
        ) from error
    return row


def refuse_repeat(new_job: Job, submission: Submission) -> None:
    """Raise Refused if the system or team already has a result that the board could not distinguish from the job's.

    This is the case for the same run of the system, or for a model that the team already ran with the same parameters.
    Other runs of the system, or other engines or parameters, need a different label (configuration).
    """
    is_model = new_job.kind == Job.Kind.MODEL
    blocking_jobs = Job.objects.blocking_resubmission().filter(
        dataset=new_job.dataset, submission__configuration=submission.configuration
    )
    blocking_jobs = (
        blocking_jobs.filter(kind=new_job.kind, submission__team=submission.team)
        if is_model
        else blocking_jobs.filter(submission__system=submission.system)
    )
    jobs = blocking_jobs.select_related("submission__checkpoint", "submission__system").defer("report", "log")
    earlier_jobs = [(job, job.submission) for job in jobs if job.submission is not None]
    for job, earlier_submission in earlier_jobs:
        if _is_same(new_job, job):
            raise _build_duplicate_refusal(new_job, job, earlier_submission)
    for job, earlier_submission in earlier_jobs:
        if earlier_submission.system == submission.system and earlier_submission.withdrawn_at is None:
            changes = _differences(new_job, job) if is_model else {}
            if changes or not is_model:
                raise _build_label_refusal(new_job, earlier_submission, changes)


def _is_same(new_job: Job, earlier_job: Job) -> bool:
    """Return whether both jobs have the same run, or the same model with the same configuration."""
    if new_job.kind != Job.Kind.MODEL:
        if new_job.validated:
            return bool(earlier_job.payload.get("run_sha256") == new_job.payload["run_sha256"])
        return earlier_job.upload_sha256 == new_job.upload_sha256
    # Models on the Hub are named in the payload. They have a checkpoint only after the download.
    on_hub = "hub_name" in new_job.payload
    has_same_model = on_hub or _model_sha256(new_job) == _model_sha256(earlier_job)
    if _differences(new_job, earlier_job) or not has_same_model:
        return False
    keys = [name for name in ("run_ids", "parameters", "hub_name", "hub_commit") if name in new_job.payload]
    return all(name in earlier_job.payload and earlier_job.payload[name] == new_job.payload[name] for name in keys)


def _model_sha256(job: Job) -> str:
    checkpoint = job.submission.checkpoint if job.submission else None
    return checkpoint.model_sha256 if checkpoint else ""


def _differences(new_job: Job, earlier_job: Job) -> dict[str, object]:
    """Return the changed parameters with their new values, or only the new `engine` if the engines differ."""
    if new_job.submission and earlier_job.submission and new_job.submission.engine != earlier_job.submission.engine:
        return {"engine": new_job.submission.engine}
    earlier_parameters = earlier_job.model_parameters
    return {
        name: value
        for name, value in new_job.model_parameters.items()
        if name not in earlier_parameters or earlier_parameters[name] != value
    }


def _build_duplicate_refusal(new_job: Job, earlier_job: Job, submission: Submission) -> Refused:
    """Build the refusal of a run, or of a model with these parameters, that `submission` already contains."""
    name, withdrawal_note = submission.system.name, " and was withdrawn" if submission.withdrawn_at else ""
    if new_job.kind == Job.Kind.MODEL:
        repeat = f"{name} already has a result of this model on {new_job.dataset} with these parameters"
        distinction, withdrawal_note = "another seed or configuration", ""
    else:
        repeat = f"{new_job.file_name} is the same run that {name} already has on {new_job.dataset}"
        distinction = "another configuration"
    origin = f"it was submitted as {submission.pk} on {format_day(earlier_job.created_at)}{withdrawal_note}"
    hint = f"See {submission.get_absolute_url()}. If this is {distinction}, label it."
    return Refused.for_problem(ALREADY_SUBMITTED, f"{repeat}: {origin}.", hint)


def _build_label_refusal(new_job: Job, earlier_submission: Submission, changes: Mapping[str, object]) -> Refused:
    """Build the refusal of a result that needs a label to be distinguished from the earlier submission's.

    `changes` are the parameters in which a model's result differs; empty for runs.
    """
    label = f"the label “{earlier_submission.configuration}”" if earlier_submission.configuration else "no label"
    location, address = f"on {new_job.dataset} with {label}", earlier_submission.get_absolute_url()
    if changes:
        result = f"a result {location}, with a different {', '.join(changes)}"
        example = ", ".join(f"{name} {value}" for name, value in list(changes.items())[:2])[:60]
        hint = f"Label this result, for example “{example}” (configuration=…), or withdraw {address} first."
    else:
        result = f"another run {location}"
        hint = (
            f"Label this run (configuration=…), or withdraw {address} first. Send runs that only differ by "
            "seed together, as one result."
        )
    message = f"{earlier_submission.system.name} already has {result}. The board could not distinguish the two."
    return Refused.for_problem(LABEL_NEEDED, message, hint)


def store_submission(submission: Submission, jobs: Sequence[Job], uploads: Sequence[str]) -> None:
    """Store a submission, queue its jobs, consume its uploads, and charge its quota, in the caller's transaction.

    All jobs are in the same queue. Bulk imports use no quota. Raises Refused if a quota is exhausted or an upload no
    longer exists.
    """
    submission.save(force_insert=True)
    turn = queue.next_turn(jobs[0].queue, submission.team_id)
    for number, job in enumerate(jobs):
        job.turn = turn + number
        job.save(force_insert=True)
        queue.wake_worker(job.queue)
    consume_uploads(submission.submitter, uploads)
    if not submission.bulk:
        charge(submission, [job.dataset for job in jobs])
