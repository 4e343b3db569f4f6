"""Helpers for opening untrusted files and computing checksums."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, refusing symbolic links and special files.

    Raises OSError for anything but a regular file. Opening a FIFO or a device could block forever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_exactly(read: Callable[[int], bytes], size: int, block_size: int, error: Exception) -> Iterator[bytes]:
    """Yield the next `size` bytes in blocks of at most `block_size` bytes. Raises `error` if there are fewer."""
    while size:
        block = read(min(size, block_size))
        if not block:
            raise error
        size -= len(block)
        yield block


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
