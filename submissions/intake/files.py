"""The run files of a request: paired with datasets, taken out of zips, and checked while their sender waits."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from evaluation.archives.compression import BLOCK, FileLimits, describe_bytes, not_read, open_blocks
from evaluation.archives.zip import (
    TOO_MANY_FILES,
    ZipAllowance,
    ZipPolicy,
    is_zip,
    open_archive,
    without_companions,
)
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem, ProblemCode, Report
from evaluation.runs.forms import recognize
from evaluation.runs.problems import EMPTY
from evaluation.runs.quoting import quote
from evaluation.runs.score import check_run
from leaderboard.core.storage.disk import disk_errors
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Dataset, DatasetVersion, User
from submissions.core.errors import FileReport, Refused
from submissions.intake.recognition import datasets_of, without_metadata
from submissions.uploads.handler import HashedUpload
from submissions.uploads.service import completed_upload
from submissions.uploads.storage import path_of

NO_FILE = ProblemCode("no_file", "No run file was sent.", "Choose at least one file.", "-F file=@run.txt.gz")
UPLOAD_TWICE = ProblemCode("upload_twice", "One request names the same upload more than once.",
    "Name each once.")  # fmt: skip
PAIRING = ProblemCode("pairing", "Files and datasets do not pair.", "As many datasets as files, in the same order; "
    "only a zip names its files by itself.", "-F dataset=nfcorpus -F file=@run.txt")  # fmt: skip
UNKNOWN_DATASET = ProblemCode("unknown_dataset", "A dataset that does not take runs here, or a file of which neither "
    "its name nor its ids say which one it is for.", "Say dataset=… as its address has it, or name the file after it.",
    "nfcorpus.txt.gz")  # fmt: skip
SEVERAL_DATASETS = ProblemCode("several_datasets", "The ids of a file are those of several datasets.", "Say "
    "dataset=…, or name the file after it.", "-F dataset=nfcorpus")  # fmt: skip
TOO_LARGE_TO_CHECK_AT_ONCE = ProblemCode("too_large_to_check_at_once", "The file is too large to be checked while "
    "you wait.", "Submit it, and a worker checks it; or check it on your own machine, as above.",
    severity="warning")  # fmt: skip
LEFT_OUT = ProblemCode("left_out", "Files of a zip that are not runs, such as READMEs, scripts, and metadata.",
    "Nothing to do. If one is a run, name it <dataset>.txt.", "run.sh", about="file",
    severity="warning")  # fmt: skip

#: Runs in one submission, and files left out that a warning names.
MOST_FILES, MOST_NAMED = 64, 20
#: What one request may bring to be checked at once, in multiples of the limit for one file.
REQUEST_FACTOR = 8

ZIP_POLICY = ZipPolicy(
    max_members=16 * MOST_FILES,  # runs are counted without the files beside them
    members_hint=f"Pack at most {MOST_FILES}, a run, or the seeds of one, for each dataset.",
    expansion_hint="Real run files shrink by a factor of 3 to 7; send the files one by one if these are real.",
    max_ratio=FileLimits().max_ratio,
    ratio_floor_bytes=FileLimits().ratio_floor_bytes,
    max_expanded_bytes=FileLimits().max_expanded_bytes,
)


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file as it was sent: its name, where its bytes lie for now, and the slug of its dataset where one was said.

    `sha256` is of its bytes, where it was found as they came; `upload` names the upload that brought it in pieces.
    """

    name: str
    path: Path
    dataset: str | None = None
    sha256: str | None = None
    upload: str = ""


@dataclass(frozen=True, slots=True)
class RunFile:
    """One run file for one dataset; `seed` is its label where the dataset has several, see `seed_labels`.

    `left_out` describes the files of its zip that are not runs. It is empty for all but the first run of the zip.
    """

    name: str
    path: Path
    dataset: Dataset
    version: DatasetVersion
    seed: str = ""
    sha256: str | None = None
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A run file and the verdict on it.

    `report` is None for a file so large that a worker checks it. `text` is the content of a valid one, expanded, as
    long as those of the request have room in memory together.
    """

    run: RunFile
    report: Report | None
    text: bytes | None = None

    @property
    def tag(self) -> str | None:
        """The first tag in the file, empty where it has none; None where nobody has read it yet."""
        return None if self.report is None else next(iter(self.report.statistics.tags), "")

    @property
    def file_report(self) -> FileReport:
        """The verdict under the file's name, or the notice that the file is too large to have one at once."""
        report = self.report or Report((_too_large_to_check(self.run.dataset.slug),))
        if self.run.left_out:
            remark = LEFT_OUT.problem(self.run.left_out, LEFT_OUT.remedy)
            report = replace(report, problems=(*report.problems, remark))
        return FileReport(self.run.name, self.run.dataset.slug, report)


def incoming_file(upload: UploadedFile, dataset: str | None = None) -> IncomingFile:
    """An upload, which lies in a temporary file until the request ends, as the intake takes it."""
    if not isinstance(upload, HashedUpload):
        raise TypeError("the upload handler of the settings keeps files in temporary files")
    name, path = Path(upload.name or "run").name, Path(upload.temporary_file_path())
    return IncomingFile(name, path, dataset or None, upload.sha256)


def incoming_upload(person: User, identifier: str, kind: str, dataset: str | None = None) -> IncomingFile:
    """A file of the person's that came in pieces, as the intake takes it. Raises Refused where it is not there."""
    row = completed_upload(person, identifier, kind)
    return IncomingFile(row.file_name or row.kind, path_of(row.pk), dataset, row.sha256, row.pk)


def pair_with_datasets(files: Sequence[IncomingFile], datasets: Sequence[str]) -> list[IncomingFile]:
    """Files with datasets by their order; zips name their own. Raises Refused."""
    slugs: list[str | None] = list(datasets)
    if not slugs or not files:
        return list(files)
    if len(slugs) == 1 and not any(is_zip(file.path) for file in files):
        slugs *= len(files)
    if len(slugs) == len(files):
        return [replace(file, dataset=slug) for file, slug in zip(files, slugs, strict=True)]
    plain = [file for file in files if not is_zip(file.path)]
    if len(slugs) != len(plain):
        raise Refused.of(
            PAIRING,
            f"There are {len(files)} files and {len(slugs)} datasets.",
            "Give one dataset for each file, in the same order, or one for all of them, which are its seeds then; "
            "only a zip names its files by itself.",
        )
    remaining = iter(slugs)
    return [file if is_zip(file.path) else replace(file, dataset=next(remaining)) for file in files]


@contextmanager
def run_files(files: Sequence[IncomingFile]) -> Iterator[list[RunFile]]:
    """The run files that were sent, zips taken apart into a folder that is gone afterwards.

    Runs are counted in the zips' own lists before any is expanded, and all zips of a request share one allowance: what
    it takes of the disk does not grow with how often something small is in it. Raises Refused; DiskFull where less
    than DISK_RESERVE_BYTES would be left.
    """
    if not files:
        raise Refused.of(NO_FILE, "No run file was sent.", "Choose at least one file.")
    repeated = [
        UPLOAD_TWICE.problem(
            f"The upload {identifier} ({next(file.name for file in files if file.upload == identifier)}) is named "
            f"{count} times.",
            "Name each upload once; seeds that are the same run would be refused too.",
        )
        for identifier, count in Counter(file.upload for file in files if file.upload).items()
        if count > 1
    ]
    refuse([*repeated, *_too_many(len(files))])
    zips = _names_in_zips(files)
    refuse(_too_many(sum(len(zips.get(file.path, (file.name,))) for file in files)))
    if not zips:
        yield [_run_file(file, file.name, file.name, file.path) for file in files]
        return
    policy = replace(ZIP_POLICY, free_bytes=settings.DISK_RESERVE_BYTES)
    # No more may come out of all zips together than out of one as large as they are.
    shared = ZipAllowance(
        policy.allowance(sum(path.stat().st_size for path in zips)),
        "the zip expands" if len(zips) == 1 else "the zips of the request expand together",
    )
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR, prefix="zip-") as folder:
        runs = []
        with disk_errors(Path(folder)):
            for number, file in enumerate(files):
                if file.path in zips:
                    runs += _extract_runs(file, Path(folder, str(number)), policy, shared)
                else:
                    runs.append(_run_file(file, file.name, file.name, file.path))
        yield runs


def refuse(problems: Sequence[Problem], files: Iterable[FileReport] = ()) -> None:
    """Raise Refused where there are problems, with all of them."""
    if problems:
        raise Refused(problems[0].code, problems[0].message, problems, files)


def _too_many(count: int) -> list[Problem]:
    if count <= MOST_FILES:
        return []
    hint = f"Send at most {MOST_FILES} in one submission, those in zips counted."
    return [TOO_MANY_FILES.problem(f"There are {count:,} run files.", hint)]


def _names_in_zips(files: Sequence[IncomingFile]) -> dict[Path, tuple[str, ...]]:
    """The names in each zip among the files; none is expanded. Raises Refused with what is wrong with any of them."""
    found, wrong = {}, []
    for file in files:
        if not is_zip(file.path):
            continue
        try:
            found[file.path] = _names_in(file)
        except InvalidContent as error:
            wrong.append(FileReport(file.name, file.dataset or "", error.report))
    if wrong:
        raise Refused.for_files(wrong)
    return found


def _names_in(file: IncomingFile) -> tuple[str, ...]:
    with open_archive(file.path, ZIP_POLICY) as archive:
        names = without_companions(archive.names)
    if "xl/workbook.xml" in names:
        raise not_read("an Excel file")
    if not names:
        hint = "Pack one run for each dataset: <dataset>.txt."
        raise InvalidContent.of(EMPTY.problem("the zip holds no files", hint))
    return names


def _extract_runs(file: IncomingFile, folder: Path, policy: ZipPolicy, shared: ZipAllowance) -> list[RunFile]:
    """The runs in a zip, its members taken out into the folder. Raises Refused."""
    folder.mkdir()
    try:
        with open_archive(file.path, policy, shared) as archive:
            names = without_companions(archive.names)
            members = {name: folder / str(number) for number, name in enumerate(names)}
            archive.extract(members)
    except InvalidContent as error:
        raise Refused.for_files([FileReport(file.name, file.dataset or "", error.report)]) from error
    members = without_metadata(members)
    if file.dataset and len(members) > 1:
        raise Refused.of(
            PAIRING,
            f"{file.name} holds {len(members)} files, and one dataset ({file.dataset}) was given for it.",
            "Name the files in the zip <dataset>.txt, or <dataset>.<seed>.txt, and leave the dataset out.",
        )
    first, *others = (_run_file(file, f"{file.name}/{name}", name, path) for name, path in members.items())
    companions = [quote(name.encode()) for name in archive.names if name not in members]
    more = f" and {len(companions) - MOST_NAMED:,} more" if len(companions) > MOST_NAMED else ""
    named = ", ".join(companions[:MOST_NAMED])
    left_out = f"{file.name} has files that are not runs and were left out: {named}{more}"
    return [replace(first, left_out=left_out if companions else ""), *others]


def _run_file(file: IncomingFile, shown_name: str, name: str, path: Path) -> RunFile:
    """The run for the dataset of its file, else for the one that it is named after, else for the one of its ids."""
    slug = file.dataset
    wanted = (slug or Path(name).name.split(".")[0]).replace("\0", "")
    known = Dataset.objects.open_for_runs().select_related("current_version", "current_qrels")
    found = list(known.filter(slug=wanted).exclude(current_version=None))
    if not found and not slug:
        try:
            found = datasets_of(path)
        except InvalidContent as error:
            raise Refused.for_files([FileReport(shown_name, "", error.report)]) from error
    if len(found) == 1 and (version := found[0].current_version) is not None:
        version.dataset = found[0]  # the same row, which is not to be read again
        return RunFile(shown_name, path, found[0], version, sha256=file.sha256)
    if found:
        names = " and ".join(f"{dataset.name} ({dataset.slug})" for dataset in found)
        raise Refused.of(
            SEVERAL_DATASETS, f"{name}: its ids fit {names} equally well.", "Say which one it is for."
        )
    message = (
        f"There is no dataset “{wanted}” that takes runs."
        if slug
        else f"{name}: no dataset was given, none that takes runs is called “{wanted}”, and its ids match no dataset."
    )
    slugs = ", ".join(known.values_list("slug", flat=True)[:20])
    raise Refused.of(UNKNOWN_DATASET, message, f"Datasets that take runs: {slugs or 'none yet'}.")


def check_files(runs: Iterable[RunFile]) -> Iterator[CheckedFile]:
    """Validate each file against its dataset, without judgements, unless it is too large to be checked at once."""
    in_all, in_memory = settings.VALIDATE_AT_ONCE_BYTES * REQUEST_FACTOR, settings.VALIDATE_AT_ONCE_BYTES
    for run in runs:
        at_most = min(in_all, settings.VALIDATE_AT_ONCE_BYTES)
        text, report = None, None
        try:
            text = _read_expanded(run.path, at_most)
            in_all -= at_most if text is None else len(text)
            if text is not None:
                # JSON is read from the file: how far it may expand depends on how it is compressed.
                content = run.path if recognize(text[:BLOCK]) == "json" else text
                report = check_run(content, scoring_target(run.version))
        except InvalidContent as error:
            report = error.report
        if text is None or len(text) > in_memory or report is None or not report.valid:
            yield CheckedFile(run, report)
        else:
            in_memory -= len(text)
            yield CheckedFile(run, report, text)


def _read_expanded(path: Path, at_most: int) -> bytes | None:
    """The file's content, expanded; None where it has more bytes. Raises InvalidContent for a damaged file."""
    blocks, size = [], 0
    for block in open_blocks(path, FileLimits()):
        size += len(block)
        if size > at_most:
            return None
        blocks.append(block)
    return b"".join(blocks)


def _too_large_to_check(dataset: str) -> Problem:
    limit = describe_bytes(settings.VALIDATE_AT_ONCE_BYTES)
    return TOO_LARGE_TO_CHECK_AT_ONCE.problem(
        f"the file is over {limit} expanded, so it is not checked while you wait",
        "Submit it, and a worker checks it; or check it on your own machine: "
        f"runboard-eval check --run FILE --queries queries.jsonl.gz, with the queries that {dataset} offers (python -m "
        "evaluation check in Runboard's own folder).",
    )
