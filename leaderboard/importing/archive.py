"""Taking a collection out of a zip: only its own files, under names of ours, within limits."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from evaluation.errors import InvalidContent
from leaderboard.importing.problems import problem

#: Entries a zip may have, most of which are ignored.
MOST_ENTRIES = 10_000
#: Expanded : stored. Text shrinks three- to tenfold. Applied above the floor, in bytes.
MOST_RATIO, RATIO_FLOOR = 50, 64 * 2**20
#: Free disk space, in bytes, that expanding leaves to others.
RESERVE = 2**30
_CHUNK = 2**20
_DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError)


class Archive:
    """A zip, opened. Raises InvalidContent for one that is damaged, encrypted, or has doubtful entries."""

    def __init__(self, path: Path) -> None:
        self.stored_bytes = path.stat().st_size
        try:
            self.file = zipfile.ZipFile(path)
        except _DAMAGED as error:
            raise _damaged(path.name, error) from error
        self.name = path.name
        self.written = 0
        entries = [info for info in self.file.infolist() if not info.is_dir()]
        if len(entries) > MOST_ENTRIES:
            raise InvalidContent.of(
                problem(
                    "too_many_files",
                    f"{path.name} has {len(entries):,} entries",
                    f"Pack only the collection's own files; {MOST_ENTRIES:,} are the limit.",
                )
            )
        self.entries = {info.filename: info for info in entries}
        if len(self.entries) != len(entries):
            raise InvalidContent.of(
                problem("repeated_name", f"{path.name} has two entries of one name", "Pack every file once.")
            )

    def extract(self, name: str, target: Path, progress: Callable[[float], None]) -> None:
        """Write the entry to `target`; `progress` gets the share written. Raises InvalidContent."""
        info = self.entries[name]
        if info.flag_bits & 0x1 or stat.S_ISLNK(info.external_attr >> 16):
            raise InvalidContent.of(
                problem(
                    "unusable_entry",
                    f"{name} is encrypted or a link",
                    "Pack regular files without a password.",
                )
            )
        try:
            with self.file.open(info) as reader, target.open("wb") as writer:
                while block := reader.read(_CHUNK):
                    self._bound(len(block), target)
                    writer.write(block)
                    progress(min(1.0, writer.tell() / max(1, info.file_size)))
        except _DAMAGED as error:
            raise _damaged(f"{self.name}: {name}", error) from error

    def _bound(self, more: int, target: Path) -> None:
        self.written += more
        if self.written > max(RATIO_FLOOR, MOST_RATIO * self.stored_bytes):
            raise InvalidContent.of(
                problem(
                    "expansion",
                    f"{self.name} expands to more than {MOST_RATIO} times its size",
                    "Text shrinks three- to tenfold. Import the folder instead, if this one is real.",
                )
            )
        if self.written % (64 * _CHUNK) < more and shutil.disk_usage(target.parent).free < RESERVE:
            raise InvalidContent.of(
                problem(
                    "no_space",
                    f"the disk is full while {self.name} expands",
                    "Free some space and try again.",
                )
            )


def _damaged(name: str, error: Exception) -> InvalidContent:
    return InvalidContent.of(
        problem(
            "damaged_zip",
            f"{name} cannot be read as a zip ({error})",
            "Pack it again and check it with `unzip -t`.",
        )
    )
