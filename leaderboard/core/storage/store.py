"""Content-addressed files below `var/store`; judgments and data derived from them are below `var/private`.

No URL maps to either folder. A file is written to a temporary name, synced, renamed, and uploaded to shared storage
(`shared`) before a row references it, so that a crash leaves at most a file without a row.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from django.conf import settings

from evaluation.core.files import file_sha256
from leaderboard.core.storage import shared
from leaderboard.core.storage.disk import disk_errors
from leaderboard.core.storage.shared import PARTIAL


class Area(StrEnum):
    """Kinds of stored content."""

    FILES = "store/files"
    RUNS = "store/runs"
    UPLOADS = "store/uploads"
    INDEXES = "store/indexes"
    TOP_DOCUMENTS = "store/top-documents"
    EXCERPTS = "store/excerpts"
    CHECKPOINTS = "store/checkpoints"
    EMBEDDINGS = "store/embeddings"
    PROFILES = "store/profiles"
    #: BM25 indexes of corpora: folders, named by checksums of their inputs.
    WORD_INDEXES = "store/word-indexes"
    #: Copies of public judgments, for processes without private storage.
    OPEN_QRELS = "store/open-qrels"
    #: Downloaded public collections that a curator has not imported yet.
    DOWNLOADS = "store/downloads"
    QRELS = "private/qrels"
    CURATION = "private/curation"
    #: Uploaded collections that a curator has not imported yet. They may contain hidden judgments.
    STAGED = "private/staged"


_PRIVATE = (Area.QRELS, Area.CURATION, Area.STAGED)


def path_of(area: Area, sha256: str) -> Path:
    """Return the path of the content with a checksum.

    Raises ValueError unless the checksum has 64 hexadecimal digits, and PermissionError for private content in a
    process without access to it.
    """
    if area in _PRIVATE and not settings.PRIVATE_STORAGE:
        raise PermissionError(f"this process has no access to {area.value}")
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise ValueError("not a sha256")
    return Path(settings.VAR) / area.value / sha256[:2] / sha256


def local_path(area: Area, sha256: str) -> Path:
    """Return `path_of` for reading, after downloading content that is on shared storage only."""
    return shared.ensure_local(path_of(area, sha256))


def put(area: Area, source: Path, sha256: str | None = None) -> str:
    """Copy a file into the store and return its key: the SHA-256 of its bytes, or the given one."""
    key = sha256 or file_sha256(source)
    target = path_of(area, key)
    if not touch_existing(target):
        with atomic_write(target) as temporary, source.open("rb") as reader, temporary.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
    shared.send(target)
    return key


def put_by_link(area: Area, source: Path, sha256: str | None = None) -> str:
    """Store a file that no longer changes by a hard link, or by a copy if the store is on another disk."""
    key = sha256 or file_sha256(source)
    target = path_of(area, key)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sync(source)
    try:
        os.link(source, target)
    except OSError:  # It exists already, or cannot be linked.
        return put(area, source, key)
    touch_existing(target)
    return key


def remove(area: Area, sha256: str) -> None:
    path_of(area, sha256).unlink(missing_ok=True)


@contextmanager
def work_folder(prefix: str) -> Iterator[Path]:
    """Yield a private temporary folder that is deleted when the block ends."""
    work = Path(settings.VAR) / "work"
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=work, prefix=f"{prefix}-") as folder:
        yield Path(folder)


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a temporary file that is synced and renamed to `target` if the block succeeds.

    Raises leaderboard.core.storage.disk.DiskFull if there is no space, and leaves no file behind.
    """
    with disk_errors(target.parent):
        new_folder = not target.parent.exists()
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with temporary_file(target.parent) as temporary:
            yield temporary
            sync(temporary)
            temporary.rename(target)
            sync(target.parent)
            if new_folder:  # The parent folder contains the new folder's name.
                sync(target.parent.parent)


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Yield an empty file that is deleted when the block ends, unless it was renamed.

    `tempfile.NamedTemporaryFile` keeps the file if closing it fails, as on a full disk.
    """
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=PARTIAL)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def touch_existing(target: Path) -> bool:
    """Return whether the content exists, and mark it as just written.

    The sweep deletes old files without a row, and the caller's row does not exist yet. The first writer may not have
    synced the folders, so this function does.
    """
    try:
        os.utime(target)
    except FileNotFoundError:
        return False
    sync(target.parent)
    sync(target.parent.parent)
    return True


def sync(path: Path) -> None:
    """Fsync a file, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
