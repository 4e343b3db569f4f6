"""Bulk import of a dataset's runs by a curator. Either all runs are submitted or none."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, count, filterfalse
from pathlib import Path

from django.db import transaction

from evaluation.archives.zip import drop_companions, is_clutter
from evaluation.core.problems import Problem, ProblemCode, Report, format_count
from evaluation.runs.stored import first_tag, run_name, strip_extensions
from leaderboard.judgements.disclosure import record_compared
from leaderboard.models import Dataset, System, Team, User, architecture_choices
from leaderboard.systems.records import SystemFields
from submissions.core.errors import FileReport, Refused
from submissions.intake.files import NO_FILE, PAIRING, IncomingFile, drop_metadata
from submissions.intake.runs import accept_submission
from submissions.intake.submission import SubmissionOptions
from submissions.models import Submission, new_identifier

#: Columns of a participants CSV; `run` and `participant` are required.
COLUMNS = ("run", "participant", "name", "architecture")
_HINT = f"Columns: {', '.join(COLUMNS)}; `run` is a file name, with or without extension, or the run tag."


@dataclass(frozen=True, slots=True)
class Attribution:
    """CSV row of a run. Empty fields are unspecified."""

    participant: str
    name: str = ""
    architecture: str = ""


class BulkRefused(Exception):
    """Refusal of a bulk import. `reports` contains the problems of all files; nothing was imported."""

    def __init__(self, reports: Sequence[FileReport]) -> None:
        self.reports = reports
        super().__init__(f"{format_count(len(reports), 'file')} with problems")


def import_runs(
    folder: Path,
    dataset: Dataset,
    *,
    submitter: User,
    team: Team,
    architecture: str,
    participants: Path | None = None,
    public: bool = True,
) -> tuple[list[Submission], list[str]]:
    """Submit every run in the folder, each for a separate system with the run's tag as its name.

    `participants` is a CSV file with the participant of each run. Returns the submissions and the names of files
    that are not runs. Raises BulkRefused with all problems of all files, in which case nothing is stored.
    """
    visible_names = (path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    names = sorted(filterfalse(is_clutter, visible_names))
    runs = drop_metadata({name: folder / name for name in drop_companions(names)})
    files = list(runs.values())
    if not files:
        raise BulkRefused(
            [_report(folder.name, NO_FILE, "the folder contains no runs", "Enter the folder that contains the runs.")]
        )
    tags = {path: first_tag(path) for path in files}
    attributions, reports = _attributions(participants, tags)
    options, submissions = SubmissionOptions(public=public, team=team, bulk=new_identifier()), []
    record_compared(dataset, dataset, dataset.current_qrels)
    with transaction.atomic():
        for path in files:
            try:
                system = _find_or_describe_system(path, tags, team, architecture, attributions.get(path))
                file = IncomingFile(path.name, path, dataset.slug)
                submissions.append(accept_submission(submitter, system, [file], options))
            except Refused as refusal:
                reports += refusal.files or [FileReport(path.name, dataset.slug, Report(tuple(refusal.problems)))]
        if reports:
            raise BulkRefused(reports)
    return submissions, [name for name in names if name not in runs]


def _find_or_describe_system(
    path: Path, tags: Mapping[Path, str], team: Team, architecture: str, attribution: Attribution | None
) -> System | SystemFields:
    """Return the team's system for the run, or the description of a new one.

    Its name is that of the attribution, or else that of the run: the tag if no other file has it, otherwise the file
    name. A number is appended if a system of another participant has the name.
    """
    attribution = attribution or Attribution("")
    has_unique_tag = attribution.participant or list(tags.values()).count(tags[path]) == 1
    name = (attribution.name or run_name(path, [tags[path]] if has_unique_tag else []))[:120]
    system_architecture = attribution.architecture or architecture
    # Participants may use the same tag. Boards can show names without participants, so numbers make them unique.
    for numbered_name in chain([name], (f"{name[:113]} ({number})" for number in count(2))):
        system = System.objects.filter(team=team, name=numbered_name).first()
        if system is None:
            return SystemFields(
                name=numbered_name, architecture=system_architecture, participant=attribution.participant
            )
        if system.participant == attribution.participant:
            return system
    raise AssertionError("unreachable: the numbers are unlimited")


def _attributions(table: Path | None, tags: Mapping[Path, str]) -> tuple[Mapping[Path, Attribution], list[FileReport]]:
    """Return the CSV row of each file, and a report with the problems of the table, if any.

    Problems are an unreadable table, invalid rows, rows without a file, and files without a row.
    """
    if table is None:
        return {}, []
    paths_by_name: dict[str, Path] = {}
    for get_name in (lambda path: tags[path], lambda path: strip_extensions(path.name), lambda path: path.name):
        paths_by_name |= {get_name(path): path for path in tags}
    attributions: dict[Path, Attribution] = {}
    problems: list[Problem] = []
    try:
        rows = csv.DictReader(StringIO(table.read_text(encoding="utf-8-sig"), newline=""), strict=True)
        if not {"run", "participant"} <= set(rows.fieldnames or ()):
            return {}, [_report(table.name, PAIRING, "the CSV lacks the columns run and participant", _HINT)]
        for row in rows:
            problem = _read_row(row, rows.line_num, paths_by_name, attributions)
            problems += [problem] if problem else []
    except UnicodeDecodeError as error:
        text = f"the CSV is not UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
        return {}, [_report(table.name, PAIRING, text, "Save the CSV as UTF-8.")]
    except csv.Error as error:
        line = rows.line_num + 1  # `line_num` counts the lines read before the error
        problems.append(PAIRING.problem(f"line {line} is not valid CSV: {error}", _HINT, lines=(line,)))
    missing_names = [path.name for path in tags if path not in attributions]
    if missing_names and not problems:
        text = (
            f"no row for {format_count(len(missing_names), 'run')}: {', '.join(missing_names[:5])}"
            f"{' …' if len(missing_names) > 5 else ''}"
        )
        problems.append(PAIRING.problem(text, _HINT, count=len(missing_names)))
    return attributions, [FileReport(table.name, "", Report(tuple(problems)))] if problems else []


def _read_row(
    row: Mapping[str, str | None], line: int, paths_by_name: Mapping[str, Path], attributions: dict[Path, Attribution]
) -> Problem | None:
    """Store the row's attribution in `attributions` under the run's path, or return the row's problem.

    `line` is the row's line in the CSV. A run is named by its tag or file name.
    """
    run, participant, name, architecture = ((row.get(column) or "").strip() for column in COLUMNS)
    path = paths_by_name.get(run)
    if path is None:
        text = f"the folder has no run “{run[:80]}”"
    elif path in attributions:
        text = f"the run “{run[:80]}” has a row already"
    elif not participant or len(participant) > 120 or not participant.isprintable():
        text = f"the participant of “{run[:80]}” is not a name of 1 to 120 characters"
    elif architecture and architecture not in dict(architecture_choices()):
        text = f"“{architecture[:40]}” is not an architecture; use one of {', '.join(dict(architecture_choices()))}"
    else:
        attributions[path] = Attribution(participant, name, architecture)
        return None
    return PAIRING.problem(text, _HINT, lines=(line,))


def _report(name: str, code: ProblemCode, message: str, hint: str) -> FileReport:
    return FileReport(name, "", Report((code.problem(message, hint),)))
