"""Storage of encoded shards: a folder shared by all workers, or a remote storage with copies on each machine.

A folder contains `<key>/00000`, `<key>/00001`, and so on. A remote storage has a bundle of the same name per shard, and
`<key>/used` with the time of last use as its modification time. Shards come from a sandbox, so they are checked like
untrusted files before they are moved here, and renamed atomically.

The least recently used embeddings are removed first. Folders are limited by `EMBEDDINGS_CACHE_BYTES`, buckets by
`EMBEDDINGS_STORAGE_BYTES`, so that a host with a small disk does not affect the others. Only workers that run models
use the remote storage.
"""

import errno
import fcntl
import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.core.cache import cache
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db import transaction
from django.db.models import Sum

from evaluation.archives.compression import describe_bytes
from evaluation.engines.base import shard_name
from evaluation.execution.outcome import is_plain_file
from leaderboard.core.storage.bundles import MANIFEST, Bundle, BundleDamaged, InvalidManifest, Manifest
from leaderboard.core.storage.store import Area, sync
from submissions.models import TERMINAL, Encoding, Job
from submissions.queue.lease import WorkEnded
from submissions.queue.queue import BACKOFF, requeue, wake_worker
from submissions.sandbox.machine_lock import PAUSE, WAITING_STAGE, try_flock
from submissions.sandbox.processes import disk_usage, free_bytes, remove, remove_old

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
#: Callback for a stage, its progress, and a note; may raise to stop.
Report = Callable[[str, float, str], None]
#: Minimum age in seconds of folders to remove; a row may be about to refer to younger ones.
GRACE = 24 * 3600
#: Seconds between two sweeps of the remote storage, by any process or (without the cache) by this one.
_SWEEP_PAUSE = 3600.0
_SWEEP_KEY = "embeddings-swept"
_FOLDER = "django.core.files.storage.FileSystemStorage"
_KEY = re.compile(r"[0-9a-f]{64}")
#: Text that is logged only once, though the job checks again every minute.
_WAITS_FOR_DISK = "The job waits for disk space."
_swept_at = -_SWEEP_PAUSE


class UnusableOutput(RuntimeError):
    """Error raised if the output of a child is missing or contains anything except plain files."""


class DiskTooSmall(WorkEnded):
    """Exception that requeues a job because its embeddings or image do not fit on this machine's disk at present."""

    def __init__(self, needed: int, free: int, content: str) -> None:
        self.needed, self.free, self.content = needed, free, content
        super().__init__(f"{needed} bytes needed, {free} free")

    def settle(self, job: Job) -> None:
        """Requeue the job after a delay, in which an operator or the sweep may free disk space."""
        needed, free = (describe_bytes(size) for size in (self.needed, self.free))
        line = f"At least {needed} of disk space is needed for the {self.content}; {free} is free. {_WAITS_FOR_DISK}"
        is_new = _WAITS_FOR_DISK not in job.log
        if requeue(job, counts_attempt=False, delay=BACKOFF[-1], line=line if is_new else "") and is_new:
            logger.error("Job %s waits for disk space: %s", job.pk, self)


def require_free_bytes(needed: int, folder: Path | None = None, content: str = "embeddings") -> None:
    """Raise DiskTooSmall if `needed` bytes do not fit on the disk of `folder`, by default the folder of embeddings."""
    free = max(free_bytes(folder or embeddings_root()) - settings.DISK_RESERVE_BYTES, 0)
    if needed > free:
        raise DiskTooSmall(needed, free, content)


def is_remote() -> bool:
    """Return whether embeddings are in a remote storage, without loading its client."""
    return str(settings.STORAGES["embeddings"]["BACKEND"]) != _FOLDER


def embeddings_root() -> Path:
    """Return the folder of all embeddings on this machine."""
    return Path(settings.EMBEDDINGS_FOLDER or Path(settings.VAR) / Area.EMBEDDINGS.value)


def embeddings_folder(key: str) -> Path:
    return embeddings_root() / key


def shard_folder(key: str, number: int) -> Path:
    return embeddings_folder(key) / shard_name(number)


# --- folders


def move_into_place(source: Path, target: Path) -> None:
    """Fsync a folder and rename it atomically, replacing an existing one."""
    with moved_folder(source, target.parent.parent) as folder:
        rename_into_place(folder, target)
    sync(target.parent)


@contextmanager
def moved_folder(source: Path, root: Path) -> Iterator[Path]:
    """Move a folder below `root`, fsync it, and yield its new path, from which the caller renames it.

    It is removed at the end if the caller has not renamed it.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary_folder = Path(tempfile.mkdtemp(prefix=".arriving-", dir=root))
    folder = temporary_folder / "folder"
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
            temporary_folder.rmdir()
        except OSError:  # it was not renamed, or has replaced another folder
            remove(temporary_folder)


def rename_into_place(folder: Path, target: Path) -> None:
    """Rename an arriving folder to `target`, after moving an existing one aside.

    The caller must hold the encoding's row or another lock.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if target.exists():
        target.rename(folder.with_name("replaced"))
    folder.rename(target)


def remove_other_files(key: str, shards: int) -> None:
    """Remove files other than shards, which a child may have written into the folder during its search."""
    shard_names = {shard_name(number) for number in range(shards)}
    for path in list(embeddings_folder(key).iterdir()):
        if path.name not in shard_names:
            remove(path)


def checked_size(folder: Path) -> int:
    """Return the size in bytes of a folder's files. Raises UnusableOutput for anything but plain files and folders."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise UnusableOutput(f"{folder.name} is not a folder")
    size = 0
    for entry in list(os.scandir(folder)):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            size += checked_size(path)
        elif is_plain_file(path):
            size += path.stat().st_size
        else:
            raise UnusableOutput(f"{path.name!r} is not a plain file")
    return size


def remove_least_used(
    sizes: Mapping[Key, int], least_used_first: Iterable[Key], bound: int, delete: Callable[[Key], bool]
) -> int:
    """Remove items until their total size is within the bound; return the number removed.

    Args:
        sizes: Size in bytes of each item.
        least_used_first: Items that may be removed, in this order.
        bound: Maximum size in bytes of the remaining items.
        delete: Function that removes an item unless it is in use, and returns whether it did.
    """
    total, count = sum(sizes.values()), 0
    for item in least_used_first:
        if total <= bound:
            break
        if delete(item):
            total -= sizes[item]
            count += 1
    return count


# --- remote storage


def send_shard(folder: Path, key: str, number: int, report: Report) -> Manifest | None:
    """Send a shard's files and then their manifest; return None if there is no remote storage.

    Files are named by their content, so that two workers encoding the same shard do not interfere. A shard is complete
    once its row has the manifest's checksum. Raises UnusableOutput and the exceptions of `report`.
    """
    if not is_remote():
        return None
    checked_size(folder)
    try:
        manifest = Manifest.from_path(folder)
    except InvalidManifest as error:
        raise UnusableOutput(str(error)) from error
    mark_used(key)
    bundle = _bundle(key, number)
    bundle.send(folder, manifest, _byte_counter("storing", manifest.size, report))
    bundle.send_manifest(manifest)
    return manifest


def fetch_shards(key: str, manifests: Mapping[int, str], report: Report) -> frozenset[int]:
    """Download the shards that this machine lacks; return the numbers of missing or damaged ones.

    Only one process of a machine downloads the same shards at a time.

    Args:
        key: Key of the encoding.
        manifests: Checksum of each shard's manifest by number, from its row.
        report: Callback for the progress.

    Raises:
        DiskTooSmall: If the shards do not fit on the disk.
        Exception: Any error of the storage or of `report`.
    """
    damaged_numbers: set[int] = set()
    with _fetch_lock(key, report):
        missing_manifests: dict[int, Manifest] = {}
        for number, sha256 in manifests.items():
            copy = shard_folder(key, number) / MANIFEST
            if copy.exists() and hashlib.sha256(copy.read_bytes()).hexdigest() == sha256:
                continue
            report("bringing", 0.0, "")
            with _collect_damage(key, number, damaged_numbers):
                if not sha256:  # any manifest would match
                    raise BundleDamaged("the row of the shard has no manifest")
                missing_manifests[number] = _bundle(key, number).manifest(sha256)
        size = sum(manifest.size for manifest in missing_manifests.values())
        require_free_bytes(size)
        count = _byte_counter("bringing", size, report)
        for number, manifest in missing_manifests.items():
            with _collect_damage(key, number, damaged_numbers):
                folder = Path(tempfile.mkdtemp(prefix=".arriving-", dir=embeddings_root()))
                try:
                    _bundle(key, number).fetch(manifest, folder, count)
                    (folder / MANIFEST).write_bytes(manifest.to_json())
                    move_into_place(folder, shard_folder(key, number))
                finally:
                    if folder.exists():
                        remove(folder)
    return frozenset(damaged_numbers)


@contextmanager
def _collect_damage(key: str, number: int, damaged_numbers: set[int]) -> Iterator[None]:
    """Add the shard to `damaged_numbers` if its bundle is damaged."""
    try:
        yield
    except BundleDamaged as error:
        logger.warning("Embeddings %s, shard %s: %s", key, number, error)
        damaged_numbers.add(number)


def _byte_counter(stage: str, total: int, report: Report) -> Callable[[int], None]:
    """Return a function that adds the bytes of each part and reports the progress of the transfer."""
    transferred = 0

    def count(size: int) -> None:
        nonlocal transferred
        transferred += size
        note = f"{transferred / 2**20:,.0f} of {max(total, 1) / 2**20:,.0f} MiB"
        report(stage, min(transferred / max(total, 1), 1.0), note)

    return count


@contextmanager
def _fetch_lock(key: str, report: Report) -> Iterator[None]:
    """Hold this machine's lock for downloading these shards. Raises the exceptions of `report` while waiting."""
    embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = embeddings_root() / f".lock-{key}"
    while True:
        with path.open("w") as file:
            # The previous holder may have removed the file after we opened it and before we locked it.
            if try_flock(file.fileno(), fcntl.LOCK_EX) and os.fstat(file.fileno()).st_nlink:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        report(WAITING_STAGE, 0.0, "while another job on this machine downloads the embeddings")
        time.sleep(PAUSE)


def _bundle(key: str, number: int) -> Bundle:
    return Bundle(_storage(), f"{key}/{shard_name(number)}")


def _storage() -> Storage:
    return storages["embeddings"]


# --- use and removal


def mark_used(key: str) -> None:
    """Record the present time as the last use of the embeddings, here and in the remote storage."""
    if is_remote():
        _storage().save(f"{key}/used", ContentFile(b"\n"))
    with suppress(FileNotFoundError):  # this machine has no copy yet
        os.utime(embeddings_folder(key))


def stored_keys() -> list[str]:
    """Return the keys of all embeddings in the remote storage."""
    return [name for name in _storage().listdir("")[0] if _KEY.fullmatch(name)]


def _last_used(key: str) -> float:
    """Return the time of last use in seconds since the epoch, or 0 if there are no embeddings."""
    if is_remote():
        name = f"{key}/used"
        return _storage().get_modified_time(name).timestamp() if _storage().exists(name) else 0.0
    folder = embeddings_folder(key)
    return folder.stat().st_mtime if folder.exists() else 0.0


def sweep_embeddings() -> int:
    """Remove unreferenced encodings and those beyond the size limit; return their number.

    A remote storage is swept by workers that run models (`trim_cache`), one of which is woken.
    """
    if is_remote():
        wake_worker(Job.Queue.CPU)
        return 0
    return _sweep()


def trim_cache() -> None:
    """Trim this host's copies of remotely stored embeddings, and sweep the remote storage at most once an hour.

    Does nothing if the storage is local. Failures are logged.
    """
    global _swept_at
    if not is_remote():
        return
    try:
        _sweep_unreferenced_folders()
        sizes, last_used = {}, {}
        for folder in _list_folders():
            with suppress(FileNotFoundError):  # another worker on this host removed it
                sizes[folder.name], last_used[folder.name] = disk_usage([folder]), folder.stat().st_mtime
        least_used_first = sorted(sizes, key=last_used.__getitem__)
        delete_copy = partial(_delete_encoding, copy_only=True)
        remove_least_used(sizes, least_used_first, settings.EMBEDDINGS_CACHE_BYTES, delete_copy)
        if time.monotonic() - _swept_at >= _SWEEP_PAUSE:
            _swept_at = time.monotonic()
            if cache.add(_SWEEP_KEY, 1, _SWEEP_PAUSE):
                _sweep()
    except Exception:
        logger.exception("Could not sweep the embeddings")


def _sweep() -> int:
    """Remove unreferenced embeddings, and the least recently used ones beyond the size limit; return their number.

    Sweeps the remote storage if there is one, otherwise the folder.
    """
    sizes = dict(Encoding.objects.annotate(size=Sum("shards__size", default=0)).values_list("key", "size"))
    if is_remote():
        limit = time.time() - GRACE
        unused_keys = [key for key in stored_keys() if key not in sizes and _last_used(key) < limit]
        for key in unused_keys:
            _remove_stored(key)
        count, bound = len(unused_keys), settings.EMBEDDINGS_STORAGE_BYTES or sum(sizes.values())
    else:
        count, bound = _sweep_unreferenced_folders(), settings.EMBEDDINGS_CACHE_BYTES
    if sum(sizes.values()) > bound:
        count += remove_least_used(sizes, sorted(sizes, key=_last_used), bound, _delete_encoding)
    if count:
        logger.info("Swept the embeddings of %s encodings.", count)
    return count


def _sweep_unreferenced_folders() -> int:
    referenced_keys = set(Encoding.objects.values_list("key", flat=True))
    return remove_old([folder for folder in _list_folders() if folder.name not in referenced_keys], GRACE)


def _list_folders() -> list[Path]:
    """Return this machine's folders of embeddings, including those of shards that are still arriving."""
    root = embeddings_root()
    return [path for path in root.iterdir() if path.is_dir()] if root.exists() else []


def _delete_encoding(key: str, *, copy_only: bool = False) -> bool:
    """Delete an encoding, or only this machine's copy, unless it is needed; return whether it was deleted."""
    with transaction.atomic():
        encoding = Encoding.objects.select_for_update().filter(key=key).first()
        if encoding is None:
            return False
        # Check whether a job uses it, waits for it, or encodes a part of it.
        active_shards = encoding.shards.filter(job__isnull=False).exclude(job__state__in=TERMINAL)
        if encoding.waiting_jobs.exists() or active_shards.exists():
            return False
        if not copy_only:
            # An active job with the same model and corpus may be about to request it.
            jobs = Job.objects.filter(
                submission__checkpoint__model_sha256=encoding.checkpoint.model_sha256,
                dataset__current_version__corpus_sha256=encoding.version.corpus_sha256,
            )
            if jobs.exclude(state__in=TERMINAL).exists():
                return False
            encoding.delete()
        folder = embeddings_folder(key)
        if folder.exists():
            # An interrupted removal would leave it incomplete, so it is renamed first.
            renamed_folder = folder.rename(folder.with_name(f".leaving-{key}"))
            shutil.rmtree(renamed_folder, ignore_errors=True)
    # A shard stored at the same moment is missed here, and encoded again by the job that needs it.
    if is_remote() and not copy_only:
        _remove_stored(key)
    return True


def _remove_stored(key: str) -> None:
    """Delete stored embeddings, and their time of use last, so that an interrupted removal can be resumed."""
    for shard in _storage().listdir(key)[0]:
        Bundle(_storage(), f"{key}/{shard}").remove()
    _storage().delete(f"{key}/used")
