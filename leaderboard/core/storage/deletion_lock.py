"""Nothing that a copy of the database may name is deleted from the store while a backup copies its files.

A backup keeps a mark in the store, which every process sees that has the store. Whoever would delete a file first asks
which rows name it, then for the mark. Where there is one the file stays: no row names it any more, so a later sweep
takes it.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from leaderboard.core.storage.store import PARTIAL

#: How long a mark counts, in seconds: that of a backup which was killed is nobody's concern for ever.
LONGEST = 24 * 3600
#: What begins so is in no backup.
_MARK = f"{PARTIAL}backup-"


@contextmanager
def pause_deletions() -> Iterator[None]:
    """While the block runs nobody deletes stored files; of a block that takes longer, for the first LONGEST seconds.

    Whoever found none before it began had by then seen, committed, that no row names the file: no copy made since does.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for mark in folder.glob(f"{_MARK}*"):
        if not _counts(mark):
            mark.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_MARK, delete=False) as file:
        mark = Path(file.name)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def deletions_are_paused() -> bool:
    """Whether a backup runs. To be asked after the rows: one that begins between the two has copied older ones."""
    return any(_counts(mark) for mark in _folder().glob(f"{_MARK}*"))


def _folder() -> Path:
    return Path(settings.VAR) / "store"


def _counts(mark: Path) -> bool:
    """Not where it is old, nor where it comes from a clock that has been set back since."""
    with suppress(FileNotFoundError):
        return abs(time.time() - mark.stat().st_mtime) < LONGEST
    return False
