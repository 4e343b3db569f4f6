"""Full disks: detection, error reports, and a reserve that uploads may not use."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

#: No space on the device, exceeded quota, and a file beyond the process's size limit.
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: PostgreSQL's code for a full disk on its own machine.
_POSTGRESQL_DISK_FULL = "53100"


class DiskFull(OSError):
    """The disk of the folder `filename` is full. Senders cannot fix this."""

    def __init__(self, folder: Path) -> None:
        super().__init__(errno.ENOSPC, "The disk is full", str(folder))


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or any of its causes, indicates a full disk of ours or of the database."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
            return True
        if getattr(error, "sqlstate", None) == _POSTGRESQL_DISK_FULL:
            return True
        if getattr(error, "sqlite_errorname", None) == "SQLITE_FULL":
            return True
        error = error.__cause__
    return False


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Convert operating system errors about a full disk to DiskFull, which names the folder."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFull) or not is_disk_full(error):
            raise
        raise DiskFull(folder) from error


def require_free_space(folder: Path, size: int = 0) -> None:
    """Raise DiskFull if `size` more bytes would leave less than DISK_RESERVE_BYTES free.

    The database is often on the same disk, so uploads must stop before it runs out of space.
    """
    if shutil.disk_usage(folder).free - size < settings.DISK_RESERVE_BYTES:
        raise DiskFull(folder)
