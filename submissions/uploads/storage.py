"""Files of chunked uploads below `store/pieces`, with generated names and one writer at a time.

Only synced bytes count: `append_blocks` reports the length after each sync and truncates bytes beyond it that a killed
writer left. A full disk raises leaderboard.core.storage.disk.DiskFull.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.disk import disk_errors, require_free_space
from leaderboard.core.storage.store import sync

#: Number of bytes between two syncs, which a power failure can lose at most.
SYNC_EVERY = 16 * 1024 * 1024


class UploadInUse(Exception):
    """Error raised when another process writes the file, or reads it for a submission or a backup."""


class UploadTooLong(Exception):
    """Error raised when an upload receives more bytes than it announced."""


def folder() -> Path:
    """Return the folder of the files, on the disk of the store, so that files can be hard-linked into it."""
    return Path(settings.VAR) / "store" / "pieces"


def is_identifier(text: str) -> bool:
    """Return whether the text is an upload id: 32 hexadecimal digits."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def path_of(identifier: str) -> Path:
    """Return the path of an upload's file. Raises ValueError unless the id is valid."""
    if not is_identifier(identifier):
        raise ValueError("not an upload's identifier")
    return folder() / identifier


def create_file(identifier: str) -> None:
    """Create an empty file that survives a crash. Raises FileExistsError if it exists."""
    path = path_of(identifier)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    sync(path.parent)


@contextmanager
def lock_file(identifier: str, *, shared: bool = False) -> Iterator[BinaryIO]:
    """Lock an upload's file and yield it, open for reading and writing, or only for reading if `shared`.

    Several processes may hold a shared lock. The operating system releases the lock if the process dies. Raises
    UploadInUse if the file is locked, and FileNotFoundError if it was removed.
    """
    with path_of(identifier).open("rb" if shared else "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UploadInUse from error
        if os.fstat(file.fileno()).st_nlink == 0:  # removed between opening and locking it
            raise FileNotFoundError(identifier)
        yield file


def append_blocks(
    file: BinaryIO, start: int, limit: int, blocks: Iterable[bytes], on_sync: Callable[[int], None]
) -> int:
    """Write the blocks after the first `start` bytes, up to `limit` bytes in all; return the file's new length.

    Bytes beyond `start` are removed first. `on_sync` is called with the synced length every SYNC_BYTES and at the end.
    Free disk space is checked at the same intervals, since other uploads are written meanwhile. Raises UploadTooLong
    after writing what fits, and DiskFull.
    """
    file.truncate(start)
    file.seek(start)
    end = synced_end = start
    exceeds_limit = False
    try:
        for block in blocks:
            if end == synced_end:
                require_free_space(folder(), min(SYNC_EVERY, limit - end))
            exceeds_limit = end + len(block) > limit
            remaining_view = memoryview(block)[: limit - end]
            end += len(remaining_view)
            with disk_errors(folder()):
                while remaining_view:  # an unbuffered file may write fewer bytes
                    remaining_view = remaining_view[file.write(remaining_view) :]
            if exceeds_limit:
                break
            if end - synced_end >= SYNC_EVERY:
                os.fsync(file.fileno())
                synced_end = end
                on_sync(synced_end)
    except OSError:  # a full disk: synced bytes remain, the rest is discarded
        with suppress(OSError):
            file.truncate(synced_end)
        raise
    os.fsync(file.fileno())
    on_sync(end)
    if exceeds_limit:
        raise UploadTooLong
    return end


def remove_file(identifier: str, *, named: bool = True) -> None:
    """Delete the file if it exists.

    While a backup runs, files that may have a row in the backup are not deleted; the sweep removes them later.
    """
    if named and deletion_lock.deletions_are_paused():
        return
    path_of(identifier).unlink(missing_ok=True)
