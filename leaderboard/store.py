"""Where bytes are kept: content-addressed files under `var/store`, judgements and what tells of them apart under
`var/private`.

No URL maps to either folder. A file is written aside, synced and renamed, and only then named by a row, so a crash
leaves at most a file without a row, never a row without its file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from django.conf import settings


class Area(StrEnum):
    """The kinds of stored content."""

    FILES = "store/files"
    RUNS = "store/runs"
    UPLOADS = "store/uploads"
    INDEXES = "store/indexes"
    TOP_DOCUMENTS = "store/top-documents"
    EXCERPTS = "store/excerpts"
    CHECKPOINTS = "store/checkpoints"
    EMBEDDINGS = "store/embeddings"
    PROFILES = "store/profiles"
    QRELS = "private/qrels"
    CURATION = "private/curation"


_PRIVATE = (Area.QRELS, Area.CURATION)


def path_of(area: Area, sha256: str) -> Path:
    """The path of the content with this checksum.

    Raises ValueError for anything but 64 hexadecimal digits, PermissionError for private content in a process that is
    to have none.
    """
    if area in _PRIVATE and not settings.PRIVATE_STORAGE:
        raise PermissionError(f"{area.value} is not for this process")
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise ValueError("not a sha256")
    return Path(settings.VAR) / area.value / sha256[:2] / sha256


def put(area: Area, source: Path, sha256: str | None = None) -> str:
    """Copy the file into the store under the sha256 of its bytes (or a given one) and return that."""
    key = sha256 or sha256_of(source)
    target = path_of(area, key)
    if target.exists():
        os.utime(target)  # the sweep removes old files that no row names, and the caller's row is yet to come
        return key
    with writing(target) as temporary, source.open("rb") as reader, temporary.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
    return key


def remove(area: Area, sha256: str) -> None:
    """Delete the content where it exists."""
    path_of(area, sha256).unlink(missing_ok=True)


@contextmanager
def writing(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that becomes it, whole and synced, when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
