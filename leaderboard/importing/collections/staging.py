"""Collections that a curator has uploaded or downloaded, in private storage until they are imported or a day old."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.store import Area, path_of, put, remove, work_folder


class StagedFile(NamedTuple):
    """A staged file, with its checksum and the name that messages show."""

    sha256: str
    name: str

    def exists(self) -> bool:
        return path_of(Area.STAGED, self.sha256).is_file()

    @contextmanager
    def open(self) -> Iterator[Path]:
        """Yield a temporary path to the file, with the file's name."""
        with work_folder("staged") as folder:
            path = folder / self.name
            path.symlink_to(path_of(Area.STAGED, self.sha256))
            yield path

    def discard(self) -> None:
        """Delete the file now. During a backup, the sweep deletes it later."""
        if not deletion_lock.deletions_are_paused():
            remove(Area.STAGED, self.sha256)


def stage_file(path: Path, name: str) -> StagedFile:
    """Store a copy of a file. Its name is cut to the last 60 characters, which every file system accepts."""
    return StagedFile(put(Area.STAGED, path), name[-60:].rpartition("/")[2])


def stage_folder(folder: Path, name: str) -> StagedFile:
    """Store the files of a folder as a zip, uncompressed because imports refuse files with high compression ratios."""
    with work_folder("pack") as work:
        target = work / "collection.zip"
        with zipfile.ZipFile(target, "w") as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(folder))
        return stage_file(target, name)
