"""Encoded shards on shared storage: `store/embeddings/<key>/00000`, `00001` and so on, beside the rows that name them.

A shard comes out of a sandbox, so it is looked at as a stranger's before it is moved here, and takes its name whole.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from evaluation.engines.base import shard_name
from evaluation.execution.outcome import is_plain_file
from leaderboard.store import Area
from submissions.sandbox.watching import remove

#: A folder younger than this, in seconds, may be about to be named by a row.
GRACE = 24 * 3600


class UnusableOutput(RuntimeError):
    """A child left something else than plain files: a link, a device, nothing at all."""


def embeddings_folder(key: str) -> Path:
    """Where the shards of an encoding lie."""
    return _area() / key


def shard_folder(key: str, number: int) -> Path:
    """Where a shard of an encoding lies."""
    return embeddings_folder(key) / shard_name(number)


def keep_shard(source: Path, key: str, number: int) -> int:
    """Move an encoded shard in place, synced, and return its bytes. What lies there already, unnamed, makes way.

    Raises UnusableOutput. Nobody else may keep the same shard at the same time: hold the encoding's row.
    """
    size = _checked_size(source)
    target = shard_folder(key, number)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if target.exists():
        remove(target)
    for path in (*source.rglob("*"), source):
        _sync(path)
    source.rename(target)
    _sync(target.parent)
    return size


def forget_strangers(key: str, shards: int) -> None:
    """Remove what is no shard: a child that searches may write beside those that it reads."""
    known = {shard_name(number) for number in range(shards)}
    for path in list(embeddings_folder(key).iterdir()):
        if path.name not in known:
            remove(path)


def note_use(key: str) -> None:
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


def old_folders() -> Iterator[Path]:
    """The folders that have lain here for longer than a transaction can be open."""
    if not _area().exists():
        return
    limit = time.time() - GRACE
    for folder in _area().iterdir():
        if folder.is_dir() and folder.stat().st_mtime < limit:
            yield folder


def _checked_size(folder: Path) -> int:
    """Bytes of the folder's files. Raises UnusableOutput for anything but plain files in plain folders."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise UnusableOutput(f"{folder.name} is no folder")
    size = 0
    for entry in list(os.scandir(folder)):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            size += _checked_size(path)
        elif is_plain_file(path):
            size += path.stat().st_size
        else:
            raise UnusableOutput(f"{path.name!r} is no plain file")
    return size


def _area() -> Path:
    return Path(settings.VAR) / Area.EMBEDDINGS.value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
