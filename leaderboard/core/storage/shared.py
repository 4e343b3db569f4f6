"""The store on storage that several hosts have, such as a bucket: `STORAGES["store"]`, where there is one.

What workers on other hosts need is sent there before a row names it, and brought to a host that lacks it when it is
read. Judgements stay where they are: nothing but what is listed here travels.
"""

import fcntl
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings
from django.core.files.storage import storages

from leaderboard.core.storage.bundles import CONTENT, Bundle, BundleDamaged, Manifest

logger = logging.getLogger(__name__)

#: What travels, by folders of the store: corpora and queries, tables of document ids, runs, checkpoints, and judgements
#: that everyone may see.
AREAS = ("files", "indexes", "runs", "checkpoints", "open-qrels")
#: How the names of files begin that are not whole yet.
PARTIAL = ".partial-"
#: A copy that was used within so many seconds stays: a child may be about to open it.
GRACE = 24 * 3600


def is_shared() -> bool:
    """Whether there is such a storage. Asking loads no client of any."""
    return "store" in settings.STORAGES


def is_away(error: BaseException) -> bool:
    """Whether a bucket cannot be reached, or refuses us: a fault of ours that passes by itself, or with an operator."""
    raised = sys.modules.get("botocore.exceptions")
    return raised is not None and isinstance(error, (raised.BotoCoreError, raised.ClientError))


def travels(path: Path) -> bool:
    """Whether this path is on such a storage too: of the store, and of an area that is listed."""
    return is_shared() and path.is_relative_to(_root()) and path.relative_to(_root()).parts[0] in AREAS


def send(path: Path) -> None:
    """Send a file or folder, unless it is there whole. Nothing where it does not travel.

    Raises the storage's errors, and then nothing is there.
    """
    if not travels(path) or _bundle(path).is_there():
        return
    manifest = Manifest.of(path)
    _bundle(path).send(path, manifest, _ignore)
    _bundle(path).publish(manifest)


def send_all() -> int:
    """Send whatever this host has and the storage has not; returns how much of the store travels."""
    paths = [path for area in AREAS for path in _paths(area)]
    for path in paths:
        send(path)
    return len(paths)


def local(path: Path) -> Path:
    """The path, once what has it is on this host: brought if it is not. What is nowhere, or damaged, is not there then.

    What is damaged is marked: whoever has it sends it again. Raises the storage's errors.
    """
    if not travels(path):
        return path
    if not _is_used_now(path):
        with _one_at_a_time():
            if not _is_used_now(path):
                try:
                    _fetch(path)
                except BundleDamaged as error:
                    logger.error("%s came back damaged: %s", path.relative_to(_root()), error)
                    _bundle(path).mark_damaged()
    return path


def _is_used_now(path: Path) -> bool:
    """Whether the path is on this host; it is then marked as used, and stays."""
    with suppress(FileNotFoundError):
        os.utime(path)
        return True
    return False


def fetch_all() -> None:
    """Bring all that was sent, as a backup has to. Raises the storage's errors."""
    for path in sent_paths():
        local(path)


def remove(path: Path, grace: float = 0.0) -> bool:
    """Delete what was sent of the file or folder, unless it was written within so many seconds; whether it went."""
    if not travels(path) or (grace and _bundle(path).last_written() > time.time() - grace):
        return False
    _bundle(path).remove()
    return True


def sent_paths() -> Iterator[Path]:
    """The paths of all that was sent, and of what is being sent."""
    for area in AREAS if is_shared() else ():
        for group in _folders(area):
            yield from (_root() / area / group / name for name in _folders(f"{area}/{group}"))


def trim_copies(largest: int) -> int:
    """Remove this host's copies beyond so many bytes, those used longest ago first; returns how many.

    None that was used within `GRACE`, nor one that could not be brought again.
    """
    copies, sizes, count = {}, {}, 0
    for path in (path for area in AREAS for path in _paths(area)):
        with suppress(FileNotFoundError):  # another worker of this host was quicker, here as below
            copies[path], sizes[path] = path.stat().st_mtime, _size(path)
    total = sum(sizes.values())
    for path in sorted(sizes, key=copies.__getitem__):
        if total <= largest or copies[path] > time.time() - GRACE:
            break
        if not _bundle(path).is_there():
            continue
        with suppress(FileNotFoundError):
            if path.stat().st_mtime != copies[path]:  # somebody was given it meanwhile
                continue
            _remove_copy(path)
            count += 1
        total -= sizes[path]
    return count


def remove_damaged_copy(path: Path) -> None:
    """Remove this host's copy, which is not whole, where it can be brought again."""
    if travels(path) and _bundle(path).is_there():
        with suppress(FileNotFoundError):
            _remove_copy(path)


def remove_partial() -> int:
    """Remove what processes that were killed have left of copies on this host; returns how many."""
    found = [path for area in AREAS for path in (_root() / area).glob(f"*/{PARTIAL}*")]
    count, limit = 0, time.time() - GRACE
    for path in found:
        with suppress(FileNotFoundError):  # another worker of this host was quicker
            if path.stat().st_mtime < limit:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                count += 1
    return count


def _remove_copy(path: Path) -> None:
    """Of a removal that is cut off nothing is left under the name: half a checkpoint would be taken for a whole one."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=PARTIAL) as folder:
        path.rename(Path(folder) / "leaving")


def _fetch(path: Path) -> None:
    bundle = _bundle(path)
    if not bundle.exists():
        return
    manifest = bundle.manifest()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=PARTIAL) as folder:
        arriving = Path(folder) / "arriving"
        arriving.mkdir(mode=0o700)
        bundle.fetch(manifest, arriving, _ignore)
        single = arriving / CONTENT
        (single if single.is_file() else arriving).rename(path)


def _bundle(path: Path) -> Bundle:
    return Bundle(storages["store"], path.relative_to(_root()).as_posix())


def _paths(area: str) -> Iterator[Path]:
    """What this host has of an area, whole."""
    return (_root() / area).glob("[!.]*/[!.]*")


def _folders(name: str) -> list[str]:
    try:
        return storages["store"].listdir(name)[0]
    except FileNotFoundError:  # of a folder that nobody wrote to yet
        return []


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else (path,)))


def _root() -> Path:
    return Path(settings.VAR) / "store"


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait until no other process of this host brings anything."""
    _root().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (_root() / f"{PARTIAL}fetching").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ignore(size: int) -> None:
    """Report nothing."""
