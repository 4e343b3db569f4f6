"""Collections that a curator has uploaded or downloaded, stored until they are imported or a day old."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.store import Area, local_path, put, remove, work_folder


class StagedFile(NamedTuple):
    """A staged file, with its checksum, the name that messages show, and the value of its area."""

    sha256: str
    name: str
    area: str

    @classmethod
    def build(cls, sha256: str, name: str, area: Area) -> Self:
        """Return a staged file. Its name is cut to the last 60 characters, which every file system accepts."""
        return cls(sha256, name[-60:].rpartition("/")[2], area.value)

    @property
    def path(self) -> Path:
        """Path of the file, which may be on shared storage. It does not exist if the file was deleted."""
        return local_path(Area(self.area), self.sha256)

    @contextmanager
    def open(self) -> Iterator[Path]:
        """Yield a temporary path to the file, with the file's name."""
        with work_folder("staged") as folder:
            path = folder / self.name
            path.symlink_to(self.path)
            yield path

    def discard(self) -> None:
        """Delete the file now. During a backup, the sweep deletes it later."""
        if not deletion_lock.deletions_are_paused():
            remove(Area(self.area), self.sha256)


def stage_file(path: Path, name: str) -> StagedFile:
    return StagedFile.build(put(Area.STAGED, path), name, Area.STAGED)


def store_download(folder: Path) -> str:
    """Store a downloaded folder as a zip, uncompressed because imports refuse files with high compression ratios.

    Returns its key in `Area.DOWNLOADS`.
    """
    with work_folder("pack") as work:
        target = work / "collection.zip"
        with zipfile.ZipFile(target, "w") as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(folder))
        return put(Area.DOWNLOADS, target)
