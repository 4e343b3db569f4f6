"""A disk that is full: told from other faults, named in the log, and kept from being filled by uploads."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

#: No room on the device, none in the quota, and a file as large as the system lets this process write.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: PostgreSQL's code for the same on its own disk.
_POSTGRESQL_NO_ROOM = "53100"


class DiskFull(OSError):
    """There is no room under `filename`. A fault of ours: nobody who sends something can mend it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(errno.ENOSPC, "The disk is full", str(folder))


def is_disk_full(error: BaseException | None) -> bool:
    """Whether this, or what it came from, says that a disk is full: ours, or the database's."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        if getattr(error, "sqlstate", None) == _POSTGRESQL_NO_ROOM:
            return True
        if getattr(error, "sqlite_errorname", None) == "SQLITE_FULL":
            return True
        error = error.__cause__
    return False


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Raise DiskFull, which names the folder, for a system's error that names none."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFull) or not is_disk_full(error):
            raise
        raise DiskFull(folder) from error


def require_free_space(folder: Path, size: int = 0) -> None:
    """Raise DiskFull where `size` bytes more would leave less than DISK_RESERVE_BYTES free.

    The database is often on the same disk: uploads stop before it has to.
    """
    if shutil.disk_usage(folder).free - size < settings.DISK_RESERVE_BYTES:
        raise DiskFull(folder)
