"""Validate a checkpoint without loading anything, and rebuild it from JSON of our own writing and bytes of weights."""

import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from evaluation.checkpoints.archives import extract
from evaluation.checkpoints.description import FILE_NAME, CheckpointDescription, CheckpointKind, Plan
from evaluation.checkpoints.files import ModelFiles, walk
from evaluation.checkpoints.findings import Findings, attempt
from evaluation.checkpoints.kinds import Requirements, make_plan
from evaluation.checkpoints.limits import CheckpointAllowance
from evaluation.checkpoints.weights import NotSafetensors, Tensor, blocks, header_of
from evaluation.core.problems import InvalidContent, Problem, Report
from evaluation.core.writing import appearing

Kinds = CheckpointKind | Collection[CheckpointKind] | None


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a checkpoint: `plan` tells how to rebuild it, and is None if `report` has errors."""

    report: Report
    plan: Plan | None

    @property
    def valid(self) -> bool:
        """Whether it may be rebuilt."""
        return self.plan is not None


def validate_folder(source: Path, wanted: Kinds = None, pooling: str = "") -> Validation:
    """Validate a folder as people upload it.

    Args:
        source: The folder.
        wanted: The kind, or the kinds, that would do; None for any.
        pooling: Combination of the tokens' outputs if the files name none: "max" or "sum" for SPLADE, "mean", "cls",
            "max" or "lasttoken" for a dense encoder.

    Raises:
        OSError: The disk has a fault. The content of files never raises.
    """
    return _validate(walk(source, Findings()), wanted, pooling, source.name)


def validate_archive(
    path: Path, scratch: Path, wanted: Kinds = None, pooling: str = "", without_weights: bool = False
) -> Validation:
    """Validate an archive as `validate_folder` does, extracted into `scratch` until the checkpoint is rebuilt.

    `without_weights`: headers are enough for files of weights; then a remark says so, and it cannot be rebuilt.
    """
    findings = Findings()
    stored = extract(path, scratch, findings)
    allowance = CheckpointAllowance(without_weights)
    files = ModelFiles(scratch, frozenset(stored), findings, "", allowance, stored)
    return _validate(files, wanted, pooling, path.name)


def _validate(source: ModelFiles, wanted: Kinds, pooling: str, name: str) -> Validation:
    """Return the verdict on the files of a folder, with the findings so far."""
    kinds = [wanted] if isinstance(wanted, CheckpointKind) else wanted or ()
    requirements, findings = Requirements(frozenset(kinds), pooling, name), source.findings
    plan = attempt(lambda: make_plan(_top(source), requirements)) if source.names else None
    if findings.has("adapter") and not any(name.endswith(".safetensors") for name in source.names):
        findings.at("").refuse("adapter", "an adapter alone needs a model from elsewhere")
    if plan is None and not findings.refused:  # every refusal needs a reason
        findings.at("").refuse("unknown_kind", "what it is cannot be told from its files")
    if source.allowance.left_out:
        findings.at("").remark("weights_not_sent", "of the weights only their headers were read")
    report = findings.report()
    if plan is None or not report.valid:
        return Validation(report, None)
    parameters = sum(tensor.parameters for tensor in plan.tensors)
    return Validation(report, plan.described(parts=tuple(plan.parts), parameters=parameters))


def _top(source: ModelFiles) -> ModelFiles:
    """Return the folder that holds the model, if a folder in a folder was sent."""
    for _ in range(2):
        tops = {name.partition("/")[0] for name in source.names}
        if len(tops) != 1 or any("/" not in name for name in source.names):
            break
        source = source.within(tops.pop())
    return source


_COMPRESSION_LEVEL = 3


def rebuild(
    validation: Validation, target: Path, progress: Callable[[float], None] = lambda share: None
) -> CheckpointDescription:
    """Write the checkpoint into `target`, which must not exist or be empty, and sync it to disk.

    The validated files must be unchanged. Raises InvalidContent if they were not valid, OSError for the disk.
    """
    plan = validation.plan
    if plan is None:
        raise InvalidContent(validation.report)
    target.mkdir(exist_ok=True)
    if any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty")
    total = max(1, sum(tensor.size for tensor in plan.tensors))
    written, sums, identity = 0, {}, hashlib.sha256()
    for name, content in sorted(_files(plan).items()):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for block in content:
                file.write(block)
                digest.update(block)
                written += len(block)
                progress(min(1.0, written / total))
        sums[name] = digest.hexdigest()
        identity.update(name.encode() + b"\0" + digest.digest())
    described = replace(plan.description, size=written, sha256=identity.hexdigest(), files=sums)
    described.write(target)
    for path in (*target.rglob("*"), target):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return described


def _files(plan: Plan) -> dict[str, Iterable[bytes]]:
    """Return the bytes of every file by its name."""
    files: dict[str, Iterable[bytes]] = {}
    for folder, part in plan.parts.items():
        placed = part.under(folder)
        for name, value in placed.json.items():
            text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
            files[name] = [text.encode("utf-8") + b"\n"]
        files |= {name: _weights(tensors) for name, tensors in placed.weights.items()}
    return files


def _weights(tensors: Mapping[str, Tensor]) -> Iterator[bytes]:
    """Yield a file of weights: our header, and the bytes of every tensor in the order of the names."""
    ordered = dict(sorted(tensors.items()))
    yield header_of(ordered)
    for tensor in ordered.values():
        try:
            yield from blocks(tensor)
        except NotSafetensors as error:
            raise OSError(f"{tensor.path.name} changed after it was validated: {error}") from error


def open_checkpoint(
    folder: Path, wanted_kinds: Iterable[str | CheckpointKind], scratch: Path, pooling: str = ""
) -> Path:
    """Rebuild the checkpoint in a model's folder or archive, and return its new folder inside `scratch`.

    A folder that was already rebuilt is returned unchanged. Raises InvalidContent if the model cannot be used or is of
    another kind, and FileNotFoundError.
    """
    kinds = frozenset(CheckpointKind(kind) for kind in wanted_kinds)
    if (folder / FILE_NAME).is_file():
        described = CheckpointDescription.read(folder)
        if kinds and kinds.isdisjoint(described.kinds):
            message = f"{folder.name} is a {described.kind}; wanted is {' or '.join(sorted(kinds))}"
            raise InvalidContent.of(
                Problem("error", "wrong_kind", 1, message, "Give a checkpoint of that kind.")
            )
        return folder
    if folder.is_file():
        extracted = Path(tempfile.mkdtemp(prefix="archive-", dir=scratch))
        validation = validate_archive(folder, extracted, kinds, pooling)
    else:
        validation = validate_folder(folder, kinds, pooling)
    target = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=scratch))
    rebuild(validation, target)
    return target


def write_archive(rebuilt: Path, out: Path, headers_alone: bool = False) -> None:
    """Write a rebuilt folder as tar.zst to `out`, which appears only when it is complete.

    `headers_alone` leaves the weights out, for a check before all of them are sent. Names, order, times, and owners are
    fixed, so that the same model gives the same bytes. The description is left out, because the receiver makes its own.
    Numbers are as GNU tar writes them: plain ustar ends at 8 GiB a file.
    """
    compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, write_checksum=True)
    with (
        appearing(out) as unfinished,
        unfinished.open("wb") as file,
        compressor.stream_writer(file, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(path for path in rebuilt.rglob("*") if path.is_file() and path.name != FILE_NAME):
            info = tarfile.TarInfo(path.relative_to(rebuilt).as_posix())
            info.size = path.stat().st_size
            with path.open("rb") as content:
                if headers_alone and path.suffix == ".safetensors":
                    info.size = 8 + int.from_bytes(content.read(8), "little")
                    content.seek(0)
                archive.addfile(info, content)
