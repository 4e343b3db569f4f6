"""Run files of a request: pairing with datasets, extraction from zips, and immediate validation."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from evaluation.archives.compression import BLOCK, COMPRESSION, FileLimits, describe_bytes, unsupported_format
from evaluation.archives.zip import TOO_MANY_FILES, ZipAllowance, ZipPolicy, drop_companions, is_zip, open_archive
from evaluation.core.problems import InvalidContent, Problem, ProblemCode, Report, format_count
from evaluation.runs.forms import recognize_format, trec_text
from evaluation.runs.header import quote
from evaluation.runs.json_runs import JSON
from evaluation.runs.problems import EMPTY
from evaluation.runs.score import ScoringTarget, check_run
from leaderboard.core.storage.disk import disk_errors
from leaderboard.core.storage.runs import StoredRun
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Dataset, DatasetQuerySet, DatasetVersion, User, Visibility
from submissions.core.errors import FileReport, Refused
from submissions.intake import recognition
from submissions.uploads.handler import HashedUpload
from submissions.uploads.service import completed_upload
from submissions.uploads.storage import path_of

NO_FILE = ProblemCode("no_file", "No run file was sent.", "Choose at least one file.", "-F file=@run.txt.gz")
UPLOAD_TWICE = ProblemCode("upload_twice", "The request names the same upload more than once.",
    "Name each upload once.")  # fmt: skip
PAIRING = ProblemCode(
    "pairing", "Files and datasets do not match.",
    "Send one dataset per file, in the same order; only files in a zip may be named after datasets.",
    "-F dataset=nfcorpus -F file=@run.txt",
)  # fmt: skip
UNKNOWN_DATASET = ProblemCode(
    "unknown_dataset", "The dataset does not accept runs, or neither the file's name nor its ids identify the dataset.",
    "Send dataset=… with the dataset's slug, or name the file after it.", "nfcorpus.txt.gz",
)  # fmt: skip
SEVERAL_DATASETS = ProblemCode("several_datasets", "The ids of a file match several datasets.", "Send "
    "dataset=…, or name the file after it.", "-F dataset=nfcorpus")  # fmt: skip
TOO_LARGE_TO_CHECK_AT_ONCE = ProblemCode("too_large_to_check_at_once", "The file is too large for immediate "
    "validation.", "Submit it for validation by a worker, or check it on your machine, as above.",
    severity="warning")  # fmt: skip
LEFT_OUT = ProblemCode(
    "left_out", "The zip contains files that are not runs, such as READMEs, scripts, and metadata.",
    "No action needed. If one is a run, name it <dataset>.txt.", "run.sh", about="file", severity="warning",
)  # fmt: skip

#: Maximum number of runs per submission, and of skipped files that a warning names.
MAX_FILES, MAX_LISTED_NAMES = 64, 20
#: Maximum size of a request's files for immediate validation, in multiples of the limit per file.
REQUEST_FACTOR = 8

EMPTY_ZIP_HINT = "Pack one run per dataset: <dataset>.txt."
ZIP_POLICY = ZipPolicy(
    max_members=16 * MAX_FILES,  # runs are counted later, without other files
    members_hint=f"Pack at most {MAX_FILES} runs: one run, or the seeds of one, per dataset.",
    expansion_hint="Run files usually shrink by a factor of 3 to 7. If these are real runs, send the files one by one.",
    max_ratio=FileLimits().max_ratio,
    ratio_floor_bytes=FileLimits().ratio_floor_bytes,
    max_expanded_bytes=FileLimits().max_expanded_bytes,
)


@dataclass(frozen=True)
class IncomingFile:
    """A file of a request: its name, its temporary path, and the slug of its dataset, if sent.

    `sha256` is the hash of the content, if it was computed on arrival; `upload` is the id of a resumable upload. With
    `is_public`, the file can only belong to a dataset with public queries and documents.
    """

    name: str
    path: Path
    dataset: str | None = None
    sha256: str | None = None
    upload: str = ""
    is_public: bool = False

    @property
    def possible_datasets(self) -> DatasetQuerySet:
        """Datasets that the file may belong to."""
        datasets = Dataset.objects.open_for_runs().select_related("current_version", "current_qrels")
        visibility = {"queries_visibility": Visibility.PUBLIC, "documents_visibility": Visibility.PUBLIC}
        return datasets.filter(**visibility) if self.is_public else datasets

    @cached_property
    def is_zip(self) -> bool:
        return is_zip(self.path) or self.name.lower().endswith(".zip")

    def build_refusal_report(self, error: InvalidContent) -> FileReport:
        return FileReport(self.name, self.dataset or "", error.report)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run file for one dataset. `seed` is its label if the dataset has several files; see `label_seeds`.

    `left_out` describes the files of its zip that are not runs. It is empty for all but the first run of the zip.
    `alternatives` are the datasets that the file may belong to.
    """

    name: str
    path: Path
    dataset: Dataset
    version: DatasetVersion
    seed: str = ""
    sha256: str | None = None
    left_out: str = ""
    alternatives: Iterable[Dataset] = ()


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A run file and its validation report.

    `report` is None if a worker will validate the file because of its size. `text` is the expanded content of a
    valid file, as long as the texts of the request fit into memory together. `stored` identifies the file in
    the store; `upload_sha256` does so if a worker will validate it.
    """

    run: RunFile
    report: Report | None
    text: bytes | None = None
    stored: StoredRun | None = None
    upload_sha256: str = ""

    @property
    def tag(self) -> str | None:
        """First tag in the file, empty if it has none; None if the file was not read yet."""
        return None if self.report is None else next(iter(self.report.statistics.tags), "")

    @property
    def file_report(self) -> FileReport:
        """Report of the file, or a notice that it is too large for immediate validation.

        The report of a zip's first run also lists the zip's files that are not runs.
        """
        limit, name = describe_bytes(settings.VALIDATE_AT_ONCE_BYTES), self.run.dataset.name
        too_large = TOO_LARGE_TO_CHECK_AT_ONCE.problem(
            f"the file exceeds {limit} when expanded, so it is not validated immediately",
            "Submit it for validation by a worker, or check it on your machine: "
            f"runboard-eval check --run FILE --queries queries.jsonl.gz, with the queries of {name} (python "
            "-m evaluation check in Runboard's source folder).",
        )
        report = self.report or Report((too_large,))
        if self.run.left_out:
            report = replace(report, problems=(*report.problems, LEFT_OUT.problem(self.run.left_out, LEFT_OUT.remedy)))
        return FileReport(self.run.name, self.run.dataset.slug, report)


def incoming_file(upload: UploadedFile, dataset: str | None = None) -> IncomingFile:
    """Convert an uploaded file, whose temporary file exists until the request ends.

    Raises TypeError if another upload handler received it.
    """
    if not isinstance(upload, HashedUpload):
        raise TypeError("the configured upload handler must store files in temporary files")
    name, path = Path(upload.name or "run").name, Path(upload.temporary_file_path())
    return IncomingFile(name, path, dataset or None, upload.sha256)


def incoming_upload(person: User, identifier: str, kind: str, dataset: str | None = None) -> IncomingFile:
    """Return the user's completed upload as an incoming file. Raises Refused if it does not exist."""
    row = completed_upload(person, identifier, kind)
    return IncomingFile(row.file_name or row.kind, path_of(row.pk), dataset, row.sha256, row.pk)


def incoming_files(
    person: User, uploaded_files: Iterable[UploadedFile], uploads: Iterable[str], kind: str
) -> list[IncomingFile]:
    """Return the files of a request, followed by the named uploads. Raises Refused if an upload does not exist."""
    return [*map(incoming_file, uploaded_files), *(incoming_upload(person, upload_id, kind) for upload_id in uploads)]


def pair_with_datasets(files: Sequence[IncomingFile], datasets: Sequence[str]) -> list[IncomingFile]:
    """Return the files with datasets assigned in order. Raises Refused if the numbers of files and datasets differ.

    A single dataset applies to all files, if none is a zip. Zips need no dataset, because files in zips can be named
    after datasets.
    """
    if not datasets or not files:
        return list(files)
    plain_files = [file for file in files if not file.is_zip]
    if len(datasets) == 1 and len(plain_files) == len(files):
        datasets = [datasets[0]] * len(files)
    files_to_pair = files if len(datasets) == len(files) else plain_files
    if len(datasets) != len(files_to_pair):
        raise Refused.for_problem(
            PAIRING,
            f"Received: {format_count(len(files), 'file')} and {format_count(len(datasets), 'dataset')}.",
            "Send one dataset per file, in the same order, or one dataset for several seeds; only files in "
            "a zip may be named after datasets.",
        )
    slugs = {file.path: slug for file, slug in zip(files_to_pair, datasets, strict=True)}
    return [replace(file, dataset=slugs.get(file.path, file.dataset)) for file in files]


@contextmanager
def run_files(files: Sequence[IncomingFile]) -> Iterator[list[RunFile]]:
    """Yield the run files, with zips extracted into a temporary folder.

    Runs are counted in the zips' directories before extraction. All zips of a request share one allowance, so that
    disk use does not grow with the number of zips. Raises Refused, and DiskFull if less than DISK_RESERVE_BYTES would
    remain.
    """
    if not files:
        raise Refused.for_problem(NO_FILE, "No run file was sent.", "Choose at least one file.")
    uploads = Counter(file.upload for file in files if file.upload)
    duplicates = [
        UPLOAD_TWICE.problem(
            f"The upload {identifier} ({next(file.name for file in files if file.upload == identifier)}) is "
            f"named {count} times.",
            "Name each upload once; identical seeds are refused as well.",
        )
        for identifier, count in uploads.items()
        if count > 1
    ]
    refuse([*duplicates, *_check_count(len(files))])
    zips = [file for file in files if file.is_zip]
    if not zips:
        yield [_run_file(file, file.name, file.path) for file in files]
        return
    refuse(_check_count(len(files) - len(zips) + _count_runs(zips)))
    policy = replace(ZIP_POLICY, free_bytes=settings.DISK_RESERVE_BYTES)
    # All zips together may expand as much as one zip of their total size.
    allowance = ZipAllowance(
        policy.allowance(sum(file.path.stat().st_size for file in zips)),
        "the zip expands" if len(zips) == 1 else "the zips of the request expand together",
    )
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR, prefix="zip-") as folder:
        runs = []
        with disk_errors(Path(folder)):
            for number, file in enumerate(files):
                if file.is_zip:
                    runs += _extract_runs(file, Path(folder, str(number)), policy, allowance)
                else:
                    runs.append(_run_file(file, file.name, file.path))
        yield runs


def refuse(problems: Sequence[Problem], files: Iterable[FileReport] = ()) -> None:
    if problems:
        raise Refused(problems[0].code, problems[0].message, problems, files)


def _check_count(count: int) -> list[Problem]:
    hint = f"Send at most {MAX_FILES} in one submission, including files in zips."
    return [TOO_MANY_FILES.problem(f"There are {count:,} run files.", hint)] if count > MAX_FILES else []


def _count_runs(zips: Sequence[IncomingFile]) -> int:
    """Count the runs in all zips without extracting them. Raises Refused with the problems of all invalid zips."""
    count, reports = 0, []
    for file in zips:
        try:
            if not is_zip(file.path):
                hint = "Pack the run again as a zip, or name the file after its format, such as run.txt."
                raise COMPRESSION.refusal("the file is not a zip, although its name ends in .zip", hint)
            with open_archive(file.path, ZIP_POLICY) as archive:
                names = drop_companions(archive.names)
            if "xl/workbook.xml" in names:
                raise unsupported_format("an Excel file")
            if not names:
                raise EMPTY.refusal("the zip contains no files", EMPTY_ZIP_HINT)
            count += len(names)
        except InvalidContent as error:
            reports.append(file.build_refusal_report(error))
    if reports:
        raise Refused.for_files(reports)
    return count


def _extract_runs(file: IncomingFile, folder: Path, policy: ZipPolicy, allowance: ZipAllowance) -> list[RunFile]:
    """Extract a zip into the folder and return its runs; the first run describes the files that are not runs.

    Raises Refused if the zip is invalid, one dataset was sent for several runs, or a run's dataset is not clear.
    """
    folder.mkdir()
    try:
        with open_archive(file.path, policy, allowance) as archive:
            names = drop_companions(archive.names)
            members = {name: folder / str(number) for number, name in enumerate(names)}
            archive.extract(members)
        members = drop_metadata(members)
        if not members:
            raise EMPTY.refusal(f"the zip contains no runs, only {_list_names(archive.names)}", EMPTY_ZIP_HINT)
    except InvalidContent as error:
        raise Refused.for_files([file.build_refusal_report(error)]) from error
    if file.dataset and len(members) > 1:
        raise Refused.for_problem(
            PAIRING,
            f"{file.name} contains {len(members)} files, but one dataset ({file.dataset}) was sent for it.",
            "Name the files in the zip <dataset>.txt or <dataset>.<seed>.txt, and omit the dataset.",
        )
    member = replace(file, sha256=None)
    first_run, *other_runs = (_run_file(member, f"{file.name}/{name}", path) for name, path in members.items())
    companions = [name for name in archive.names if name not in members]
    left_out = f"{file.name} has files that are not runs and were skipped: {_list_names(companions)}"
    return [replace(first_run, left_out=left_out if companions else ""), *other_runs]


def _list_names(names: Sequence[str]) -> str:
    """Return the first names of a list, quoted for a message."""
    remainder = f" and {len(names) - MAX_LISTED_NAMES:,} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(quote(name.encode()) for name in names[:MAX_LISTED_NAMES]) + remainder


def _run_file(file: IncomingFile, name: str, path: Path) -> RunFile:
    """Return the run file with its dataset, named by the request or the file, or else found by the file's ids.

    Raises Refused if no dataset or several datasets match.
    """
    slug, own_name = file.dataset, name.removeprefix(f"{file.name}/")
    slug_or_name = (slug or Path(name).name.split(".")[0]).replace("\0", "")
    open_datasets = file.possible_datasets
    matches = list(open_datasets.filter(slug=slug_or_name).exclude(current_version=None))
    overlaps: list[recognition.Overlap] = []
    if not matches and not slug:
        try:
            overlaps = recognition.compare_ids(path, open_datasets)
        except InvalidContent as error:
            raise Refused.for_files([FileReport(name, "", error.report)]) from error
        matches = recognition.best_matches(overlaps)
    if len(matches) == 1 and (version := matches[0].current_version) is not None:
        version.dataset = matches[0]  # avoid another query for the same row
        return RunFile(name, path, matches[0], version, sha256=file.sha256, alternatives=open_datasets)
    if matches:
        suggestions, message = matches, f"{own_name}: its ids match {recognition.name_datasets(matches)} equally well."
        problem = SEVERAL_DATASETS.problem(message, "Choose the dataset of the file.")
    else:
        suggestions, closest = recognition.find_closest(overlaps)
        message = (
            f"No dataset “{slug_or_name}” accepts runs{' without an account' if file.is_public else ''}."
            if slug
            else f"Could not identify the dataset of {own_name}: no dataset was chosen, none that accepts runs "
            f"is named “{slug_or_name}”, and the ids do not identify one."
        )
        slugs = ", ".join(open_datasets.values_list("slug", flat=True)[:20])
        problem = UNKNOWN_DATASET.problem(message, f"{closest}Datasets that accept runs: {slugs or 'none yet'}.")
    # Errors of lines do not depend on the dataset.
    _text, report = _check_content(path, ScoringTarget(), settings.VALIDATE_AT_ONCE_BYTES)
    files = [] if report is None or report.valid else [FileReport(name, "", report)]
    refusal = Refused(problem.code, problem.message, [problem], files)
    refusal.datasets = suggestions
    raise refusal


def check_files(runs: Iterable[RunFile]) -> Iterator[CheckedFile]:
    """Yield each file with the report of its validation, which does not use judgments.

    A file's report is None if the file is too large for immediate validation, alone or together with earlier files.
    Texts of valid files are included while they fit into memory together.
    """
    memory_allowance = settings.VALIDATE_AT_ONCE_BYTES
    total_allowance = memory_allowance * REQUEST_FACTOR
    for run in runs:
        limit = min(total_allowance, settings.VALIDATE_AT_ONCE_BYTES)
        text, report = _check_content(run.path, scoring_target(run.version), limit)
        total_allowance -= min(len(text), limit)
        if report is None or not report.valid or len(text) > memory_allowance:
            yield CheckedFile(run, report and recognition.suggest_dataset(run.path, report, run.alternatives))
        else:
            memory_allowance -= len(text)
            yield CheckedFile(run, report, text)


def _check_content(path: Path, target: ScoringTarget, limit: int) -> tuple[bytes, Report | None]:
    """Return the expanded content of a run and its report; the report is None for more than `limit` bytes."""
    text = b""
    try:
        text = recognition.read_start(path, limit)
        if len(text) > limit:
            return text, None
        # JSON is read from the file, because its expansion limit depends on the compression.
        return text, check_run(path if recognize_format(text[:BLOCK]) == "json" else text, target)
    except InvalidContent as error:
        return text, error.report


#: Names of JSON files that describe a run or its results.
_METADATA = re.compile(
    r"(?:.*/)?(?:meta(?:data)?|config(?:uration)?|(?:hyper)?param(?:eter)?s|hparams|settings|arg(?:ument)?s"
    r"|package(?:-lock)?|environment|results|metrics|scores|evaluation)\.json",
    re.IGNORECASE,
)


def drop_metadata(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files except JSON metadata, identified by name and content.

    A file with damaged JSON may be a run and is included.
    """
    runs = dict(files)
    for name in filter(_METADATA.fullmatch, files):
        try:
            with trec_text(files[name]):
                pass
        except InvalidContent as error:
            # The file is valid JSON, but not in a run format.
            if all(problem.code == JSON and not problem.lines for problem in error.report.problems):
                del runs[name]
    return runs
