"""The way in for runs, used by the page and the API: from files to queued jobs.

Either everything is stored, in one transaction, or nothing is: a refusal costs its sender nothing. Files are read
before the transaction; content-addressed bytes that no row names in the end are harmless and are swept.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from evaluation.core.files import sha256_of
from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import Area, put_by_link
from leaderboard.core.text.names import validate_name
from leaderboard.models import System, User
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.publishing.scored import SEEDS
from leaderboard.systems.records import SystemFields
from submissions.core.errors import FileReport, Refused
from submissions.intake.files import CheckedFile, IncomingFile, RunFile, check_files, refuse, run_files
from submissions.intake.run_records import record_waiting_run, waiting_payload
from submissions.intake.submission import (
    SubmissionOptions,
    admit,
    refuse_repeat,
    store_submission,
    submitting_team,
    system_row,
)
from submissions.models import Job, State, Submission
from submissions.queue.queue import log_line
from submissions.quotas.ledger import lock_quota, recording_refusals
from submissions.uploads.service import lock_for_reading

CLOSED_INTERFACE = ProblemCode("closed_interface", "A run that says that it came from a closed interface, for a system "
    "that does not say that it runs behind somebody's paid API.", "Edit the system to say so, or submit the run as "
    "another system.", "# closed_interface: true")  # fmt: skip


def check_only(files: Sequence[IncomingFile], seeds: Sequence[str] = ()) -> list[FileReport]:
    """Return the verdict on each file; nothing is stored. Raises Refused for files that do not pair with datasets."""
    with lock_for_reading(_uploads(files), shared=True), run_files(files) as runs:
        checked, problems = _check(runs, seeds)
        reports = [file.file_report for file in checked]
    refuse(problems, reports)
    return reports


def accept_submission(
    submitter: User,
    system: System | SystemFields,
    files: Sequence[IncomingFile],
    options: SubmissionOptions = SubmissionOptions(),  # noqa: B008  # frozen
    seeds: Sequence[str] = (),
) -> Submission:
    """Store a submission and queue its jobs, one per file. Raises Refused, and then nothing is stored.

    `system` is one of the submitter's teams', or describes a new one. Several files for one dataset are seeds of it,
    labelled by `seeds` in the order of the files.
    """
    with lock_for_reading(uploads := _uploads(files)), run_files(files) as runs:
        datasets = [run.dataset for run in runs]
        with recording_refusals(submitter, datasets):
            checked, problems = _check(runs, seeds)
            valid = all(file.report is None or file.report.valid for file in checked)
            if valid and not problems:
                checked = _store_all(checked)
            with transaction.atomic():
                # Boards that list runs which wait for judgements. Before all else, and in one order.
                lock_boards(dataset.pk for dataset in datasets if dataset.awaits_judgements)
                team = lock_quota(submitter, submitting_team(submitter, system, options))
                admission = admit(submitter, team, datasets, options, [file.tag for file in checked])
                if not valid:
                    refused = Refused.for_files(file.file_report for file in checked)
                    # The verdict on a file precedes what a round requires.
                    first = (
                        (problems[0].code, problems[0].message) if problems else (refused.code, str(refused))
                    )
                    raise Refused(*first, [*problems, *admission.problems], refused.files)
                refuse([*problems, *admission.problems])
                submission = Submission(
                    submitter=submitter,
                    team=team,
                    system=system_row(_mark_closed(system, checked), team, options),
                    **options.columns(),
                    **admission.columns(),
                )
                jobs = [_job(submission, file, options.round_entry.tag) for file in checked]
                for job in jobs if isinstance(system, System) else ():
                    refuse_repeat(job, submission)
                store_submission(submission, jobs, uploads)
                for job, file in zip(jobs, checked, strict=True):
                    if file.stored and file.report and job.dataset.awaits_judgements:
                        # A run that was checked and cannot be scored yet. A large one gets its row from its worker.
                        statistics = file.report.statistics
                        record_waiting_run(job, submission, file.stored, statistics, file.run.version)
    return submission


def _check(runs: Sequence[RunFile], seeds: Sequence[str]) -> tuple[list[CheckedFile], list[Problem]]:
    """Return the verdict on each file, labelled if it is a seed, and the problems of the labels."""
    labelled, problems = label_seeds(runs, seeds)
    return list(check_files(labelled)), problems


def _uploads(files: Iterable[IncomingFile]) -> list[str]:
    """Return the ids of the uploads that brought files in pieces."""
    return list(dict.fromkeys(file.upload for file in files if file.upload))


def _store_all(files: Sequence[CheckedFile]) -> list[CheckedFile]:
    """Store the files' bytes: canonical where they were checked, as sent where a worker will check them.

    Raises Refused for seeds whose text is the same, however it was compressed.
    """
    stored_files: list[CheckedFile] = []
    seen: dict[tuple[int, str], RunFile] = {}
    problems = []
    for file in files:
        run = file.run
        if file.report is None:
            adopted = put_by_link(Area.UPLOADS, run.path, run.sha256)
            stored_files.append(replace(file, upload_sha256=adopted))
            continue
        stored = store_run(run.path if file.text is None else file.text)
        stored_files.append(replace(file, stored=stored, text=None))
        first = seen.setdefault((run.dataset.pk, stored.sha256), run)
        if first is not run:
            problems.append(duplicate_seed_problem(first, run))
    refuse(problems)
    return stored_files


def _mark_closed(system: System | SystemFields, files: Iterable[CheckedFile]) -> System | SystemFields:
    """Mark a new system as closed if the header of a run says `closed_interface: true`: boards rank those apart.

    Raises Refused for an existing system that does not say so: its other results would be ranked apart too.
    """
    if system.closed_api:
        return system
    closed = [file.run.name for file in files if _is_closed(file.metadata)]
    if not closed:
        return system
    if isinstance(system, System):
        raise Refused.of(
            CLOSED_INTERFACE,
            f"{closed[0]} says that it came from a closed interface, and “{system.name}” does not say that it runs "
            "behind somebody's paid API.",
            CLOSED_INTERFACE.remedy,
        )
    return replace(system, closed_api=True)


def _is_closed(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_closed, value))
    if not isinstance(value, Mapping):
        return False
    return str(value.get("closed_interface")).lower() == "true" or any(map(_is_closed, value.values()))


def _job(submission: Submission, file: CheckedFile, run_tag: str) -> Job:
    run, report, stored = file.run, file.report, file.stored
    payload: dict[str, Any] = {"run_tag": run_tag} if run_tag else {}
    log = [f"Received {run.name} for {run.dataset}{f' as seed {run.seed}' if run.seed else ''}."]
    log += [f"{run.left_out}."] if run.left_out else []
    if report is None or stored is None:
        log.append("The file is large: a worker will validate and score it in one pass.")
    else:
        statistics, warnings = report.statistics, len(report.warnings)
        payload |= waiting_payload(stored, statistics)
        findings = f"with {warnings} warning{'s' if warnings != 1 else ''}" if warnings else "no problems"
        lines = f"{statistics.lines:,} lines, {statistics.queries:,} queries"
        log.append(f"Validated: {lines}, {findings}. Queued.")
    return Job(
        kind=Job.Kind.SCORE,
        queue=Job.Queue.SCORE,
        submission=submission,
        dataset=run.dataset,
        file_name=run.name[:200],
        seed=run.seed,
        state=State.QUEUED if stored is not None else State.VALIDATING,
        validated=stored is not None,
        payload=payload,
        report=report.as_dict() if report is not None else {},
        upload_sha256=file.upload_sha256,
        log="".join(map(log_line, log)),
    )


TOO_MANY_SEEDS = ProblemCode("too_many_seeds", "More than five files for one dataset: several are seeds of one "
    "system.", "Send five at most.")  # fmt: skip
SEED_LABELS = ProblemCode("seed_labels", "Labels of seeds, and not one for each file that is a seed.",
    "As many labels as files, in the same order, or none: then the files' names tell.", "-F dataset=nfcorpus -F "
    "file=@a.txt -F file=@b.txt -F seed=1,2")  # fmt: skip
SEED_LABEL = ProblemCode("seed_label", "A seed's label is longer than 80 characters, or has some that nobody sees.",
    "A short label.", "-F seed=42")  # fmt: skip
SEED_LABEL_TWICE = ProblemCode("seed_label_twice", "Two seeds of one dataset with the same label.",
    "Label each differently.")  # fmt: skip
SAME_RUN_TWICE = ProblemCode("same_run_twice", "Two seeds of one dataset that are the same run.",
    "Send each run once; if two came out alike, look at how they were made.")  # fmt: skip

MOST_SEEDS = SEEDS.stop - 1
LONGEST_LABEL = 80

#: What names of run files end in, and says nothing of the seed.
_ENDINGS = re.compile(r"(\.(txt|run|trec|res|json|tsv|gz|zst|bz2))+$", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)(\d+)$")


def split_labels(texts: Iterable[str]) -> list[str]:
    """Return labels from fields that may repeat, and hold several separated by commas."""
    return [label.strip() for text in texts for label in text.split(",") if label.strip()]


def label_seeds(runs: Sequence[RunFile], labels: Sequence[str]) -> tuple[list[RunFile], list[Problem]]:
    """Return the runs, those of seed sets with labels, and all problems of the sets.

    `labels` are those of the files of sets in order: of all of them, or, given once, of each set's. Without any, names
    of files tell: `<dataset>.<label>.txt`, else the whole name, else a number.
    """
    by_dataset: dict[int, list[RunFile]] = {}
    for run in runs:
        by_dataset.setdefault(run.dataset.pk, []).append(run)
    sets = [members for members in by_dataset.values() if len(members) > 1]
    problems = [problem for members in sets for problem in _set_problems(members)]
    in_order = [run.path for members in sets for run in members]
    if not labels:
        given = [label for members in sets for label in _labels_from_names(members)]
    elif not sets:
        message = "Seeds were labelled, and no dataset has several files."
        hint = "Leave seed out, or send all seeds of a dataset at once; one run alone has a configuration."
        given, problems = [], [*problems, SEED_LABELS.problem(message, hint)]
    elif len(labels) == len(in_order):
        given = list(labels)
    elif all(len(members) == len(labels) for members in sets):
        given = list(labels) * len(sets)
    else:
        message = f"There are {len(labels)} labels of seeds, and {len(in_order)} files that are seeds."
        hint = "Give one label for each file, in the same order, or none: then the files' names tell."
        given, problems = [], [*problems, SEED_LABELS.problem(message, hint)]
    by_path = dict(zip(in_order, given, strict=bool(given)))
    for members in sets:
        problems += _label_problems([replace(run, seed=by_path.get(run.path, "")) for run in members])
    return [replace(run, seed=by_path.get(run.path, "")) for run in runs], problems


def _set_problems(members: Sequence[RunFile]) -> list[Problem]:
    """Return the problems of the files of one set, whatever they are called."""
    problems = []
    dataset = members[0].dataset
    if len(members) > MOST_SEEDS:
        message = f"There are {len(members)} files for {dataset}."
        hint = f"Several files for one dataset are seeds of one system, {MOST_SEEDS} at most."
        problems.append(TOO_MANY_SEEDS.problem(message, hint))
    by_content: dict[tuple[int, str], RunFile] = {}
    sizes = [run.path.stat().st_size for run in members]
    for run, size in zip(members, sizes, strict=True):
        key = (size, sha256_of(run.path) if sizes.count(size) > 1 else "")
        if (first := by_content.setdefault(key, run)) is not run:
            problems.append(duplicate_seed_problem(first, run))
    return problems


def duplicate_seed_problem(first: RunFile, second: RunFile) -> Problem:
    """Return the problem of two seeds that are the same run."""
    return SAME_RUN_TWICE.problem(
        f"{first.name} and {second.name} are the same run.",
        f"Seeds differ. Send each run for {first.dataset} once; if two of them came out alike, look at how they were "
        "made.",
    )


def _labels_from_names(members: Sequence[RunFile]) -> list[str]:
    stems = [_ENDINGS.sub("", Path(run.name).name) for run in members]
    dataset = f"{members[0].dataset.slug}."
    if all(stem.startswith(dataset) for stem in stems):
        return [stem.removeprefix(dataset).split(".")[0] for stem in stems]
    numbered = [_NUMBERED.fullmatch(stem) for stem in stems]
    beginnings = {match[1] for match in numbered if match}
    if all(numbered) and len(beginnings) == 1:
        stems = [match[2] for match in numbered if match]
    if len(set(stems)) == len(stems) and all(stem and len(stem) <= LONGEST_LABEL for stem in stems):
        return stems
    return [str(number) for number in range(1, len(members) + 1)]


def _label_problems(members: Sequence[RunFile]) -> list[Problem]:
    problems = []
    labels = [run.seed for run in members]
    for label in dict.fromkeys(label for label in labels if labels.count(label) > 1 and label):
        named = ", ".join(run.name for run in members if run.seed == label)
        message = f"Several files for {members[0].dataset} have the label “{label}”: {named}."
        problems.append(SEED_LABEL_TWICE.problem(message, "Label each seed differently."))
    for run in members:
        wrong = f"It has {len(run.seed)} characters." if len(run.seed) > LONGEST_LABEL else ""
        try:
            validate_name(run.seed or "none")
        except ValidationError as error:
            wrong = wrong or " ".join(error.messages)
        if wrong:
            hint = f"At most {LONGEST_LABEL} characters that can be seen, for example 1 or 42."
            problems.append(SEED_LABEL.problem(f"{run.name}: its label cannot be used. {wrong}", hint))
    return problems
