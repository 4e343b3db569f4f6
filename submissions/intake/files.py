"""The run files of a request: paired with datasets, taken out of zips, and checked while their sender waits."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from evaluation.archives.compression import BLOCK, FileLimits, describe_bytes, open_blocks, unsupported_format
from evaluation.archives.zip import (
    TOO_MANY_FILES,
    ZipAllowance,
    ZipPolicy,
    is_zip,
    open_archive,
    without_companions,
)
from evaluation.core.problems import InvalidContent, Problem, ProblemCode, Report
from evaluation.runs.forms import recognize, trec_text, write_as_trec
from evaluation.runs.header import MAX_HEADER_BYTES, quote, read_header
from evaluation.runs.json_runs import JSON
from evaluation.runs.problems import EMPTY, UNKNOWN_DOCUMENTS_SHARE, refuse_binary
from evaluation.runs.score import check_run
from leaderboard.core.storage.disk import disk_errors
from leaderboard.core.storage.runs import StoredRun
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Dataset, DatasetVersion, User
from submissions.core.errors import FileReport, Refused
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


@dataclass(frozen=True)
class IncomingFile:
    """A file as it was sent: its name, the path of its bytes for now, and the slug of its dataset if one was given.

    `sha256` is of its bytes, where it was computed as they came; `upload` names the upload that brought it in pieces.
    """

    name: str
    path: Path
    dataset: str | None = None
    sha256: str | None = None
    upload: str = ""

    @cached_property
    def is_zip(self) -> bool:
        """Whether the file is a zip."""
        return is_zip(self.path)

    def refused(self, error: InvalidContent) -> FileReport:
        """Return the report of a zip that cannot be read."""
        return FileReport(self.name, self.dataset or "", error.report)


@dataclass(frozen=True, slots=True)
class RunFile:
    """One run file for one dataset; `seed` is its label where the dataset has several, see `label_seeds`.

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
    long as those of the request have room in memory together. In the store, the file is `stored`, or under
    `upload_sha256` if a worker will check it.
    """

    run: RunFile
    report: Report | None
    text: bytes | None = None
    stored: StoredRun | None = None
    upload_sha256: str = ""

    @property
    def tag(self) -> str | None:
        """The first tag in the file, empty where it has none; None where nobody has read it yet."""
        return None if self.report is None else next(iter(self.report.statistics.tags), "")

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata before the lines of the run, empty for a large one that its worker will refuse."""
        if self.report is not None:
            return self.report.statistics.metadata
        try:
            return read_header(_read_start(self.run.path, MAX_HEADER_BYTES - 1)).metadata
        except InvalidContent:
            return {}

    @property
    def file_report(self) -> FileReport:
        """The verdict under the file's name, or the notice that the file is too large to have one at once."""
        limit, slug = describe_bytes(settings.VALIDATE_AT_ONCE_BYTES), self.run.dataset.slug
        too_large = TOO_LARGE_TO_CHECK_AT_ONCE.problem(
            f"the file is over {limit} expanded, so it is not checked while you wait",
            "Submit it, and a worker checks it; or check it on your own machine: "
            f"runboard-eval check --run FILE --queries queries.jsonl.gz, with the queries that {slug} offers (python "
            "-m evaluation check in Runboard's own folder).",
        )
        report = self.report or Report((too_large,))
        if self.run.left_out:
            remark = LEFT_OUT.problem(self.run.left_out, LEFT_OUT.remedy)
            report = replace(report, problems=(*report.problems, remark))
        return FileReport(self.run.name, self.run.dataset.slug, report)


def incoming_file(upload: UploadedFile, dataset: str | None = None) -> IncomingFile:
    """Return an upload, whose temporary file lasts until the request ends, as the intake takes it."""
    if not isinstance(upload, HashedUpload):
        raise TypeError("the upload handler of the settings keeps files in temporary files")
    name, path = Path(upload.name or "run").name, Path(upload.temporary_file_path())
    return IncomingFile(name, path, dataset or None, upload.sha256)


def incoming_upload(person: User, identifier: str, kind: str, dataset: str | None = None) -> IncomingFile:
    """Return a file of the person's that came in pieces. Raises Refused where it is not there."""
    row = completed_upload(person, identifier, kind)
    return IncomingFile(row.file_name or row.kind, path_of(row.pk), dataset, row.sha256, row.pk)


def incoming_files(
    person: User, sent: Iterable[UploadedFile], uploads: Iterable[str], kind: str
) -> list[IncomingFile]:
    """Return the files of a request, then the person's named uploads. Raises Refused where one is not there."""
    return [*map(incoming_file, sent), *(incoming_upload(person, each, kind) for each in uploads)]


def pair_with_datasets(files: Sequence[IncomingFile], datasets: Sequence[str]) -> list[IncomingFile]:
    """Return files with datasets by their order; zips name their own. Raises Refused."""
    if not datasets or not files:
        return list(files)
    plain = [file for file in files if not file.is_zip]
    if len(datasets) == 1 and len(plain) == len(files):
        datasets = [datasets[0]] * len(files)
    paired = files if len(datasets) == len(files) else plain
    if len(datasets) != len(paired):
        raise Refused.of(
            PAIRING,
            f"There are {len(files)} files and {len(datasets)} datasets.",
            "Give one dataset for each file, in the same order, or one for all of them, which are its seeds then; "
            "only a zip names its files by itself.",
        )
    slugs = {file.path: slug for file, slug in zip(paired, datasets, strict=True)}
    return [replace(file, dataset=slugs.get(file.path, file.dataset)) for file in files]


@contextmanager
def run_files(files: Sequence[IncomingFile]) -> Iterator[list[RunFile]]:
    """Yield the run files that were sent, with zips expanded into a folder that is gone afterwards.

    Runs are counted in the zips' own lists before any is expanded, and all zips of a request share one allowance: what
    it takes of the disk does not grow with how often something small is in it. Raises Refused; DiskFull where less
    than DISK_RESERVE_BYTES would be left.
    """
    if not files:
        raise Refused.of(NO_FILE, "No run file was sent.", "Choose at least one file.")
    uploads = Counter(file.upload for file in files if file.upload)
    repeated = [
        UPLOAD_TWICE.problem(
            f"The upload {identifier} ({next(file.name for file in files if file.upload == identifier)}) is named "
            f"{count} times.",
            "Name each upload once; seeds that are the same run would be refused too.",
        )
        for identifier, count in uploads.items()
        if count > 1
    ]
    refuse([*repeated, *_too_many(len(files))])
    zips = [file for file in files if file.is_zip]
    if not zips:
        yield [_run_file(file, file.name, file.path) for file in files]
        return
    refuse(_too_many(len(files) - len(zips) + _count_runs(zips)))
    policy = replace(ZIP_POLICY, free_bytes=settings.DISK_RESERVE_BYTES)
    # No more may come out of all zips together than out of one as large as they are.
    shared = ZipAllowance(
        policy.allowance(sum(file.path.stat().st_size for file in zips)),
        "the zip expands" if len(zips) == 1 else "the zips of the request expand together",
    )
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR, prefix="zip-") as folder:
        runs = []
        with disk_errors(Path(folder)):
            for number, file in enumerate(files):
                if file.is_zip:
                    runs += _extract_runs(file, Path(folder, str(number)), policy, shared)
                else:
                    runs.append(_run_file(file, file.name, file.path))
        yield runs


def refuse(problems: Sequence[Problem], files: Iterable[FileReport] = ()) -> None:
    """Raise Refused for all problems, if there are any."""
    if problems:
        raise Refused(problems[0].code, problems[0].message, problems, files)


def _too_many(count: int) -> list[Problem]:
    hint = f"Send at most {MOST_FILES} in one submission, those in zips counted."
    return [TOO_MANY_FILES.problem(f"There are {count:,} run files.", hint)] if count > MOST_FILES else []


def _count_runs(zips: Sequence[IncomingFile]) -> int:
    """Count the files in all zips without expanding any. Raises Refused with the problems of all of them."""
    count, wrong = 0, []
    for file in zips:
        try:
            with open_archive(file.path, ZIP_POLICY) as archive:
                names = without_companions(archive.names)
            if "xl/workbook.xml" in names:
                raise unsupported_format("an Excel file")
            if not names:
                hint = "Pack one run for each dataset: <dataset>.txt."
                raise InvalidContent.of(EMPTY.problem("the zip holds no files", hint))
            count += len(names)
        except InvalidContent as error:
            wrong.append(file.refused(error))
    if wrong:
        raise Refused.for_files(wrong)
    return count


def _extract_runs(file: IncomingFile, folder: Path, policy: ZipPolicy, shared: ZipAllowance) -> list[RunFile]:
    """Expand the members of a zip into the folder, and return its runs. Raises Refused."""
    folder.mkdir()
    try:
        with open_archive(file.path, policy, shared) as archive:
            names = without_companions(archive.names)
            members = {name: folder / str(number) for number, name in enumerate(names)}
            archive.extract(members)
    except InvalidContent as error:
        raise Refused.for_files([file.refused(error)]) from error
    members = without_metadata(members)
    if file.dataset and len(members) > 1:
        raise Refused.of(
            PAIRING,
            f"{file.name} holds {len(members)} files, and one dataset ({file.dataset}) was given for it.",
            "Name the files in the zip <dataset>.txt, or <dataset>.<seed>.txt, and leave the dataset out.",
        )
    member = replace(file, sha256=None)
    first, *others = (_run_file(member, f"{file.name}/{name}", path) for name, path in members.items())
    companions = [quote(name.encode()) for name in archive.names if name not in members]
    more = f" and {len(companions) - MOST_NAMED:,} more" if len(companions) > MOST_NAMED else ""
    named = ", ".join(companions[:MOST_NAMED])
    left_out = f"{file.name} has files that are not runs and were left out: {named}{more}"
    return [replace(first, left_out=left_out if companions else ""), *others]


def _run_file(file: IncomingFile, name: str, path: Path) -> RunFile:
    """Return the run for the dataset of its file, else of its name, else of its ids. Raises Refused."""
    slug, own_name = file.dataset, name.removeprefix(f"{file.name}/")
    wanted = (slug or Path(name).name.split(".")[0]).replace("\0", "")
    known = Dataset.objects.open_for_runs().select_related("current_version", "current_qrels")
    matches = list(known.filter(slug=wanted).exclude(current_version=None))
    if not matches and not slug:
        try:
            matches = datasets_of(path)
        except InvalidContent as error:
            raise Refused.for_files([FileReport(name, "", error.report)]) from error
    if len(matches) == 1 and (version := matches[0].current_version) is not None:
        version.dataset = matches[0]  # the same row, which is not to be read again
        return RunFile(name, path, matches[0], version, sha256=file.sha256)
    if matches:
        names = " and ".join(f"{dataset.name} ({dataset.slug})" for dataset in matches)
        message = f"{own_name}: its ids fit {names} equally well."
        raise Refused.of(SEVERAL_DATASETS, message, "Say which one it is for.")
    message = (
        f"There is no dataset “{wanted}” that takes runs."
        if slug
        else f"{own_name}: no dataset was given, none that takes runs is called “{wanted}”, and its ids match no "
        "dataset."
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
            start = _read_start(run.path, at_most)
            in_all -= min(len(start), at_most)
            if len(start) <= at_most:
                text = start
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


def _read_start(path: Path, at_most: int) -> bytes:
    """Return the expanded file as far as the block in which it exceeds `at_most` bytes. Raises InvalidContent."""
    content = bytearray()
    for block in open_blocks(path, FileLimits()):
        content += block
        if len(content) > at_most:
            break
    return bytes(content)


#: So many documents of a file are looked up.
DOCUMENTS = 2_000
#: Topics that the file and the dataset share, over all that either has: at least so many. Topics alone are weak
#: evidence, since many collections number theirs from 1.
LEAST_ALIKE, LEAST_ALIKE_WITHOUT_CORPUS = 0.1, 0.5
#: JSON files that describe a run, or its results.
_METADATA = re.compile(
    r"(?:.*/)?(?:meta(?:data)?|config(?:uration)?|(?:hyper)?param(?:eter)?s|hparams|settings|arg(?:ument)?s"
    r"|package(?:-lock)?|environment|results|metrics|scores|evaluation)\.json",
    re.IGNORECASE,
)


def datasets_of(path: Path) -> list[Dataset]:
    """Return the datasets whose ids the file has: none, one, or several that it fits equally well.

    Raises InvalidContent for a file that has no lines, or is no text.
    """
    queries, documents = set[str](), dict[str, None]()
    for line in _beginning(path).splitlines():
        fields = line.split()
        if len(fields) == 6:
            queries.add(fields[0].decode(errors="replace"))
            if len(documents) < DOCUMENTS:
                documents[fields[2].decode(errors="replace")] = None
    found: dict[tuple[bool, float], list[Dataset]] = {}
    taking = Dataset.objects.open_for_runs().select_related("current_version", "current_qrels")
    for dataset in taking if queries else ():
        version = dataset.current_version
        if version is None:
            continue
        version.dataset = dataset  # the same row, which is not to be read again
        target = scoring_target(version)
        topics, corpus = set(target.query_ids), target.document_ids
        alike = len(queries & topics) / len(queries | topics)
        known = corpus is None or corpus.contain(list(documents)).mean() >= 1 - UNKNOWN_DOCUMENTS_SHARE
        if known and alike >= (LEAST_ALIKE_WITHOUT_CORPUS if corpus is None else LEAST_ALIKE):
            # A corpus that has the documents says more than topics do.
            found.setdefault((corpus is not None, alike), []).append(dataset)
    return found[max(found)] if found else []


def without_metadata(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files, by name, without JSON that is metadata by its name and no run, or all if there are no others.

    A file whose JSON is damaged may be a run and remains.
    """
    kept = dict(files)
    for name in filter(_METADATA.fullmatch, files):
        try:
            with trec_text(files[name]):
                pass
        except InvalidContent as error:
            # Valid JSON, but in no format of runs.
            if all(problem.code == JSON and not problem.lines for problem in error.report.problems):
                del kept[name]
    return kept or dict(files)


def _beginning(path: Path) -> bytes:
    content = _read_start(path, settings.VALIDATE_AT_ONCE_BYTES)
    if not content.strip():
        raise InvalidContent.of(EMPTY.problem())
    form = recognize(content[:BLOCK])
    if form is None:
        refuse_binary(content[:4096])
        return content
    lines = BytesIO()
    # A JSON document is read as a whole; the last of several lines may be incomplete.
    whole_lines = content[: content.rfind(b"\n") + 1]
    write_as_trec(form, path if form == "json" else whole_lines or content, FileLimits(), lines)
    return lines.getvalue()
