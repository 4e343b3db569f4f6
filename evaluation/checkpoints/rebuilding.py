"""Validation of a checkpoint without loading it, and rebuilding from newly written JSON and the bytes of its weights.

Uploaded archives, zip or tar.zst, are extracted into a scratch folder: regular files only, within bounds.
"""

import hashlib
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tarfile import AREGTYPE, BLOCKSIZE, REGTYPE, XGLTYPE, XHDTYPE, TarInfo

import zstandard

from evaluation.archives.compression import MIB, FileLimits, open_expanded
from evaluation.archives.tar import DamagedTar, TarReader, pax_records, read_extended, read_header
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.checkpoints.description import FILE_NAME, CheckpointDescription, CheckpointKind, Plan
from evaluation.checkpoints.files import ModelFiles, check_file_name, list_model_files
from evaluation.checkpoints.findings import (
    CODES,
    MAX_EXPANDED,
    MAX_FILES_IN_ARCHIVE,
    CheckpointAllowance,
    FileFindings,
    Findings,
    attempt,
    quote,
)
from evaluation.checkpoints.kinds import ModelFolder
from evaluation.checkpoints.weights import NotSafetensors, Tensor, build_header, read_blocks
from evaluation.core.problems import InvalidContent, Problem, Report
from evaluation.core.writing import replace_on_success

Kinds = CheckpointKind | Collection[CheckpointKind] | None


@dataclass(frozen=True, slots=True)
class Validation:
    """Verdict on a checkpoint: `plan` describes how to rebuild it, and is None if `report` has errors."""

    report: Report
    plan: Plan | None

    @property
    def valid(self) -> bool:
        return self.plan is not None


def validate_folder(source: Path, acceptable_kinds: Kinds = None, pooling: str = "") -> Validation:
    """Validate a folder of a model.

    Args:
        source: The folder.
        acceptable_kinds: The acceptable kind or kinds; None for any.
        pooling: Combination of the tokens' outputs if the files do not state one: "max" or "sum" for SPLADE, "mean",
            "cls", "max", or "lasttoken" for a dense encoder.

    Raises:
        OSError: The disk has an error. The content of files never causes an exception.
    """
    return _validate(list_model_files(source, Findings()), acceptable_kinds, pooling, source.name)


def validate_archive(
    path: Path,
    scratch: Path,
    acceptable_kinds: Kinds = None,
    pooling: str = "",
    without_weights: bool = False,
) -> Validation:
    """Validate an archive as `validate_folder` does, extracted into `scratch` until the checkpoint is rebuilt.

    With `without_weights`, files of weights may consist of headers only. A remark reports this, and the checkpoint
    cannot be rebuilt.
    """
    findings = Findings()
    extracted_paths = extract(path, scratch, findings)
    allowance = CheckpointAllowance(without_weights)
    files = ModelFiles(scratch, frozenset(extracted_paths), findings, "", allowance, extracted_paths)
    return _validate(files, acceptable_kinds, pooling, path.name)


def _validate(source: ModelFiles, acceptable_kinds: Kinds, pooling: str, name: str) -> Validation:
    """Return the verdict on the files of a folder, or of the only folder in it, including the findings so far.

    `name` is the sender's name of the folder or archive.
    """
    kinds = [acceptable_kinds] if isinstance(acceptable_kinds, CheckpointKind) else acceptable_kinds or ()
    model_folder, findings = source, source.findings
    for _ in range(2):  # The upload may be a folder within a folder.
        tops = {name.partition("/")[0] for name in model_folder.names}
        if len(tops) == 1 and all("/" in name for name in model_folder.names):
            model_folder = model_folder.subfolder(tops.pop())
    plan = attempt(ModelFolder(model_folder, frozenset(kinds), pooling, name).plan) if source.names else None
    if findings.has("adapter") and not any(name.endswith(".safetensors") for name in source.names):
        findings.at("").refuse("adapter", "an adapter needs its base model")
    if plan is None and not findings.has_errors:  # Every refusal needs a reason.
        findings.at("").refuse("unknown_kind", "its files do not show the kind of the model")
    if source.allowance.has_omitted_weights:
        findings.at("").remark("weights_not_sent", "only the headers of the weights were read")
    report = findings.report()
    if plan is None or not report.valid:
        return Validation(report, None)
    parameters = sum(tensor.parameters for tensor in plan.tensors)
    return Validation(report, plan.with_description(parts=tuple(plan.parts), parameters=parameters))


_COMPRESSION_LEVEL = 3


def rebuild(validation: Validation, target: Path) -> CheckpointDescription:
    """Write the checkpoint into `target`, which must be empty or missing, and sync it to disk.

    The validated files must be unchanged. Raises InvalidContent if they were not valid, and OSError for the disk.
    """
    plan = validation.plan
    if plan is None:
        raise InvalidContent(validation.report)
    target.mkdir(exist_ok=True)
    if any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty")
    total_bytes, sums, identity = 0, {}, hashlib.sha256()
    contents: dict[str, Iterable[bytes]] = {}
    for folder, part in plan.parts.items():
        moved_part = part.in_folder(folder)
        for name, value in moved_part.json.items():
            contents[name] = [json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8") + b"\n"]
        contents |= {name: _encode_weights(tensors) for name, tensors in moved_part.weights.items()}
    for name, content in sorted(contents.items()):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for block in content:
                file.write(block)
                digest.update(block)
                total_bytes += len(block)
        sums[name] = digest.hexdigest()
        identity.update(name.encode() + b"\0" + digest.digest())
    description = replace(plan.description, size=total_bytes, sha256=identity.hexdigest(), files=sums)
    description.write(target)
    for path in (*target.rglob("*"), target):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return description


def _encode_weights(tensors: Mapping[str, Tensor]) -> Iterator[bytes]:
    """Yield the content of a file of weights: a new header, and the bytes of every tensor in the order of the names.

    Raises OSError if a validated file has become shorter or cannot be opened.
    """
    sorted_tensors = dict(sorted(tensors.items()))
    yield build_header(sorted_tensors)
    for tensor in sorted_tensors.values():
        try:
            yield from read_blocks(tensor)
        except NotSafetensors as error:
            raise OSError(f"{tensor.path.name} changed after it was validated: {error}") from error


def open_checkpoint(
    folder: Path, wanted_kinds: Iterable[str | CheckpointKind], scratch: Path, pooling: str = ""
) -> Path:
    """Rebuild the checkpoint in a model's folder or archive, and return its new folder inside `scratch`.

    A rebuilt folder is returned unchanged. `wanted_kinds` are the acceptable kinds, or empty for any. Raises
    InvalidContent if the model is unusable or of another kind, and FileNotFoundError if `folder` does not exist.
    """
    kinds = frozenset(CheckpointKind(kind) for kind in wanted_kinds)
    if (folder / FILE_NAME).is_file():
        description = CheckpointDescription.read(folder)
        if kinds and kinds.isdisjoint(description.kinds):
            message = f"{folder.name} is a {description.kind}, not a {' or '.join(sorted(kinds))}"
            raise InvalidContent.build(Problem("error", "wrong_kind", 1, message, "Specify a checkpoint of that kind."))
        return folder
    if folder.is_file():
        validation = validate_archive(folder, Path(tempfile.mkdtemp(prefix="archive-", dir=scratch)), kinds, pooling)
    else:
        validation = validate_folder(folder, kinds, pooling)
    target = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=scratch))
    rebuild(validation, target)
    return target


def write_archive(rebuilt_folder: Path, target: Path, headers_alone: bool = False) -> None:
    """Write a rebuilt folder as tar.zst to `target`, which appears only when it is complete.

    `headers_alone` omits the weights, for a check before the complete upload. Names, order, times, and owners are
    fixed, so that the same model produces the same bytes. The description is omitted, because the receiver writes its
    own. Numbers are in GNU format, because plain ustar is limited to 8 GiB per file.
    """
    compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, write_checksum=True)
    with (
        replace_on_success(target) as unfinished,
        unfinished.open("wb") as file,
        compressor.stream_writer(file, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(path for path in rebuilt_folder.rglob("*") if path.is_file() and path.name != FILE_NAME):
            info = tarfile.TarInfo(path.relative_to(rebuilt_folder).as_posix())
            info.size = path.stat().st_size
            with path.open("rb") as content:
                if headers_alone and path.suffix == ".safetensors":
                    info.size = 8 + int.from_bytes(content.read(8), "little")
                    content.seek(0)
                archive.addfile(info, content)


_FREE_INTERVAL = 64 * MIB
#: Limits of archives; `free_bytes` of the disk must remain free.
POLICY = ZipPolicy(
    max_members=MAX_FILES_IN_ARCHIVE,
    members_hint=CODES["too_many_files"],
    expansion_hint=CODES["expansion"],
    max_expanded_bytes=MAX_EXPANDED,
    free_bytes=512 * MIB,
)


def extract(path: Path, scratch: Path, findings: Findings) -> dict[str, Path]:
    """Extract the usable files of an archive into `scratch`, which is created, and return their paths by name.

    Extracted files have numbers as names, so the sender does not choose any name on disk. For any archive, only files
    in `scratch` are written, no link is created, and the written bytes do not exceed POLICY. Raises OSError for
    errors of the disk, ENOSPC if it is full.
    """
    scratch.mkdir(exist_ok=True)
    archive_findings = findings.at(path.name)
    extracted_paths: dict[str, Path] = {}
    try:
        extracted_paths = (_extract_zip if is_zip(path) else _extract_tar)(path, scratch, archive_findings)
        if not extracted_paths and not findings.has_errors:
            archive_findings.refuse("empty_folder", "there are no files of a model")
    except InvalidContent as error:
        for problem in error.report.problems:
            code = "file_too_large" if problem.code == "size" else problem.code
            archive_findings.refuse(code, quote(problem.message, 200))
    except DamagedTar as error:
        code = error.code if isinstance(error, NotTar) else "compression"
        archive_findings.refuse(code, quote(error, 200))
    return extracted_paths


def _extract_zip(path: Path, scratch: Path, findings: FileFindings) -> dict[str, Path]:
    """Extract the usable files of a zip into `scratch`, and return their paths by name.

    Data before or after the zip is refused. Returns no files if any two names conflict. Raises InvalidContent if the
    zip is damaged or over a limit.
    """
    with path.open("rb") as file_object:
        file_object.seek(max(0, path.stat().st_size - 22))
        end = file_object.read(22)
    # The list of members must be last and without a comment: following data could be another archive.
    if not end.startswith(b"PK\x05\x06") or end[20:] != b"\0\0":
        findings.refuse("trailing_data", "data follows the end of the zip")
    with open_archive(path, POLICY) as archive:
        if archive.first_byte:
            findings.refuse("trailing_data", f"{archive.first_byte:,} bytes precede the zip's first member")
        names = _MemberNames(findings.findings)
        fitting = [name for name in archive.names if names.take(name)]
        used_names = [name for name in archive.names if check_file_name(name, findings.findings)]
        if len(fitting) < len(archive.names):  # It is unclear which of two files is meant.
            return {}
        targets = {name: scratch / str(number) for number, name in enumerate(used_names)}
        archive.extract(targets)
    return targets


class _MemberNames:
    """Names of an archive so far, compared without regard to case, as on some disks."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}

    def take(self, name: str) -> bool:
        """Record a file's normalized name. Return False and add an error if it conflicts with an earlier name."""
        folders = [name[:index] for index, letter in enumerate(name) if letter == "/"]
        if fault := self._describe_conflict(name.casefold(), folders):
            self._findings.at(name).refuse("member_name", fault)
        self._files.add(name.casefold())
        for folder in folders:
            self._folders.setdefault(folder.casefold(), folder)
        return not fault

    def _describe_conflict(self, folded_name: str, folders: list[str]) -> str:
        """Describe how a name in lower case conflicts with earlier ones, or return an empty string."""
        if folded_name in self._files:
            return "the name occurs twice"
        if folded_name in self._folders or any(folder.casefold() in self._files for folder in folders):
            return "it is both a file and a folder"
        if any(self._folders.get(folder.casefold(), folder) != folder for folder in folders):
            return "another folder differs from its folder only by capital letters"
        return ""


def _extract_tar(path: Path, scratch: Path, findings: FileFindings) -> dict[str, Path]:
    """Extract the usable files of a tar in zstd into `scratch`, and return their paths by name.

    Another compression is refused, and no files are returned. Raises DamagedTar if the tar is damaged or has too many
    files, and InvalidContent if its compression is damaged or expands over a limit.
    """
    limit = POLICY.max_expanded_bytes or 1 << 62
    limits = FileLimits(
        max_stored_bytes=limit,
        max_expanded_bytes=limit,
        max_ratio=POLICY.max_ratio,
        ratio_floor_bytes=POLICY.ratio_floor_bytes,
        may_be_tar=True,
    )
    targets: dict[str, Path] = {}
    names = _MemberNames(findings.findings)
    with open_expanded(path, limits) as expanded:
        if expanded.kind != "zstd":
            findings.refuse("archive_kind", f"it is neither a zip nor a tar in zstd ({expanded.kind})")
            return {}
        reader = TarReader(expanded.readinto)
        for number, member in enumerate(iterate_members(reader.read, reader.skip)):
            if number >= POLICY.max_members:
                raise NotTar("too_many_files", f"the archive has more than {POLICY.max_members} files")
            fits = names.take(member.name)
            if check_file_name(member.name, findings.findings) and fits:
                targets[member.name] = scratch / str(len(targets))
                _write_blocks(targets[member.name], reader.blocks(member.size))
            else:
                reader.skip(member.size)
    return targets


def _write_blocks(target: Path, blocks: Iterable[bytes]) -> None:
    """Write blocks to a new file, and check the free disk space at intervals. Raises OSError if there is not enough."""
    with target.open("xb") as file:
        POLICY.check_disk_space(target.parent)
        for block in blocks:
            file.write(block)
            if file.tell() % _FREE_INTERVAL < len(block):
                POLICY.check_disk_space(target.parent)


_MAX_MEMBERS = 256
#: Keys of extended headers that are ignored: times, owners, and attributes, but never names and sizes.
_HARMLESS = re.compile(rb"mtime|atime|ctime|uid|gid|uname|gname|comment|(SCHILY|LIBARCHIVE)\..*", re.DOTALL)


class NotTar(DamagedTar):
    """Error of a tar; `code` is a problem code of checkpoints."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def iterate_members(read: Callable[[int], bytes], skip: Callable[[int], None]) -> Iterator[TarInfo]:
    """Yield the header of every regular file of a tar in order.

    `read(n)` returns n bytes of the archive, or fewer at its end. The caller must read or skip the `size` bytes of each
    member before requesting the next one; the padding is skipped here. Only zeros may follow the last member. Raises
    DamagedTar, which is NotTar for links, devices, and other special members.
    """
    for _ in range(_MAX_MEMBERS):
        info = read_header(read)
        if info is None:
            remaining_zeros = 1024 * 1024  # Programs add zeros after the last member.
            while block := read(BLOCKSIZE):
                remaining_zeros -= len(block)
                if block.count(0) != len(block) or remaining_zeros < 0:
                    raise NotTar("trailing_data", "data follows the end of the archive")
            return
        info.name = name = info.name.removeprefix("./")
        if info.type in (XHDTYPE, XGLTYPE):
            for key, _ in pax_records(read_extended(info, read)):
                if not _HARMLESS.fullmatch(key):
                    text = key.decode("ascii", "replace")
                    raise NotTar("member_kind", f"an extended header changes a member's {text}")
        elif info.isdir():
            if info.size:
                raise NotTar("member_kind", f"the folder {name!r} has content")
        elif info.type not in (REGTYPE, AREGTYPE):
            raise NotTar("member_kind", f"{name!r} is a link, a device, a sparse file, or another special member")
        elif name.endswith("/"):
            raise NotTar("member_kind", f"{name!r} has a folder's name but is a file")
        else:
            yield info
            skip(-info.size % BLOCKSIZE)
    raise NotTar("too_many_files", f"the archive has more than {_MAX_MEMBERS} members")
