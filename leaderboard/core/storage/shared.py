"""Shared storage of several hosts, such as a bucket: `STORAGES["store"]`, if configured.

Files that workers on other hosts need are uploaded before a row references them, and downloaded on first read.
Judgments are never uploaded, except public ones: only the listed areas are shared.
"""

import fcntl
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.core.files.storage import storages

from leaderboard.core.storage.bundles import CONTENT, Bundle, BundleDamaged, Manifest

logger = logging.getLogger(__name__)

#: Shared areas of the store: corpora and queries, tables of document ids, runs, checkpoints, public judgments, and
#: downloaded collections.
AREAS = ("files", "indexes", "runs", "checkpoints", "open-qrels", "downloads")
#: Name prefix of incomplete files.
PARTIAL = ".partial-"
#: Seconds since the last use during which a copy is not deleted, because a child process may be about to open it.
GRACE = 24 * 3600


def is_shared() -> bool:
    """Return whether shared storage is configured, without importing its client."""
    return "store" in settings.STORAGES


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error means that the bucket is unavailable or denies access, which the user cannot fix."""
    exceptions = sys.modules.get("botocore.exceptions")
    return exceptions is not None and isinstance(error, (exceptions.BotoCoreError, exceptions.ClientError))


def is_shared_path(path: Path) -> bool:
    """Return whether a path belongs to a shared area and shared storage is configured."""
    return is_shared() and path.is_relative_to(_root()) and path.relative_to(_root()).parts[0] in AREAS


def send(path: Path) -> None:
    """Upload a file or folder of a shared area, unless the storage already has it.

    Raises the storage's errors; the upload does not exist then.
    """
    if not is_shared_path(path) or _bundle(path).is_intact():
        return
    manifest = Manifest.from_path(path)
    _bundle(path).send(path, manifest, _ignore)
    _bundle(path).publish(manifest)


def send_all() -> int:
    """Upload everything that the storage lacks and return the number of shared paths on this host."""
    paths = [path for area in AREAS for path in _paths(area)]
    for path in paths:
        send(path)
    return len(paths)


def ensure_local(path: Path) -> Path:
    """Return the path after downloading it if it is not on this host.

    If the storage lacks the file or has a damaged one, the path does not exist afterward. A damaged file is marked, so
    that hosts with a copy upload it again. Raises the storage's errors.
    """
    if not is_shared_path(path):
        return path
    if not _touch_copy(path):
        _root().mkdir(parents=True, exist_ok=True, mode=0o700)
        with (_root() / f"{PARTIAL}fetching").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # Wait until no other process of this host is downloading.
            if not _touch_copy(path):
                try:
                    _fetch(path)
                except BundleDamaged as error:
                    logger.error("%s is damaged on shared storage: %s", path.relative_to(_root()), error)
                    _bundle(path).mark_damaged()
    return path


def _touch_copy(path: Path) -> bool:
    """Return whether the path is on this host, and mark it as recently used."""
    with suppress(FileNotFoundError):
        os.utime(path)
        return True
    return False


def fetch_all() -> None:
    """Download everything on shared storage, for a backup. Raises the storage's errors."""
    for path in sent_paths():
        ensure_local(path)


def remove(path: Path, grace: float = 0.0) -> bool:
    """Delete a file or folder from shared storage and return whether it was deleted.

    Files that were written within the last `grace` seconds are skipped.
    """
    if not is_shared_path(path) or (grace and _bundle(path).last_written() > time.time() - grace):
        return False
    _bundle(path).remove()
    return True


def sent_paths() -> Iterator[Path]:
    """Yield the paths of complete and incomplete uploads."""
    for area in AREAS if is_shared() else ():
        for group in _folders(area):
            yield from (_root() / area / group / name for name in _folders(f"{area}/{group}"))


def trim_copies(max_bytes: int) -> int:
    """Delete the least recently used copies on this host until they fit into `max_bytes` bytes; return their number.

    Copies that were used within `GRACE` seconds or cannot be downloaded again are never deleted.
    """
    copies, sizes, count = {}, {}, 0
    for path in (path for area in AREAS for path in _paths(area)):
        with suppress(FileNotFoundError):  # Another worker of this host was faster, here and below.
            files = path.rglob("*") if path.is_dir() else (path,)
            copies[path], sizes[path] = path.stat().st_mtime, sum(file.stat().st_size for file in files)
    total = sum(sizes.values())
    for path in sorted(sizes, key=copies.__getitem__):
        if total <= max_bytes or copies[path] > time.time() - GRACE:
            break
        if not _bundle(path).is_intact():
            continue
        with suppress(FileNotFoundError):
            if path.stat().st_mtime != copies[path]:  # Another process has used it in the meantime.
                continue
            _remove_copy(path)
            count += 1
        total -= sizes[path]
    return count


def remove_damaged_copy(path: Path) -> None:
    """Delete this host's damaged copy if it can be downloaded again."""
    if is_shared_path(path) and _bundle(path).is_intact():
        with suppress(FileNotFoundError):
            _remove_copy(path)


def remove_partial() -> int:
    """Delete incomplete copies of killed processes on this host; return their number."""
    partial_paths = [path for area in AREAS for path in (_root() / area).glob(f"*/{PARTIAL}*")]
    count, limit = 0, time.time() - GRACE
    for path in partial_paths:
        with suppress(FileNotFoundError):  # Another worker of this host was faster.
            if path.stat().st_mtime < limit:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                count += 1
    return count


def _remove_copy(path: Path) -> None:
    """Delete a copy after renaming it, because an interrupted removal must not leave half a checkpoint."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=PARTIAL) as folder:
        path.rename(Path(folder) / "leaving")


def _fetch(path: Path) -> None:
    """Download a file or folder that shared storage has, and rename it to `path` once it is complete.

    Raises BundleDamaged.
    """
    bundle = _bundle(path)
    if not bundle.exists():
        return
    manifest = bundle.manifest()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=PARTIAL) as folder:
        incomplete = Path(folder) / "arriving"
        incomplete.mkdir(mode=0o700)
        bundle.fetch(manifest, incomplete, _ignore)
        single_file = incomplete / CONTENT
        (single_file if single_file.is_file() else incomplete).rename(path)


def _bundle(path: Path) -> Bundle:
    return Bundle(storages["store"], path.relative_to(_root()).as_posix())


def _paths(area: str) -> Iterator[Path]:
    """Yield the complete paths of an area on this host."""
    return (_root() / area).glob("[!.]*/[!.]*")


def _folders(name: str) -> list[str]:
    try:
        return storages["store"].listdir(name)[0]
    except FileNotFoundError:  # A folder that was never written to.
        return []


def _root() -> Path:
    return Path(settings.VAR) / "store"


def _ignore(size: int) -> None:
    """Accept a progress report and do nothing."""
