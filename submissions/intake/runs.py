"""From files to queued jobs: the one way in, used by the page and the API.

Either everything is stored, in one transaction, or nothing is: a refusal costs its sender nothing. Files are read
before the transaction; content-addressed bytes that no row names in the end are harmless and are swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db import transaction

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.storage.runs import StoredRun, store_run
from leaderboard.core.storage.store import Area, adopt
from leaderboard.models import System, Team, User
from leaderboard.results.history.revisions import lock_boards
from leaderboard.systems.anonymity import EmbargoRefused, make_anonymous
from leaderboard.systems.records import NameTaken, SystemFields, create_system
from submissions import quotas
from submissions.accounts.permissions import teams_of
from submissions.accounts.teams import personal_team
from submissions.core.errors import ALREADY_SUBMITTED, INVALID_RUN, LABEL_NEEDED, FileReport, Refused
from submissions.intake.checking import CheckedFile, check_files
from submissions.intake.files import IncomingFile, RunFile, run_files
from submissions.intake.rounds import NOTHING, Admission, Said, admit, examine
from submissions.intake.run_records import keep_waiting_run, waiting_payload
from submissions.intake.seed_labels import label_seeds, same_file
from submissions.models import Job, State, Submission
from submissions.queue import queue
from submissions.queue.lifecycle import write_log
from submissions.uploads.service import reading, take

SYSTEM_NAME_TAKEN = ProblemCode("system_name_taken", "A new system with the name of one that your team has.",
    "Choose that one, or give the new one another name.")  # fmt: skip
UNKNOWN_TEAM = ProblemCode("unknown_team", "A new system for a team that you do not belong to.", "Choose one of your "
    "teams, or leave the team out: it is your first one then.")  # fmt: skip
ANONYMITY = ProblemCode("anonymity", "A system that cannot be anonymous until the day that was asked for.",
    "Choose a day after today, nine months away at the most.")  # fmt: skip


def check_only(files: Sequence[IncomingFile], seeds: Sequence[str] = ()) -> list[FileReport]:
    """The verdict on each file; nothing is stored. Raises Refused where files do not pair with datasets, or seeds."""
    with reading(_uploads(files), shared=True), run_files(files) as found:
        runs, problems = label_seeds(found, seeds)
        reports = [checked.report_or_size() for checked in check_files(runs)]
    if problems:
        raise Refused(problems[0].code, problems[0].message, problems, reports)
    return reports


def accept_submission(
    *,
    submitter: User,
    system: System | SystemFields,
    files: Sequence[IncomingFile],
    seeds: Sequence[str] = (),
    configuration: str = "",
    public: bool = True,
    reusable: bool = False,
    note: str = "",
    team: Team | None = None,
    anonymous_until: date | None = None,
    said: Said = NOTHING,
    bulk: str = "",
) -> Submission:
    """Store a submission and queue its jobs, one per file. Raises Refused, and then nothing is stored.

    `system` is one of the submitter's teams', or what a new one says of itself. Several files for one dataset are
    seeds of it, which `seeds` labels in the order of the files. `team` is whose a new system is, the submitter's first
    one where it is None; until the day `anonymous_until` nobody else learns that. `bulk` names the import of many
    that it is part of (see `intake.bulk`): a curator's, which counts towards no quota.
    """
    with reading(_uploads(files)):
        with run_files(files) as found, quotas.reading_for(submitter, [run.dataset for run in found]):
            quotas.refuse_unapproved(_known_team(submitter, system, team), [run.dataset for run in found])
            runs, problems = label_seeds(found, seeds)
            checked = list(check_files(runs))
            datasets, tags = [run.dataset for run in runs], [_tag_of(file) for file in checked]
            _, not_admitted = examine(submitter, _known_team(submitter, system, team), datasets, said, tags)
            _refuse_wrong(checked, problems, not_admitted)
            arrivals = [_store_bytes(file) for file in checked]
            _refuse_same_runs(arrivals)
        with transaction.atomic():
            # Those that list what waits for judgements. Before all else, and in one order.
            lock_boards(dataset.pk for dataset in datasets if dataset.awaits_judgements)
            team = expected_team(submitter, system, team)
            quotas.hold(submitter, team)
            admission = admit(submitter, team, datasets, said, tags)
            row = system_row(submitter, system, team, anonymous_until)
            _refuse_repeats(row, configuration, arrivals)
            submission = Submission.objects.create(
                submitter=submitter,
                team=team_of(row, submitter),
                system=row,
                configuration=configuration,
                public=public,
                reusable=reusable,
                note=note,
                bulk=bulk,
                **admitted(admission),
            )
            for arrival in arrivals:
                job = _create_job(submission, arrival, admission.said.tag)
                _keep_waiting(job, submission, arrival)
            take(submitter, _uploads(files))
            if not bulk:
                quotas.charge(submission, [arrival.run.dataset for arrival in arrivals])
            queue.ring(Job.Queue.SCORE)
    return submission


def _uploads(files: Iterable[IncomingFile]) -> list[str]:
    """The uploads that brought files in pieces."""
    return list(dict.fromkeys(file.upload for file in files if file.upload))


def _known_team(submitter: User, system: System | SystemFields, team: Team | None) -> Team | None:
    """Whose the submission would be, as far as there is a team: a refusal makes none."""
    if isinstance(system, System):
        return system.team
    return team or Team.objects.filter(memberships__user=submitter).order_by("memberships__pk").first()


def admitted(admission: Admission) -> dict[str, Any]:
    """The columns of a submission that say how it came in."""
    said = admission.said
    return {
        "round": admission.round,
        "late": admission.late,
        "run_type": said.run_type,
        "priority": said.priority,
    }


def _tag_of(file: CheckedFile) -> str | None:
    """The first tag in the file, empty where it has none; None where nobody has read it yet."""
    if file.report is None:
        return None
    tags = file.report.statistics.tags
    return tags[0] if tags else ""


def _refuse_wrong(
    checked: Sequence[CheckedFile], problems: Sequence[Problem], not_admitted: Sequence[Problem]
) -> None:
    """Raises Refused for all that is wrong at once: with seed sets, with what files contain, and with a round."""
    refused = None
    if any(not file.passed for file in checked):
        refused = Refused.for_files(file.report_or_size() for file in checked)
    every = [*problems, *not_admitted]
    if not every and refused is None:
        return
    # A file's own verdict counts before what a round asks.
    first = problems[0] if problems else None if refused else not_admitted[0]
    code, detail = (first.code, first.message) if first else (INVALID_RUN, str(refused))
    raise Refused(code, detail, every, refused.files if refused else ())


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A file whose bytes are in the store: canonical where it was checked, as sent where a worker will check it."""

    run: RunFile
    report: FileReport | None
    stored: StoredRun | None
    upload_sha256: str = ""


def _store_bytes(file: CheckedFile) -> _Arrival:
    if file.report is None:
        return _Arrival(file.run, None, None, adopt(Area.UPLOADS, file.run.path, file.run.sha256))
    return _Arrival(file.run, file.as_report(), store_run(file.run.path))


def _refuse_same_runs(arrivals: Sequence[_Arrival]) -> None:
    """Raises Refused for seeds whose text is the same, however it was compressed."""
    seen: dict[tuple[int, str], RunFile] = {}
    problems = []
    for arrival in arrivals:
        if arrival.stored is not None:
            key = (arrival.run.dataset.pk, arrival.stored.sha256)
            if key in seen:
                problems.append(same_file(seen[key], arrival.run))
            seen.setdefault(key, arrival.run)
    if problems:
        raise Refused(problems[0].code, problems[0].message, problems)


def system_row(
    submitter: User,
    system: System | SystemFields,
    team: Team | None = None,
    anonymous_until: date | None = None,
) -> System:
    """The system's row, held until the transaction ends, so that the same file twice at once is one submission.

    Raises Refused where a new one has the name of one that the team has, where the team is not the submitter's, and
    where it cannot be anonymous until then.
    """
    if isinstance(system, System):
        return System.objects.select_for_update(no_key=True).get(pk=system.pk)
    try:
        row = create_system(expected_team(submitter, system, team), system)
        if anonymous_until is not None:
            make_anonymous(row, anonymous_until)
        return row
    except EmbargoRefused as error:
        raise Refused.of(ANONYMITY, f"It cannot be anonymous until {anonymous_until}.", str(error)) from error
    except NameTaken as error:
        raise Refused.of(
            SYSTEM_NAME_TAKEN,
            f"Your team has a system named “{error.system.name}” already.",
            f"Choose it (system={error.system.slug}), or give the new one another name.",
        ) from error


def expected_team(submitter: User, system: System | SystemFields, team: Team | None = None) -> Team:
    """Whose a submission for the system will be; `team` is the one chosen for a new system.

    Raises Refused for a team that the submitter does not belong to.
    """
    if isinstance(system, System):
        return team_of(system, submitter)
    if team is not None and not teams_of(submitter).filter(pk=team.pk).exists():
        raise Refused.of(UNKNOWN_TEAM, f"You do not belong to “{team.name}”.", "Choose one of your teams.")
    return team or personal_team(submitter)


def team_of(system: System, submitter: User) -> Team:
    """Whose submissions for the system are."""
    return system.team or personal_team(submitter)


def _refuse_repeats(system: System, configuration: str, arrivals: Iterable[_Arrival]) -> None:
    """Raises Refused for a run that this system has already, under the same label, on the same dataset.

    Another run under the same label is refused as well: a board could not tell the two apart.
    """
    for arrival in arrivals:
        jobs = (
            Job.objects.in_the_way()
            .filter(
                dataset=arrival.run.dataset,
                submission__system=system,
                submission__configuration=configuration,
            )
            .select_related("submission__system")
        )
        same = {"upload_sha256": arrival.upload_sha256}
        if arrival.stored is not None:
            same = {"payload__run_sha256": arrival.stored.sha256}
        earlier = jobs.filter(**same).first()
        if earlier is not None and earlier.submission is not None:
            raise _repeated(arrival, earlier, earlier.submission)
        other = jobs.filter(submission__withdrawn_at=None).first()
        if other is not None and other.submission is not None:
            raise _needs_label(arrival, other.submission)


def _repeated(arrival: _Arrival, earlier: Job, submission: Submission) -> Refused:
    withdrawn = " and was withdrawn" if submission.withdrawn_at else ""
    return Refused.of(
        ALREADY_SUBMITTED,
        f"{arrival.run.name} is the same run that {submission.system.name} has on {arrival.run.dataset} already: "
        f"it came with submission {submission.pk} of {earlier.created_at:%-d %B %Y}{withdrawn}.",
        f"See {submission.get_absolute_url()}. If it is another configuration, label it.",
    )


def _needs_label(arrival: _Arrival, earlier: Submission) -> Refused:
    label = f"the label “{earlier.configuration}”" if earlier.configuration else "no label"
    return Refused.of(
        LABEL_NEEDED,
        f"{earlier.system.name} has another run on {arrival.run.dataset} with {label} already: the board could not "
        "tell the two apart.",
        f"Label this one (configuration=…), or withdraw {earlier.get_absolute_url()} first. Runs that differ by "
        "their seed alone are sent together, and are one result.",
    )


def _keep_waiting(job: Job, submission: Submission, arrival: _Arrival) -> None:
    """The row of a run that was checked and cannot be scored yet. A large one gets it from its worker."""
    dataset = arrival.run.dataset
    if arrival.stored is not None and arrival.report is not None and dataset.awaits_judgements:
        if dataset.current_version is None:
            raise RuntimeError(f"{dataset.slug} takes runs and has no version")
        statistics = arrival.report.report.statistics
        keep_waiting_run(job, submission, arrival.stored, statistics, dataset.current_version)


def _create_job(submission: Submission, arrival: _Arrival, run_tag: str) -> Job:
    payload: dict[str, Any] = {}
    report: dict[str, Any] = {}
    if arrival.stored is not None and arrival.report is not None:
        payload = waiting_payload(arrival.stored, arrival.report.report.statistics)
        report = arrival.report.report.as_dict()
    if run_tag:
        payload["run_tag"] = run_tag
    job = Job.objects.create(
        kind=Job.Kind.SCORE,
        queue=Job.Queue.SCORE,
        submission=submission,
        dataset=arrival.run.dataset,
        file_name=arrival.run.name[:200],
        seed=arrival.run.seed,
        state=State.QUEUED if arrival.stored is not None else State.VALIDATING,
        validated=arrival.stored is not None,
        payload=payload,
        report=report,
        upload_sha256=arrival.upload_sha256,
    )
    _write_first_lines(job, arrival)
    return job


def _write_first_lines(job: Job, arrival: _Arrival) -> None:
    labelled = f" as seed {arrival.run.seed}" if arrival.run.seed else ""
    write_log(job.pk, f"Received {arrival.run.name} for {arrival.run.dataset}{labelled}.")
    if arrival.report is None:
        write_log(job.pk, "The file is large: a worker will validate and score it in one pass.")
        return
    statistics, warnings = arrival.report.report.statistics, arrival.report.report.warnings
    found = f"with {len(warnings)} warning{'s' if len(warnings) != 1 else ''}" if warnings else "no problems"
    write_log(
        job.pk, f"Validated: {statistics.lines:,} lines, {statistics.queries:,} queries, {found}. Queued."
    )
