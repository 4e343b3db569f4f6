"""Intake of runs, used by the page and the API.

Either all rows are stored in one transaction, or none. A refusal uses no quota. Files are read before the transaction.
Content-addressed files that no row references afterwards are harmless, and the sweep removes them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db import transaction

from evaluation.core.files import file_sha256
from evaluation.core.problems import Problem, ProblemCode, format_count
from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import Area, put_by_link
from leaderboard.core.text.names import validate_name
from leaderboard.models import System, User
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.publishing.scored import SEEDS
from leaderboard.systems.records import SystemFields
from submissions.core.errors import FileReport, Refused
from submissions.intake.files import CheckedFile, IncomingFile, RunFile, check_files, refuse, run_files
from submissions.intake.headers import describe_from_headers
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

ONE_FILE = ProblemCode("one_file", "Several files were sent for validation, or a zip without an account.",
    "Send one file at a time.")  # fmt: skip


def check_only(
    person: User | AnonymousUser, files: Sequence[IncomingFile], seeds: Sequence[str] = ()
) -> list[FileReport]:
    """Validate each file and return the reports without storing anything.

    Visitors without an account can check one file at a time, for a dataset with public queries and documents, but no
    zips, because they can take long. Raises Refused if files do not match datasets, or files or labels of a seed
    set have problems.
    """
    if not person.is_authenticated:
        if len(files) > 1 or any(file.is_zip for file in files):
            message = "Without an account, you can check one run file at a time and no zips."
            raise Refused.for_problem(ONE_FILE, message, "Send one file, or sign in to check several.")
        files, seeds = [replace(file, is_public=True) for file in files], ()
    with lock_for_reading(_upload_ids(files), shared=True), run_files(files) as runs:
        checked_files, problems = _check_runs(runs, seeds)
        reports = [file.file_report for file in checked_files]
    refuse(problems, reports)
    return reports


def accept_submission(
    submitter: User,
    system: System | SystemFields,
    files: Sequence[IncomingFile],
    options: SubmissionOptions = SubmissionOptions(),  # noqa: B008  # frozen
    seeds: Sequence[str] = (),
) -> Submission:
    """Store a submission with one job per file, queue the jobs, and return the submission.

    `system` is a system of the submitter's teams or the description of a new one. Several files for one dataset are
    seeds of the system, labeled by `seeds` in file order. Raises Refused, in which case nothing is stored, if a file is
    invalid, or the round, quota, or an earlier submission prevents it.
    """
    with lock_for_reading(uploads := _upload_ids(files)), run_files(files) as runs:
        datasets = [run.dataset for run in runs]
        with recording_refusals(submitter, datasets):
            checked_files, problems = _check_runs(runs, seeds)
            all_valid = all(file.report is None or file.report.valid for file in checked_files)
            if all_valid and not problems:
                checked_files = _store_all(checked_files)
            with transaction.atomic():
                # Lock boards that list runs waiting for judgments first, always in the same order.
                lock_boards(dataset.pk for dataset in datasets if dataset.awaits_judgements)
                team = lock_quota(submitter, submitting_team(submitter, system, options))
                admission = admit(submitter, team, datasets, options, [file.tag for file in checked_files])
                if not all_valid:
                    refusal = Refused.for_files(file.file_report for file in checked_files)
                    # Problems of files precede problems of the round.
                    first_problem = (
                        (problems[0].code, problems[0].message) if problems else (refusal.code, str(refusal))
                    )
                    raise Refused(*first_problem, [*problems, *admission.problems], refusal.files)
                refuse([*problems, *admission.problems])
                submission = Submission(
                    submitter=submitter,
                    team=team,
                    system=system_row(describe_from_headers(system, checked_files), team, options),
                    **options.columns(),
                    **admission.columns(),
                )
                jobs = [_build_job(submission, file, options.round_entry.tag) for file in checked_files]
                for job in jobs if isinstance(system, System) else ():
                    refuse_repeat(job, submission)
                store_submission(submission, jobs, uploads)
                for job, file in zip(jobs, checked_files, strict=True):
                    if file.stored and file.report and job.dataset.awaits_judgements:
                        # The run is valid but cannot be scored yet. The rows of large files are stored by workers.
                        record_waiting_run(job, submission, file.stored, file.report.statistics, file.run.version)
    return submission


def _check_runs(runs: Sequence[RunFile], seeds: Sequence[str]) -> tuple[list[CheckedFile], list[Problem]]:
    """Validate each file and label seeds; also return the problems of the labels."""
    labelled_runs, problems = label_seeds(runs, seeds)
    return list(check_files(labelled_runs)), problems


def _upload_ids(files: Iterable[IncomingFile]) -> list[str]:
    return list(dict.fromkeys(file.upload for file in files if file.upload))


def _store_all(files: Sequence[CheckedFile]) -> list[CheckedFile]:
    """Store validated files in canonical form and large ones unchanged, for validation by a worker.

    Return the files with the hashes of the stored content. Raises Refused for seeds with the same text, regardless of
    compression.
    """
    stored_files: list[CheckedFile] = []
    runs_by_content: dict[tuple[int, str], RunFile] = {}
    problems = []
    for file in files:
        run = file.run
        if file.report is None:
            stored_files.append(replace(file, upload_sha256=put_by_link(Area.UPLOADS, run.path, run.sha256)))
            continue
        stored_run = store_run(run.path if file.text is None else file.text)
        stored_files.append(replace(file, stored=stored_run, text=None))
        first_run = runs_by_content.setdefault((run.dataset.pk, stored_run.sha256), run)
        if first_run is not run:
            problems.append(duplicate_seed_problem(first_run, run))
    refuse(problems)
    return stored_files


def _build_job(submission: Submission, file: CheckedFile, run_tag: str) -> Job:
    """Build a job that scores the file, or validates and scores it if it is large. The job is not stored."""
    run, report, stored_run = file.run, file.report, file.stored
    payload: dict[str, Any] = {"run_tag": run_tag} if run_tag else {}
    log = [f"Received {run.name} for {run.dataset}{f' as seed {run.seed}' if run.seed else ''}."]
    log += [f"{run.left_out}."] if run.left_out else []
    if report is None or stored_run is None:
        log.append("The file is large. A worker will validate and score it in one pass.")
    else:
        statistics, warnings = report.statistics, len(report.warnings)
        payload |= waiting_payload(stored_run, statistics)
        findings = f"with {format_count(warnings, 'warning')}" if warnings else "no problems"
        lines = f"{format_count(statistics.lines, 'line')}, {format_count(statistics.queries, 'query', 'queries')}"
        log.append(f"Validated: {lines}, {findings}. Queued.")
    return Job(
        kind=Job.Kind.SCORE,
        queue=Job.Queue.SCORE,
        submission=submission,
        dataset=run.dataset,
        file_name=run.name[:200],
        seed=run.seed,
        state=State.QUEUED if stored_run is not None else State.VALIDATING,
        validated=stored_run is not None,
        payload=payload,
        report=report.as_dict() if report is not None else {},
        upload_sha256=file.upload_sha256,
        log="".join(map(log_line, log)),
    )


TOO_MANY_SEEDS = ProblemCode(
    "too_many_seeds", "You sent more than five files for one dataset. Its files are seeds of one system.",
    "Send at most five.",
)  # fmt: skip
SEED_LABELS = ProblemCode("seed_labels", "The number of seed labels differs from the number of seeds.",
    "Send one label per file, in file order, or none to use the file names.", "-F dataset=nfcorpus -F "
    "file=@a.txt -F file=@b.txt -F seed=1,2")  # fmt: skip
SEED_LABEL = ProblemCode(
    "seed_label", "A seed label is longer than 80 characters or contains invisible characters.", "Use a short label.",
    "-F seed=42",
)  # fmt: skip
SEED_LABEL_TWICE = ProblemCode("seed_label_twice", "Two seeds of one dataset have the same label.",
    "Use a different label for each seed.")  # fmt: skip
SAME_RUN_TWICE = ProblemCode("same_run_twice", "Two seeds of one dataset are the same run.",
    "Send each run once; if two seeds are identical, check how they were produced.")  # fmt: skip

MAX_SEEDS = SEEDS.stop - 1
LONGEST_LABEL = 80

#: Extensions of run files, which are not part of seed labels.
_ENDINGS = re.compile(r"(\.(txt|run|trec|res|json|tsv|gz|zst|bz2))+$", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)(\d+)$")


def split_labels(texts: Iterable[str]) -> list[str]:
    """Split repeated, comma-separated fields into labels."""
    return [label.strip() for text in texts for label in text.split(",") if label.strip()]


def label_seeds(runs: Sequence[RunFile], labels: Sequence[str]) -> tuple[list[RunFile], list[Problem]]:
    """Label the runs of seed sets and return all runs and the problems of the sets.

    `labels` are in file order: one per file of all sets, or a list that applies to each set. Without labels, they
    are derived from the file names: `<dataset>.<label>.txt`, otherwise the whole name or a number.
    """
    by_dataset: dict[int, list[RunFile]] = {}
    for run in runs:
        by_dataset.setdefault(run.dataset.pk, []).append(run)
    sets = [members for members in by_dataset.values() if len(members) > 1]
    problems = [problem for members in sets for problem in _set_problems(members)]
    ordered_paths = [run.path for members in sets for run in members]
    if not labels:
        file_labels = [label for members in sets for label in _labels_from_names(members)]
    elif not sets:
        message = "There are seed labels, but no dataset has several files."
        hint = "Omit seed, or send all seeds of a dataset together. Use configuration to label a single run."
        file_labels, problems = [], [*problems, SEED_LABELS.problem(message, hint)]
    elif len(labels) == len(ordered_paths):
        file_labels = list(labels)
    elif all(len(members) == len(labels) for members in sets):
        file_labels = list(labels) * len(sets)
    else:
        message = f"Received: {format_count(len(labels), 'label')} for {len(ordered_paths)} files that are seeds."
        hint = "Send one label per file, in file order, or none to use the file names."
        file_labels, problems = [], [*problems, SEED_LABELS.problem(message, hint)]
    by_path = dict(zip(ordered_paths, file_labels, strict=bool(file_labels)))
    for members in sets:
        problems += _label_problems([replace(run, seed=by_path.get(run.path, "")) for run in members])
    return [replace(run, seed=by_path.get(run.path, "")) for run in runs], problems


def _set_problems(members: Sequence[RunFile]) -> Iterator[Problem]:
    """Yield the problems of a seed set's files, apart from labels: too many files, or files with the same content."""
    if len(members) > MAX_SEEDS:
        message = f"There are {len(members)} files for {members[0].dataset}."
        hint = f"Several files for one dataset are seeds of one system. Send at most {MAX_SEEDS}."
        yield TOO_MANY_SEEDS.problem(message, hint)
    by_content: dict[tuple[int, str], RunFile] = {}
    sizes = [run.path.stat().st_size for run in members]
    for run, size in zip(members, sizes, strict=True):
        key = (size, file_sha256(run.path) if sizes.count(size) > 1 else "")
        if (first := by_content.setdefault(key, run)) is not run:
            yield duplicate_seed_problem(first, run)


def duplicate_seed_problem(run: RunFile, other_run: RunFile) -> Problem:
    return SAME_RUN_TWICE.problem(
        f"{run.name} and {other_run.name} are the same run.",
        f"Send each run for {run.dataset} only once. If two seeds are identical, check how they were produced.",
    )


def _labels_from_names(members: Sequence[RunFile]) -> list[str]:
    """Return one label per file of a seed set, taken from the file names.

    The label is the part after the dataset, the number after a common prefix, or the name without extensions. If these
    are not unique and short, the files are numbered.
    """
    stems = [_ENDINGS.sub("", Path(run.name).name) for run in members]
    dataset = f"{members[0].dataset.slug}."
    if all(stem.startswith(dataset) for stem in stems):
        return [stem.removeprefix(dataset).split(".")[0] for stem in stems]
    number_matches = [_NUMBERED.fullmatch(stem) for stem in stems]
    prefixes = {match[1] for match in number_matches if match}
    if all(number_matches) and len(prefixes) == 1:
        stems = [match[2] for match in number_matches if match]
    are_unique = len(set(stems)) == len(stems)
    if are_unique and all(0 < len(stem) <= LONGEST_LABEL for stem in stems):
        return stems
    return [str(number) for number in range(1, len(members) + 1)]


def _label_problems(members: Sequence[RunFile]) -> Iterator[Problem]:
    """Yield the problems of a seed set's labels: repeated, too long, or with invalid characters."""
    labels = [run.seed for run in members]
    for label in dict.fromkeys(label for label in labels if labels.count(label) > 1 and label):
        file_names = ", ".join(run.name for run in members if run.seed == label)
        message = f"Several files for {members[0].dataset} have the label “{label}”: {file_names}."
        yield SEED_LABEL_TWICE.problem(message, "Use a different label for each seed.")
    for run in members:
        finding = f"The label has {len(run.seed)} characters." if len(run.seed) > LONGEST_LABEL else ""
        try:
            validate_name(run.seed or "none")
        except ValidationError as error:
            finding = finding or " ".join(error.messages)
        if finding:
            hint = f"Use at most {LONGEST_LABEL} visible characters, such as 1 or 42."
            yield SEED_LABEL.problem(f"{run.name}: the label is not valid. {finding}", hint)
