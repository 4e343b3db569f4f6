"""Whether the static files have to be collected again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders


def fingerprint() -> str:
    """A hash over every file to collect, by path, size and time of change, and how it is to be stored."""
    digest = hashlib.sha256(repr(settings.STORAGES["staticfiles"]).encode())
    for finder in get_finders():
        for path, storage in sorted(finder.list([]), key=lambda item: str(item[0])):
            status = Path(storage.path(path)).stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class CollectedFiles:
    """What was collected last, remembered in a small file."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._wanted = fingerprint()

    def are_current(self) -> bool:
        """Whether nothing has changed since, and the collected files are there."""
        there = (Path(settings.STATIC_ROOT) / "staticfiles.json").exists()
        return there and self._memory.exists() and self._memory.read_text() == self._wanted

    def remember(self) -> None:
        """Say that the files as they are now have been collected."""
        self._memory.write_text(self._wanted)
