"""Rebuild a valid checkpoint in a new folder: JSON of our own writing, and bytes of weights."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from evaluation.checkpoints import description
from evaluation.checkpoints.archives import validate_archive
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.plan import ModelPart, Plan
from evaluation.checkpoints.safetensors import NotSafetensors, Tensor, blocks, header_of
from evaluation.checkpoints.validation import Validation, validate_folder
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem


def rebuild(
    validation: Validation, target: Path, progress: Callable[[float], None] = lambda share: None
) -> CheckpointDescription:
    """Write the checkpoint into `target`, which must not exist or be empty; everything is on the disk when it returns.

    What was validated has to be as it was. Raises InvalidContent where it was not valid, OSError for the disk.
    """
    plan = validation.plan
    if plan is None:
        raise InvalidContent(validation.report)
    target.mkdir(exist_ok=True)
    if any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty")
    total = max(1, sum(_size(part) for part in plan.parts.values()))
    written, digests = 0, {}
    for name, content in _files(plan):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for block in content:
                file.write(block)
                digest.update(block)
                written += len(block)
                progress(min(1.0, written / total))
        digests[name] = digest.digest()
    sums = {name: digest.hex() for name, digest in digests.items()}
    described = plan.describe(written, _identity(digests), sums)
    described.write(target)
    _sync(target)
    return described


def open_checkpoint(
    folder: Path, wanted_kinds: Iterable[str | CheckpointKind], scratch: Path, pooling: str = ""
) -> Path:
    """Rebuild the checkpoint in a model's folder or archive, and return its new folder inside `scratch`.

    A folder that was already rebuilt is returned unchanged. Raises InvalidContent if the model cannot be used or is of
    another kind, and FileNotFoundError.
    """
    kinds = frozenset(CheckpointKind(kind) for kind in wanted_kinds)
    if (folder / description.FILE_NAME).is_file():
        described = CheckpointDescription.read(folder)
        if kinds and kinds.isdisjoint(described.kinds):
            message = f"{folder.name} is a {described.kind}; wanted is {' or '.join(sorted(kinds))}"
            raise InvalidContent.of(
                Problem("error", "wrong_kind", 1, message, "Give a checkpoint of that kind.")
            )
        return folder
    if folder.is_file():
        validation = validate_archive(
            folder, Path(tempfile.mkdtemp(prefix="archive-", dir=scratch)), kinds or None, pooling
        )
    else:
        validation = validate_folder(folder, kinds or None, pooling)
    target = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=scratch))
    rebuild(validation, target)
    return target


def _files(plan: Plan) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Every file's name and bytes, in the order of the names."""
    files: dict[str, Iterable[bytes]] = {}
    for folder, part in plan.parts.items():
        placed = part.under(folder)
        files |= {name: [_text(value)] for name, value in placed.json.items()}
        files |= {name: _weights(tensors) for name, tensors in placed.weights.items()}
    yield from sorted(files.items())


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8") + b"\n"


def _weights(tensors: Mapping[str, Tensor]) -> Iterator[bytes]:
    """A file of weights: our header, and the bytes of every tensor in the order of the names."""
    ordered = dict(sorted(tensors.items()))
    yield header_of(ordered)
    for tensor in ordered.values():
        try:
            yield from blocks(tensor)
        except NotSafetensors as error:
            raise OSError(f"{tensor.path.name} changed after it was validated: {error}") from error


def _size(part: ModelPart) -> int:
    return sum(t.end - t.start for tensors in part.weights.values() for t in tensors.values())


def _identity(digests: Mapping[str, bytes]) -> str:
    """The sha256 over the names and hashes of all files."""
    whole = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        whole.update(name.encode() + b"\0" + digest)
    return whole.hexdigest()


def _sync(target: Path) -> None:
    """Put all files, and their names, on the disk."""
    for path in (*target.rglob("*"), target):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
