"""The bytes of uploads that come in pieces: one file each under `store/pieces`, named by us, one writer at a time.

What counts is what was synced: `append_blocks` says after every sync how far that is, and cuts off what an earlier
writer that was killed left beyond it. A full disk is leaderboard.core.storage.disk.DiskFull.
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

#: After so many bytes they are synced and counted: what a power failure in the middle costs.
SYNC_EVERY = 16 * 1024 * 1024


class UploadInUse(Exception):
    """Somebody else writes to the file, or reads it for a submission or a backup."""


class UploadTooLong(Exception):
    """More bytes came than were announced."""


def folder() -> Path:
    """Where the files lie: on the store's own disk, so that a link puts one into the store."""
    return Path(settings.VAR) / "store" / "pieces"


def is_identifier(text: str) -> bool:
    """Whether an upload can be called so: 32 hexadecimal digits."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def path_of(identifier: str) -> Path:
    """Return the path of an upload's file. Raises ValueError for anything but an identifier that we made."""
    if not is_identifier(identifier):
        raise ValueError("not an upload's identifier")
    return folder() / identifier


def create_file(identifier: str) -> None:
    """Create an empty file, which survives a crash."""
    path = path_of(identifier)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    sync(path.parent)


@contextmanager
def lock_file(identifier: str, *, shared: bool = False) -> Iterator[BinaryIO]:
    """Lock and open a file while the block lasts; with `shared`, others may read it too.

    The lock is the process's: it ends with it, however it ends. Raises UploadInUse, and FileNotFoundError where it is
    gone.
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
    file: BinaryIO, start: int, limit: int, blocks: Iterable[bytes], synced: Callable[[int], None]
) -> int:
    """Write the blocks from `start` on, no byte at or beyond `limit`; returns where the file ends then.

    `synced` is told how far the file is safe, every SYNC_EVERY bytes and at the end. Before the first of so many the
    disk is asked for room: others write to it meanwhile. Raises UploadTooLong, after what fits, and DiskFull.
    """
    file.truncate(start)
    file.seek(start)
    at = safe = start
    too_long = False
    try:
        for block in blocks:
            if at == safe:
                require_free_space(folder(), min(SYNC_EVERY, limit - at))
            too_long = at + len(block) > limit
            left = memoryview(block)[: limit - at]
            at += len(left)
            with disk_errors(folder()):
                while left:  # an unbuffered file may take less at a time
                    left = left[file.write(left) :]
            if too_long:
                break
            if at - safe >= SYNC_EVERY:
                os.fsync(file.fileno())
                safe = at
                synced(safe)
    except OSError:  # a full disk: what was counted stays, the rest makes room
        with suppress(OSError):
            file.truncate(safe)
        raise
    os.fsync(file.fileno())
    synced(at)
    if too_long:
        raise UploadTooLong
    return at


def remove_file(identifier: str, *, named: bool = True) -> None:
    """Delete the file where there is one; while a backup runs one that a row may have `named` is left to the sweep."""
    if named and deletion_lock.deletions_are_paused():
        return
    path_of(identifier).unlink(missing_ok=True)
