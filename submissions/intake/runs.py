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

from evaluation.core.problems import Problem, ProblemCode, Report
from leaderboard.core.storage.runs import StoredRun, store_run
from leaderboard.core.storage.store import Area, put_by_link
from leaderboard.models import System, Team, User
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.systems.anonymity import EmbargoRefused, make_anonymous
from leaderboard.systems.records import NameTaken, SystemFields, create_system
from submissions.accounts.agreements import refuse_unaccepted
from submissions.accounts.permissions import teams_of
from submissions.accounts.teams import personal_team
from submissions.core.errors import ALREADY_SUBMITTED, INVALID_RUN, LABEL_NEEDED, FileReport, Refused
from submissions.intake.closed_interface import as_runs_say
from submissions.intake.files import CheckedFile, IncomingFile, RunFile, check_files, refuse, run_files
from submissions.intake.rounds import NO_ROUND_ENTRY, RoundEntry, admit_to_round, check_admission
from submissions.intake.run_records import record_waiting_run, waiting_payload
from submissions.intake.seed_labels import duplicate_seed_problem, label_seeds
from submissions.models import Job, State, Submission
from submissions.queue import queue
from submissions.queue.lifecycle import log_line
from submissions.quotas.ledger import charge, lock_quota, recording_refusals, refuse_unapproved
from submissions.uploads.service import consume_uploads, lock_for_reading

SYSTEM_NAME_TAKEN = ProblemCode("system_name_taken", "A new system with the name of one that your team has.",
    "Choose that one, or give the new one another name.")  # fmt: skip
UNKNOWN_TEAM = ProblemCode("unknown_team", "A new system for a team that you do not belong to.", "Choose one of your "
    "teams, or leave the team out: it is your first one then.")  # fmt: skip
ANONYMITY = ProblemCode("anonymity", "A system that cannot be anonymous until the day that was asked for.",
    "Choose a day after today, nine months away at the most.")  # fmt: skip


def check_only(files: Sequence[IncomingFile], seeds: Sequence[str] = ()) -> list[FileReport]:
    """The verdict on each file; nothing is stored. Raises Refused where files do not pair with datasets, or seeds."""
    with lock_for_reading(_uploads(files), shared=True), run_files(files) as found:
        checked, problems = _check(found, seeds)
        reports = [file.file_report for file in checked]
    refuse(problems, reports)
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
    round_entry: RoundEntry = NO_ROUND_ENTRY,
    bulk: str = "",
) -> Submission:
    """Store a submission and queue its jobs, one per file. Raises Refused, and then nothing is stored.

    `system` is one of the submitter's teams', or what a new one says of itself. Several files for one dataset are
    seeds of it, labelled by `seeds` in the order of the files. `team` owns a new system (None: the submitter's first
    one); until `anonymous_until` nobody else learns that. `bulk` names a curator's import, which counts to no quota.
    """
    with lock_for_reading(uploads := _uploads(files)):
        with run_files(files) as found, recording_refusals(submitter, [run.dataset for run in found]):
            datasets = [run.dataset for run in found]
            known_team = system.team if isinstance(system, System) else team or teams_of(submitter).first()
            refuse_unapproved(known_team, datasets)
            if not bulk:
                refuse_unaccepted(submitter, datasets)
            checked, problems = _check(found, seeds)
            tags = [file.tag for file in checked]
            admission = check_admission(submitter, known_team, datasets, round_entry, tags)
            _refuse_wrong(checked, problems, admission.problems)
            system, arrivals = as_runs_say(system, checked), _store_all(checked)
        with transaction.atomic():
            # Those that list what waits for judgements. Before all else, and in one order.
            lock_boards(dataset.pk for dataset in datasets if dataset.awaits_judgements)
            team = lock_quota(submitter, expected_team(submitter, system, team))
            if admission.round is not None:
                # The places of a round are counted again, now that nobody else can take one.
                admission = admit_to_round(submitter, team, datasets, round_entry, tags)
            row = system_row(system, team, anonymous_until)
            if isinstance(system, System):
                _refuse_repeats(row, configuration, arrivals)
            submission = Submission.objects.create(
                submitter=submitter,
                team=team,
                system=row,
                configuration=configuration,
                public=public,
                reusable=reusable,
                note=note,
                bulk=bulk,
                **admission.columns(),
            )
            _queue_jobs(submission, arrivals, admission.entry.tag)
            consume_uploads(submitter, uploads)
            if not bulk:
                refuse_unaccepted(submitter, datasets)  # once more: a new version may have come meanwhile
                charge(submission, datasets)
            queue.wake_worker(Job.Queue.SCORE)
    return submission


def _check(found: Sequence[RunFile], seeds: Sequence[str]) -> tuple[list[CheckedFile], list[Problem]]:
    """The files, labelled where they are seeds, with the verdict on each; and what is wrong with the labels."""
    runs, problems = label_seeds(found, seeds)
    return list(check_files(runs)), problems


def _uploads(files: Iterable[IncomingFile]) -> list[str]:
    """The uploads that brought files in pieces."""
    return list(dict.fromkeys(file.upload for file in files if file.upload))


def _refuse_wrong(
    checked: Sequence[CheckedFile], problems: Sequence[Problem], not_admitted: Sequence[Problem]
) -> None:
    """Raises Refused for all that is wrong at once: with seed sets, with what files contain, and with a round."""
    if all(file.report is None or file.report.valid for file in checked):
        refuse([*problems, *not_admitted])
        return
    refused = Refused.for_files(file.file_report for file in checked)
    # A file's own verdict counts before what a round asks.
    code, detail = (problems[0].code, problems[0].message) if problems else (INVALID_RUN, str(refused))
    raise Refused(code, detail, [*problems, *not_admitted], refused.files)


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """A file whose bytes are in the store: canonical where it was checked, as sent where a worker will check it."""

    run: RunFile
    report: Report | None
    stored: StoredRun | None = None
    upload_sha256: str = ""

    def is_run_of(self, job: Job) -> bool:
        """Whether the job has the same run."""
        if self.stored is not None:
            return bool(job.payload.get("run_sha256") == self.stored.sha256)
        return job.upload_sha256 == self.upload_sha256


def _store_all(files: Sequence[CheckedFile]) -> list[_StoredFile]:
    """The files with their bytes in the store.

    Raises Refused for seeds whose text is the same, however it was compressed.
    """
    arrivals: list[_StoredFile] = []
    seen: dict[tuple[int, str], RunFile] = {}
    problems = []
    for file in files:
        run = file.run
        if file.report is None:
            adopted = put_by_link(Area.UPLOADS, run.path, run.sha256)
            arrivals.append(_StoredFile(run, None, upload_sha256=adopted))
            continue
        stored = store_run(run.path if file.text is None else file.text)
        arrivals.append(_StoredFile(run, file.report, stored))
        first = seen.setdefault((run.dataset.pk, stored.sha256), run)
        if first is not run:
            problems.append(duplicate_seed_problem(first, run))
    refuse(problems)
    return arrivals


def system_row(system: System | SystemFields, team: Team, anonymous_until: date | None = None) -> System:
    """The system's row, held until the transaction ends, so that the same file twice at once is one submission.

    Raises Refused where a new one has the name of one that the team has, and where it cannot be anonymous until then.
    """
    if isinstance(system, System):
        return System.objects.select_for_update(no_key=True).get(pk=system.pk)
    try:
        row = create_system(team, system)
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
        return system.team or personal_team(submitter)
    if team is not None and not teams_of(submitter).filter(pk=team.pk).exists():
        raise Refused.of(UNKNOWN_TEAM, f"You do not belong to “{team.name}”.", "Choose one of your teams.")
    return team or teams_of(submitter).first() or personal_team(submitter)


def _refuse_repeats(system: System, configuration: str, arrivals: Iterable[_StoredFile]) -> None:
    """Raises Refused for a run that this system has already, under the same label, on the same dataset.

    Another run under the same label is refused as well: a board could not tell the two apart.
    """
    for arrival in arrivals:
        jobs = (
            Job.objects.blocking_resubmission()
            .filter(
                dataset=arrival.run.dataset,
                submission__system=system,
                submission__configuration=configuration,
            )
            .select_related("submission__system")
            .defer("report", "log")
        )
        there = [(job, job.submission) for job in jobs if job.submission is not None]
        for job, submission in there:
            if arrival.is_run_of(job):
                raise _repeated(arrival, job, submission)
        for _, submission in there:
            if submission.withdrawn_at is None:
                raise _label_required(arrival, submission)


def _repeated(arrival: _StoredFile, earlier: Job, submission: Submission) -> Refused:
    withdrawn = " and was withdrawn" if submission.withdrawn_at else ""
    return Refused.of(
        ALREADY_SUBMITTED,
        f"{arrival.run.name} is the same run that {submission.system.name} has on {arrival.run.dataset} already: "
        f"it came with submission {submission.pk} of {earlier.created_at:%-d %B %Y}{withdrawn}.",
        f"See {submission.get_absolute_url()}. If it is another configuration, label it.",
    )


def _label_required(arrival: _StoredFile, earlier: Submission) -> Refused:
    label = f"the label “{earlier.configuration}”" if earlier.configuration else "no label"
    return Refused.of(
        LABEL_NEEDED,
        f"{earlier.system.name} has another run on {arrival.run.dataset} with {label} already: the board could not "
        "tell the two apart.",
        f"Label this one (configuration=…), or withdraw {earlier.get_absolute_url()} first. Runs that differ by "
        "their seed alone are sent together, and are one result.",
    )


def _queue_jobs(submission: Submission, arrivals: Sequence[_StoredFile], run_tag: str) -> None:
    turn = queue.next_turn(Job.Queue.SCORE, submission.team)
    for number, arrival in enumerate(arrivals):
        run, report, stored = arrival.run, arrival.report, arrival.stored
        payload: dict[str, Any] = {"run_tag": run_tag} if run_tag else {}
        log = [f"Received {run.name} for {run.dataset}{f' as seed {run.seed}' if run.seed else ''}."]
        log += [f"{run.left_out}."] if run.left_out else []
        if report is None or stored is None:
            log.append("The file is large: a worker will validate and score it in one pass.")
        else:
            statistics, warnings = report.statistics, len(report.warnings)
            payload |= waiting_payload(stored, statistics)
            found = f"with {warnings} warning{'s' if warnings != 1 else ''}" if warnings else "no problems"
            lines = f"{statistics.lines:,} lines, {statistics.queries:,} queries"
            log.append(f"Validated: {lines}, {found}. Queued.")
        job = Job.objects.create(
            kind=Job.Kind.SCORE,
            queue=Job.Queue.SCORE,
            turn=turn + number,
            submission=submission,
            dataset=run.dataset,
            file_name=run.name[:200],
            seed=run.seed,
            state=State.QUEUED if stored is not None else State.VALIDATING,
            validated=stored is not None,
            payload=payload,
            report=report.as_dict() if report is not None else {},
            upload_sha256=arrival.upload_sha256,
            log="".join(map(log_line, log)),
        )
        if report is not None and stored is not None and run.dataset.awaits_judgements:
            # A run that was checked and cannot be scored yet. A large one gets its row from its worker.
            record_waiting_run(job, submission, stored, report.statistics, run.version)
