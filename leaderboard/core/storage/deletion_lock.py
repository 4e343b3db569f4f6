"""A lock that keeps stored files from being deleted while a backup copies them.

A backup creates a mark in the store, which every process with access to the store sees. Code that deletes a file first
checks that no row names it, then checks for the mark. If there is one, the file remains until a later sweep.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from leaderboard.core.storage.store import PARTIAL

#: Seconds after which a mark is ignored, so that the mark of a killed backup does not block deletions
#: forever.
MAX_PAUSE = 24 * 3600
#: Prefix of marks; backups skip files that begin with it.
_MARK = f"{PARTIAL}backup-"


@contextmanager
def pause_deletions() -> Iterator[None]:
    """Prevent deletions from the store during the block, for at most MAX_PAUSE seconds.

    A process that saw no mark had already checked that no committed row names its file. Later copies of the database
    therefore do not name it either.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for mark in folder.glob(f"{_MARK}*"):
        if not _is_valid(mark):
            mark.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_MARK, delete=False) as file:
        mark = Path(file.name)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def deletions_are_paused() -> bool:
    """Return whether a backup is running.

    Call this after checking that no row needs the file. A backup that begins after this call copies a database in which
    no row needs it either.
    """
    return any(_is_valid(mark) for mark in _folder().glob(f"{_MARK}*"))


def _folder() -> Path:
    return Path(settings.VAR) / "store"


def _is_valid(mark: Path) -> bool:
    """Return whether a mark is valid: neither old nor from a clock that was set back since."""
    with suppress(FileNotFoundError):
        return abs(time.time() - mark.stat().st_mtime) < MAX_PAUSE
    return False
