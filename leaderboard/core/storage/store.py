"""Where bytes are kept: content-addressed files under `var/store`, judgements and what tells of them apart under
`var/private`.

No URL maps to either folder. A file is written aside, synced and renamed, sent to where other hosts find it
(`shared`), and only then named by a row, so a crash leaves at most a file without a row, never a row without its file.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from django.conf import settings

from evaluation.core.files import sha256_of
from leaderboard.core.storage import shared
from leaderboard.core.storage.disk import disk_errors
from leaderboard.core.storage.shared import PARTIAL


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
    #: BM25's indexes of corpora: folders, by checksums of what they are built from.
    WORD_INDEXES = "store/word-indexes"
    #: Copies of those judgements that everyone may see, for processes that have no private storage.
    OPEN_QRELS = "store/open-qrels"
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


def local_path(area: Area, sha256: str) -> Path:
    """`path_of` for reading: the content is brought to this host where it lies elsewhere (`shared`)."""
    return shared.local(path_of(area, sha256))


def put(area: Area, source: Path, sha256: str | None = None) -> str:
    """Copy the file into the store under the sha256 of its bytes (or a given one) and return that."""
    key = sha256 or sha256_of(source)
    target = path_of(area, key)
    if not touch_existing(target):
        with atomic_write(target) as temporary, source.open("rb") as reader, temporary.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
    shared.send(target)
    return key


def put_by_link(area: Area, source: Path, sha256: str | None = None) -> str:
    """`put` for a file that nobody changes any more: the store gets a link to its bytes, and nothing is copied.

    Where the store is on another disk, it is copied after all.
    """
    key = sha256 or sha256_of(source)
    target = path_of(area, key)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sync(source)
    try:
        os.link(source, target)
    except OSError:  # it is there already, or cannot be linked to here
        return put(area, source, key)
    touch_existing(target)
    return key


def remove(area: Area, sha256: str) -> None:
    """Delete the content where it exists."""
    path_of(area, sha256).unlink(missing_ok=True)


@contextmanager
def work_folder(prefix: str) -> Iterator[Path]:
    """A folder that only we can read, for what is written on the way; gone when the block ends."""
    work = Path(settings.VAR) / "work"
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=work, prefix=f"{prefix}-") as folder:
        yield Path(folder)


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that becomes it, whole and synced, when the block ends well.

    Raises leaderboard.core.storage.disk.DiskFull where there is no room, and then leaves nothing behind.
    """
    with disk_errors(target.parent):
        new_folder = not target.parent.exists()
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with temporary_file(target.parent) as temporary:
            yield temporary
            sync(temporary)
            temporary.rename(target)
            sync(target.parent)
            if new_folder:  # its own name is in the folder above
                sync(target.parent.parent)


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """An empty file in the folder, gone when the block ends unless it was renamed: on a full disk too.

    `tempfile.NamedTemporaryFile` stays there when closing it fails, until nobody refers to it.
    """
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=PARTIAL)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def touch_existing(target: Path) -> bool:
    """Whether the content is there already. It is then as if it had been written now.

    The sweep removes old files that no row names, and the caller's row is yet to come; whoever wrote it may have got no
    further than its name.
    """
    try:
        os.utime(target)
    except FileNotFoundError:
        return False
    sync(target.parent)
    sync(target.parent.parent)
    return True


def sync(path: Path) -> None:
    """Have the disk keep the file, or the names in a folder, through a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
