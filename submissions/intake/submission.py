"""Steps that runs and models share on their way in: options, admission, repeats, and storing with jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from evaluation.core.problems import ProblemCode
from leaderboard.models import Dataset, System, Team, User
from leaderboard.systems.anonymity import EmbargoRefused, make_anonymous
from leaderboard.systems.records import NameTaken, SystemFields, create_system
from submissions.accounts.approval import refuse_unaccepted
from submissions.accounts.permissions import teams_of
from submissions.accounts.teams import personal_team
from submissions.core.errors import ALREADY_SUBMITTED, LABEL_NEEDED, Refused
from submissions.intake.rounds import Admission, RoundEntry, check_admission
from submissions.models import Job, Submission
from submissions.queue import queue
from submissions.quotas.ledger import charge, refuse_unapproved
from submissions.uploads.service import consume_uploads

SYSTEM_NAME_TAKEN = ProblemCode("system_name_taken", "A new system with the name of one that your team has.",
    "Choose that one, or give the new one another name.", is_free=True)  # fmt: skip
UNKNOWN_TEAM = ProblemCode("unknown_team", "A new system for a team that you do not belong to.", "Choose one of your "
    "teams, or leave the team out: it is your first one then.", is_free=True)  # fmt: skip
ANONYMITY = ProblemCode("anonymity", "A system that cannot be anonymous until the day that was asked for.",
    "Choose a day after today, nine months away at the most.", is_free=True)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """Fields of a submission beside its system and its runs or model.

    `team` (None: the submitter's first one) and `anonymous_until` are for a new system. `bulk` names a curator's
    import, which needs no agreement and counts to no quota.
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
        """Return the values of the submission's columns."""
        names = ("configuration", "public", "reusable", "note", "bulk")
        return {"run_type": self.round_entry.run_type, **{name: getattr(self, name) for name in names}}


def submitting_team(submitter: User, system: System | SystemFields, options: SubmissionOptions) -> Team:
    """Return the team of a submission. Raises Refused for a chosen team that the submitter does not belong to."""
    if isinstance(system, System):
        return system.team or personal_team(submitter)
    if options.team is None:
        return teams_of(submitter).first() or personal_team(submitter)
    if not teams_of(submitter).filter(pk=options.team.pk).exists():
        raise Refused.of(
            UNKNOWN_TEAM, f"You do not belong to “{options.team.name}”.", "Choose one of your teams."
        )
    return options.team


def admit(
    submitter: User,
    team: Team,
    datasets: Sequence[Dataset],
    options: SubmissionOptions,
    tags: Sequence[str | None] = (),
) -> Admission:
    """Return how the submission enters its round, with the round's problems.

    Raises Refused where the team is not approved, or an agreement is not accepted. What it returns holds until the
    transaction ends only after `lock_quota`.
    """
    refuse_unapproved(team, datasets)
    if not options.bulk:
        refuse_unaccepted(submitter, datasets)
    return check_admission(submitter, team, datasets, options.round_entry, tags)


def system_row(system: System | SystemFields, team: Team, options: SubmissionOptions) -> System:
    """Return the system's row, locked until the transaction ends, so that the same file twice at once is a repeat.

    Raises Refused for a new system whose name the team has, or that cannot be anonymous for so long.
    """
    if isinstance(system, System):
        return System.objects.select_for_update(no_key=True).get(pk=system.pk)
    try:
        row = create_system(team, system)
        if options.anonymous_until is not None:
            make_anonymous(row, options.anonymous_until)
    except EmbargoRefused as error:
        message = f"It cannot be anonymous until {options.anonymous_until}."
        raise Refused.of(ANONYMITY, message, str(error)) from error
    except NameTaken as error:
        raise Refused.of(
            SYSTEM_NAME_TAKEN,
            f"Your team has a system named “{error.system.name}” already.",
            f"Choose it (system={error.system.slug}), or give the new one another name.",
        ) from error
    return row


def refuse_repeat(new: Job, submission: Submission) -> None:
    """Raise Refused for a job whose result a board could not tell from an earlier one with the same label.

    That is the same run of the system, or the same model that the team had run in the same way. Another run of the
    system, or another engine or other parameters, need another label.
    """
    is_model = new.kind == Job.Kind.MODEL
    blocking = Job.objects.blocking_resubmission().filter(
        dataset=new.dataset, submission__configuration=submission.configuration
    )
    blocking = (
        blocking.filter(kind=new.kind, submission__team=submission.team)
        if is_model
        else blocking.filter(submission__system=submission.system)
    )
    jobs = blocking.select_related("submission__checkpoint", "submission__system").defer("report", "log")
    earlier = [(job, job.submission) for job in jobs if job.submission is not None]
    for job, its_submission in earlier:
        if _is_same(new, job):
            raise _repeated(new, job, its_submission)
    for job, its_submission in earlier:
        if its_submission.system == submission.system and its_submission.withdrawn_at is None:
            changes = _changes(new, job) if is_model else {}
            if changes or not is_model:
                raise _label_required(new, its_submission, changes)


def _is_same(new: Job, earlier: Job) -> bool:
    """Return whether both jobs have the same run, or run the same model in the same way."""
    if new.kind != Job.Kind.MODEL:
        if new.validated:
            return bool(earlier.payload.get("run_sha256") == new.payload["run_sha256"])
        return earlier.upload_sha256 == new.upload_sha256
    # The payload of a model on the hub names it. It has a checkpoint only once it was fetched.
    on_hub = "hub_name" in new.payload
    if _changes(new, earlier) or not (on_hub or _model_sha256(new) == _model_sha256(earlier)):
        return False
    compared = [name for name in ("run_ids", "parameters", "hub_name", "hub_commit") if name in new.payload]
    return all(name in earlier.payload and earlier.payload[name] == new.payload[name] for name in compared)


def _model_sha256(job: Job) -> str:
    checkpoint = job.submission.checkpoint if job.submission else None
    return checkpoint.model_sha256 if checkpoint else ""


def _changes(new: Job, earlier: Job) -> dict[str, object]:
    """Return the engine, or else the parameters, of a model's job that differ from an earlier one's."""
    if new.submission and earlier.submission and new.submission.engine != earlier.submission.engine:
        return {"engine": new.submission.engine}
    before = earlier.model_parameters
    return {
        name: value
        for name, value in new.model_parameters.items()
        if name not in before or before[name] != value
    }


def _repeated(new: Job, earlier: Job, submission: Submission) -> Refused:
    name, withdrawn = submission.system.name, " and was withdrawn" if submission.withdrawn_at else ""
    if new.kind == Job.Kind.MODEL:
        repeat = f"{name} has had this model run on {new.dataset} with these parameters already"
        other, withdrawn = "another seed or configuration", ""
    else:
        repeat = f"{new.file_name} is the same run that {name} has on {new.dataset} already"
        other = "another configuration"
    came = f"it came with submission {submission.pk} of {earlier.created_at:%-d %B %Y}{withdrawn}"
    hint = f"See {submission.get_absolute_url()}. If it is {other}, label it."
    return Refused.of(ALREADY_SUBMITTED, f"{repeat}: {came}.", hint)


def _label_required(new: Job, earlier: Submission, changes: Mapping[str, object]) -> Refused:
    label = f"the label “{earlier.configuration}”" if earlier.configuration else "no label"
    there, address = f"on {new.dataset} with {label} already", earlier.get_absolute_url()
    if changes:
        result = f"a result {there}, from another {', '.join(changes)}"
        example = ", ".join(f"{name} {value}" for name, value in list(changes.items())[:2])[:60]
        hint = f"Label this one, for example “{example}” (configuration=…), or withdraw {address} first."
    else:
        result = f"another run {there}"
        hint = (
            f"Label this one (configuration=…), or withdraw {address} first. Runs that differ by their seed alone are "
            "sent together, and are one result."
        )
    message = f"{earlier.system.name} has {result}: the board could not tell the two apart."
    return Refused.of(LABEL_NEEDED, message, hint)


def store_submission(submission: Submission, jobs: Sequence[Job], uploads: Sequence[str]) -> None:
    """Store a submission with its jobs, use up its uploads, and charge its quota, in the caller's transaction.

    All jobs are of one queue. Raises Refused where a quota is spent, or an upload is gone.
    """
    submission.save(force_insert=True)
    turn = queue.next_turn(jobs[0].queue, submission.team)
    for number, job in enumerate(jobs):
        job.turn = turn + number
        job.save(force_insert=True)
        queue.wake_worker(job.queue)
    consume_uploads(submission.submitter, uploads)
    if not submission.bulk:
        charge(submission, [job.dataset for job in jobs])
