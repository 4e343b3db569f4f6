"""Encoded shards in a folder: `<key>/00000`, `00001` and so on, beside the rows that name them.

The folder is the shared storage itself, or what a machine has of a storage elsewhere (`embedding_storage`). A shard
comes out of a sandbox, so it is looked at as a stranger's before it is moved here, and takes its name whole.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from evaluation.engines.base import shard_name
from evaluation.execution.outcome import is_plain_file
from leaderboard.core.storage.store import Area, sync
from submissions.sandbox.processes import remove

#: A folder younger than this, in seconds, may be about to be named by a row.
GRACE = 24 * 3600


_FOLDER = "django.core.files.storage.FileSystemStorage"


class UnusableOutput(RuntimeError):
    """A child left something else than plain files: a link, a device, nothing at all."""


def is_remote() -> bool:
    """Whether embeddings are kept elsewhere than in a folder. Asking loads no client of any storage."""
    return str(settings.STORAGES["embeddings"]["BACKEND"]) != _FOLDER


def embeddings_root() -> Path:
    """The folder of all embeddings on this machine."""
    return Path(settings.EMBEDDINGS_FOLDER or Path(settings.VAR) / Area.EMBEDDINGS.value)


def embeddings_folder(key: str) -> Path:
    """Where the shards of an encoding lie."""
    return embeddings_root() / key


def shard_folder(key: str, number: int) -> Path:
    """Where a shard of an encoding lies."""
    return embeddings_folder(key) / shard_name(number)


def move_into_place(source: Path, target: Path) -> None:
    """Move a folder, synced, under a name that it takes whole. What has the name already makes way."""
    with arriving(source, target.parent.parent) as folder:
        take_name(folder, target)
    sync(target.parent)


@contextmanager
def arriving(source: Path, root: Path) -> Iterator[Path]:
    """Move a folder, synced, below `root`, where it can take its name at once. Without a name it goes in the end."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = Path(tempfile.mkdtemp(prefix=".arriving-", dir=root))
    folder = aside / "folder"
    try:
        try:
            source.rename(folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copytree(source, folder)
        for path in (*folder.rglob("*"), folder):
            sync(path)
        yield folder
    finally:
        try:
            aside.rmdir()
        except OSError:  # it did not take its name, or took another's
            remove(aside)


def take_name(folder: Path, target: Path) -> None:
    """Give what is arriving its name, in no time. Hold the encoding's row, or a lock: only one may do that at once."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if target.exists():
        target.rename(folder.with_name("replaced"))
    folder.rename(target)


def remove_other_files(key: str, shards: int) -> None:
    """Remove what is no shard: a child that searches may write beside those that it reads."""
    known = {shard_name(number) for number in range(shards)}
    for path in list(embeddings_folder(key).iterdir()):
        if path.name not in known:
            remove(path)


def mark_used(key: str) -> None:
    """Remember that the embeddings were used now: what was used longest ago goes first."""
    os.utime(embeddings_folder(key))


def last_used(key: str) -> float:
    """When the embeddings were used, in seconds since the epoch; 0 where there are none."""
    folder = embeddings_folder(key)
    return folder.stat().st_mtime if folder.exists() else 0.0


def remove_embeddings(key: str) -> None:
    """Delete an encoding's folder; of a removal that is cut off, nothing is left under the name."""
    folder = embeddings_folder(key)
    if folder.exists():
        leaving = folder.with_name(f".leaving-{key}")
        folder.rename(leaving)
        shutil.rmtree(leaving, ignore_errors=True)


def list_old_folders() -> Iterator[Path]:
    """The folders that have lain here for longer than a transaction can be open."""
    limit = time.time() - GRACE
    for folder in list_folders():
        with suppress(FileNotFoundError):  # another worker of this host was quicker
            if folder.stat().st_mtime < limit:
                yield folder


def list_folders() -> list[Path]:
    """The folders that lie here, of encodings and of what is on its way."""
    return (
        [path for path in embeddings_root().iterdir() if path.is_dir()] if embeddings_root().exists() else []
    )


def checked_size(folder: Path) -> int:
    """Bytes of the folder's files. Raises UnusableOutput for anything but plain files in plain folders."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise UnusableOutput(f"{folder.name} is no folder")
    size = 0
    for entry in list(os.scandir(folder)):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            size += checked_size(path)
        elif is_plain_file(path):
            size += path.stat().st_size
        else:
            raise UnusableOutput(f"{path.name!r} is no plain file")
    return size
