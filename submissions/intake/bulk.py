"""Many runs of one dataset, imported by a curator: each goes the way of any submission, or none of them does."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, count, filterfalse
from pathlib import Path

from django.db import transaction

from evaluation.archives.zip import is_clutter, without_companions
from evaluation.core.problems import Problem, ProblemCode, Report
from evaluation.runs.stored import first_tag, run_name, without_endings
from leaderboard.judgements.disclosure import record_compared
from leaderboard.models import Dataset, System, Team, User, architecture_choices
from leaderboard.systems.records import SystemFields
from submissions.core.errors import FileReport, Refused
from submissions.intake.files import NO_FILE, PAIRING, IncomingFile, without_metadata
from submissions.intake.runs import accept_submission
from submissions.intake.submission import SubmissionOptions
from submissions.models import Submission
from submissions.models.work import new_identifier

#: The columns that a CSV of participants may have; `run` and `participant` are needed.
COLUMNS = ("run", "participant", "name", "architecture")
_HINT = f"Columns: {', '.join(COLUMNS)}; `run` is a file's name, with or without its ending, or the tag of its lines."


@dataclass(frozen=True, slots=True)
class Attribution:
    """What the CSV says of a run; empty is not said."""

    participant: str
    name: str = ""
    architecture: str = ""


class BulkRefused(Exception):
    """Nothing was imported; `reports` has every problem of every file."""

    def __init__(self, reports: Sequence[FileReport]) -> None:
        self.reports = reports
        super().__init__(f"{len(reports)} files with problems")


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
    """Submit every run of the folder for a system of its own, which is named by the run's tag.

    `participants` is a CSV that says of each run by whom it is. Returns the submissions, and the names of files that
    are not runs. Raises BulkRefused with all problems of all files, and then nothing is stored.
    """
    visible = (path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    names = sorted(filterfalse(is_clutter, visible))
    runs = without_metadata({name: folder / name for name in without_companions(names)})
    files = list(runs.values())
    if not files:
        raise BulkRefused(
            [_report(folder.name, NO_FILE, "the folder has no files", "Name the folder of the runs.")]
        )
    tags = {path: first_tag(path) for path in files}
    said, wrong = _attributions(participants, tags)
    options, taken = SubmissionOptions(public=public, team=team, bulk=new_identifier()), []
    record_compared(dataset, dataset, dataset.current_qrels)
    with transaction.atomic():
        for path in files:
            try:
                system = _system_of(path, tags, team, architecture, said.get(path))
                file = IncomingFile(path.name, path, dataset.slug)
                taken.append(accept_submission(submitter, system, [file], options))
            except Refused as refused:
                wrong += refused.files or [
                    FileReport(path.name, dataset.slug, Report(tuple(refused.problems)))
                ]
        if wrong:
            raise BulkRefused(wrong)
    return taken, [name for name in names if name not in runs]


def _system_of(
    path: Path,
    tags: Mapping[Path, str],
    team: Team,
    architecture: str,
    said: Attribution | None,
) -> System | SystemFields:
    """Return the team's system of the run's name, or a new one. Without participants, files name runs of one tag."""
    said = said or Attribution("")
    alone = said.participant or list(tags.values()).count(tags[path]) == 1
    name = (said.name or run_name(path, [tags[path]] if alone else []))[:120]
    chosen = said.architecture or architecture
    # Groups may use one tag. A number tells them apart, since a name is shown where the participant is kept back.
    for numbered in chain([name], (f"{name[:113]} ({number})" for number in count(2))):
        known = System.objects.filter(team=team, name=numbered).first()
        if known is None:
            return SystemFields(name=numbered, architecture=chosen, participant=said.participant)
        if known.participant == said.participant:
            return known
    raise AssertionError("numbers do not end")


def _attributions(
    table: Path | None, tags: Mapping[Path, str]
) -> tuple[Mapping[Path, Attribution], list[FileReport]]:
    """Return the CSV's row of each file, and its problems: rows of no file, and files without a row."""
    if table is None:
        return {}, []
    wanted: dict[str, Path] = {}
    for name_of in (lambda path: tags[path], lambda path: without_endings(path.name), lambda path: path.name):
        wanted |= {name_of(path): path for path in tags}
    found: dict[Path, Attribution] = {}
    problems: list[Problem] = []
    try:
        rows = csv.DictReader(StringIO(table.read_text(encoding="utf-8-sig"), newline=""), strict=True)
        if not {"run", "participant"} <= set(rows.fieldnames or ()):
            return {}, [_report(table.name, PAIRING, "the CSV has no columns run and participant", _HINT)]
        for row in rows:
            problem = _read_row(row, rows.line_num, wanted, found)
            problems += [problem] if problem else []
    except UnicodeDecodeError as error:
        text = f"the CSV is not UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
        return {}, [_report(table.name, PAIRING, text, "Save it as UTF-8.")]
    except csv.Error as error:
        line = rows.line_num + 1  # it counts the lines that it has read
        problems.append(PAIRING.problem(f"line {line} is no CSV: {error}", _HINT, lines=(line,)))
    missing = [path.name for path in tags if path not in found]
    if missing and not problems:
        text = (
            f"{len(missing):,} runs have no row: {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}"
        )
        problems.append(PAIRING.problem(text, _HINT, count=len(missing)))
    return found, [FileReport(table.name, "", Report(tuple(problems)))] if problems else []


def _read_row(
    row: Mapping[str, str | None], line: int, wanted: Mapping[str, Path], found: dict[Path, Attribution]
) -> Problem | None:
    """Note what a row says of its file; what is wrong with it, if anything is."""
    run, participant, name, architecture = ((row.get(column) or "").strip() for column in COLUMNS)
    path = wanted.get(run)
    if path is None:
        text = f"there is no run “{run[:80]}” in the folder"
    elif path in found:
        text = f"the run “{run[:80]}” has a row already"
    elif not participant or len(participant) > 120 or not participant.isprintable():
        text = f"the participant of “{run[:80]}” is no name of 1 to 120 characters"
    elif architecture and architecture not in dict(architecture_choices()):
        text = (
            f"“{architecture[:40]}” is no architecture; there are {', '.join(dict(architecture_choices()))}"
        )
    else:
        found[path] = Attribution(participant, name, architecture)
        return None
    return PAIRING.problem(text, _HINT, lines=(line,))


def _report(name: str, code: ProblemCode, message: str, hint: str) -> FileReport:
    return FileReport(name, "", Report((code.problem(message, hint),)))
