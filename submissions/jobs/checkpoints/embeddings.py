"""Encoded shards on disk: in a folder that all workers share, or in a storage elsewhere with a copy on each machine.

A folder has `<key>/00000`, `<key>/00001` and so on, beside the rows that name them. A storage elsewhere has a bundle of
the same name for each shard, and `<key>/used`, whose age tells when the embeddings were last used. A shard comes out of
a sandbox, so it is checked like a stranger's files before it is moved here, and it is renamed atomically.

The least recently used embeddings are removed first. A folder, shared or a host's own, is bounded by
`EMBEDDINGS_CACHE_BYTES`, and a bucket by `EMBEDDINGS_STORAGE_BYTES`: no host with a small disk decides what the others
find there. Only workers that run models use the storage elsewhere.
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

from evaluation.engines.base import shard_name
from evaluation.execution.outcome import is_plain_file
from leaderboard.core.storage.bundles import MANIFEST, Bundle, BundleDamaged, InvalidManifest, Manifest
from leaderboard.core.storage.store import Area, sync
from submissions.models import TERMINAL, Encoding, Job
from submissions.queue.lease import WorkEnded
from submissions.queue.queue import BACKOFF, requeue, wake_worker
from submissions.sandbox.machine_lock import PAUSE, WAITING, try_flock
from submissions.sandbox.processes import free_bytes, remove, remove_old, size_of

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
#: Receives a stage, the share of its work and a note; may raise to stop.
Report = Callable[[str, float, str], None]
#: A row may be about to name a folder younger than this, in seconds.
GRACE = 24 * 3600
#: Seconds between two sweeps of a storage elsewhere: by anybody, and by one process while the cache is away.
_SWEEP_PAUSE = 3600.0
_SWEPT = "embeddings-swept"
_FOLDER = "django.core.files.storage.FileSystemStorage"
_KEY = re.compile(r"[0-9a-f]{64}")
#: Logged once, though the job looks again every minute.
_WAITS_FOR_ROOM = "The job waits for room."
_swept_at = -_SWEEP_PAUSE


class UnusableOutput(RuntimeError):
    """A child left something else than plain files: a link, a device, nothing at all."""


class DiskTooSmall(WorkEnded):
    """The embeddings would not fit on this machine's disk now."""

    def __init__(self, needed: int, free: int) -> None:
        self.needed, self.free = needed, free
        super().__init__(f"{needed} bytes are needed, {free} are free")

    def settle(self, job: Job) -> None:
        """Put the job back for a while: an operator, or the sweep, makes room."""
        needed, free = (f"{size / 2**30:,.1f} GiB" for size in (self.needed, self.free))
        line = f"The embeddings take {needed} or more; {free} of disk are free. {_WAITS_FOR_ROOM}"
        is_new = _WAITS_FOR_ROOM not in job.log
        if requeue(job, counted=False, delay=BACKOFF[-1], line=line if is_new else "") and is_new:
            logger.error("job %s waits for room on the disk: %s", job.pk, self)


def require_free(needed: int) -> None:
    """Raise DiskTooSmall if so many bytes of embeddings do not fit on this machine's disk."""
    free = max(free_bytes(embeddings_root()) - settings.DISK_RESERVE_BYTES, 0)
    if needed > free:
        raise DiskTooSmall(needed, free)


def is_remote() -> bool:
    """Return whether embeddings are kept elsewhere than in a folder. This loads no client of any storage."""
    return str(settings.STORAGES["embeddings"]["BACKEND"]) != _FOLDER


def embeddings_root() -> Path:
    """Return the folder of all embeddings on this machine."""
    return Path(settings.EMBEDDINGS_FOLDER or Path(settings.VAR) / Area.EMBEDDINGS.value)


def embeddings_folder(key: str) -> Path:
    """Return the folder of an encoding's shards on this machine."""
    return embeddings_root() / key


def shard_folder(key: str, number: int) -> Path:
    """Return the folder of a shard on this machine."""
    return embeddings_folder(key) / shard_name(number)


# --- folders


def move_into_place(source: Path, target: Path) -> None:
    """Fsync a folder and rename it atomically, replacing an existing one."""
    with arriving(source, target.parent.parent) as folder:
        take_name(folder, target)
    sync(target.parent)


@contextmanager
def arriving(source: Path, root: Path) -> Iterator[Path]:
    """Fsync a folder and move it below `root`, to be renamed at once. It is removed in the end if it is not renamed."""
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
    """Rename an arriving folder, in no time. Hold the encoding's row, or a lock: only one caller may do so at once."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if target.exists():
        target.rename(folder.with_name("replaced"))
    folder.rename(target)


def remove_other_files(key: str, shards: int) -> None:
    """Remove whatever is no shard: a child that searches may write beside the shards that it reads."""
    known = {shard_name(number) for number in range(shards)}
    for path in list(embeddings_folder(key).iterdir()):
        if path.name not in known:
            remove(path)


def checked_size(folder: Path) -> int:
    """Return the bytes of a folder's files. Raises UnusableOutput for anything but plain files in plain folders."""
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


def remove_least_used(
    sizes: Mapping[Key, int], least_used_first: Iterable[Key], bound: int, delete: Callable[[Key], bool]
) -> int:
    """Remove items until their total size is within the bound. Returns how many were removed.

    Args:
        sizes: bytes of each item.
        least_used_first: the items that may be removed, in this order.
        bound: bytes that may remain.
        delete: removes an item, unless it is in use; returns whether it did.
    """
    total, count = sum(sizes.values()), 0
    for item in least_used_first:
        if total <= bound:
            break
        if delete(item):
            total -= sizes[item]
            count += 1
    return count


# --- the storage elsewhere


def send_shard(folder: Path, key: str, number: int, report: Report) -> Manifest | None:
    """Send a shard's files, then their manifest; return None if the folder is all the storage there is.

    Files are named by their content: two workers that make the same shard do not disturb each other, and it is complete
    once its row has the manifest's checksum. Raises UnusableOutput, and whatever `report` does.
    """
    if not is_remote():
        return None
    checked_size(folder)
    try:
        manifest = Manifest.of(folder)
    except InvalidManifest as error:
        raise UnusableOutput(str(error)) from error
    mark_used(key)
    bundle = _bundle(key, number)
    bundle.send(folder, manifest, _byte_counter("storing", manifest.size, report))
    bundle.send_manifest(manifest)
    return manifest


def fetch_shards(key: str, manifests: Mapping[int, str], report: Report) -> frozenset[int]:
    """Download the shards that this machine lacks; return the numbers of those that are missing or damaged.

    Args:
        key: the encoding's key.
        manifests: the checksum of each shard's manifest by its number, as its row has it.
        report: receives the progress.

    One process of a machine at a time downloads the same shards. Raises whatever `report` does, the storage's errors
    if it is away, and DiskTooSmall.
    """
    lost: set[int] = set()
    with _fetch_lock(key, report):
        wanted: dict[int, Manifest] = {}
        for number, sha256 in manifests.items():
            copy = shard_folder(key, number) / MANIFEST
            if copy.exists() and hashlib.sha256(copy.read_bytes()).hexdigest() == sha256:
                continue
            report("bringing", 0.0, "")
            with _noting_damage(key, number, lost):
                if not sha256:  # any manifest would match it
                    raise BundleDamaged("its row names no manifest")
                wanted[number] = _bundle(key, number).manifest(sha256)
        size = sum(manifest.size for manifest in wanted.values())
        require_free(size)
        count = _byte_counter("bringing", size, report)
        for number, manifest in wanted.items():
            with _noting_damage(key, number, lost):
                folder = Path(tempfile.mkdtemp(prefix=".arriving-", dir=embeddings_root()))
                try:
                    _bundle(key, number).fetch(manifest, folder, count)
                    (folder / MANIFEST).write_bytes(manifest.to_json())
                    move_into_place(folder, shard_folder(key, number))
                finally:
                    if folder.exists():
                        remove(folder)
    return frozenset(lost)


@contextmanager
def _noting_damage(key: str, number: int, lost: set[int]) -> Iterator[None]:
    """Add the shard to the lost ones if its bundle is damaged."""
    try:
        yield
    except BundleDamaged as error:
        logger.warning("embeddings %s, shard %s: %s", key, number, error)
        lost.add(number)


def _byte_counter(stage: str, total: int, report: Report) -> Callable[[int], None]:
    """Return a function that reports the progress of a transfer when it is called with the bytes of each part."""
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        note = f"{done / 2**20:,.0f} of {max(total, 1) / 2**20:,.0f} MiB"
        report(stage, min(done / max(total, 1), 1.0), note)

    return count


@contextmanager
def _fetch_lock(key: str, report: Report) -> Iterator[None]:
    """Wait until no other process of this machine downloads these shards. Raises whatever `report` does."""
    embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = embeddings_root() / f".lock-{key}"
    while True:
        with path.open("w") as file:
            # Another process may have had the lock, and removed the file between our opening and our locking it.
            if try_flock(file.fileno(), fcntl.LOCK_EX) and os.fstat(file.fileno()).st_nlink:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        report(WAITING, 0.0, "while another job on this machine downloads the embeddings")
        time.sleep(PAUSE)


def _bundle(key: str, number: int) -> Bundle:
    return Bundle(_storage(), f"{key}/{shard_name(number)}")


def _storage() -> Storage:
    return storages["embeddings"]


# --- use, and removal


def mark_used(key: str) -> None:
    """Store that the embeddings were used now, here and in the storage elsewhere."""
    if is_remote():
        _storage().save(f"{key}/used", ContentFile(b"\n"))
    with suppress(FileNotFoundError):  # this machine has no copy yet
        os.utime(embeddings_folder(key))


def stored_keys() -> list[str]:
    """Return the keys of all embeddings in the storage elsewhere."""
    return [name for name in _storage().listdir("")[0] if _KEY.fullmatch(name)]


def _last_used(key: str) -> float:
    """Return when the embeddings were used, in seconds since the epoch; 0 if there are none."""
    if is_remote():
        name = f"{key}/used"
        return _storage().get_modified_time(name).timestamp() if _storage().exists(name) else 0.0
    folder = embeddings_folder(key)
    return folder.stat().st_mtime if folder.exists() else 0.0


def sweep_embeddings() -> int:
    """Remove unreferenced encodings, and whole encodings beyond the bound; return how many.

    A storage elsewhere is swept by workers that run models (`trim_cache`): one of them is woken.
    """
    if is_remote():
        wake_worker(Job.Queue.CPU)
        return 0
    return _sweep()


def trim_cache() -> None:
    """Sweep the storage elsewhere, if there is one, once an hour, and this machine's copies. Logs failures."""
    global _swept_at
    if not is_remote():
        return
    try:
        _trim_local_copies()
        if time.monotonic() - _swept_at >= _SWEEP_PAUSE:
            _swept_at = time.monotonic()
            if cache.add(_SWEPT, 1, _SWEEP_PAUSE):
                _sweep()
    except Exception:
        logger.exception("the embeddings could not be swept")


def _sweep() -> int:
    rows = Encoding.objects.annotate(size=Sum("shards__size", default=0))
    sizes = dict(rows.values_list("key", "size"))
    if is_remote():
        limit = time.time() - GRACE
        unnamed = [key for key in stored_keys() if key not in sizes and _last_used(key) < limit]
        for key in unnamed:
            _remove_stored(key)
        count, bound = len(unnamed), settings.EMBEDDINGS_STORAGE_BYTES or sum(sizes.values())
    else:
        count, bound = _sweep_unnamed_folders(), settings.EMBEDDINGS_CACHE_BYTES
    if sum(sizes.values()) > bound:
        count += remove_least_used(sizes, sorted(sizes, key=_last_used), bound, _delete_encoding)
    if count:
        logger.info("swept the embeddings of %s encodings", count)
    return count


def _sweep_unnamed_folders() -> int:
    named = set(Encoding.objects.values_list("key", flat=True))
    return remove_old([folder for folder in _list_folders() if folder.name not in named], GRACE)


def _trim_local_copies() -> None:
    """Remove this machine's unreferenced copies, and those beyond the bound. They can be downloaded again."""
    _sweep_unnamed_folders()
    sizes, used = {}, {}
    for folder in _list_folders():
        with suppress(FileNotFoundError):  # another worker of this host was quicker
            sizes[folder.name], used[folder.name] = size_of([folder]), folder.stat().st_mtime
    least_used_first = sorted(sizes, key=used.__getitem__)
    delete_copy = partial(_delete_encoding, copy_alone=True)
    remove_least_used(sizes, least_used_first, settings.EMBEDDINGS_CACHE_BYTES, delete_copy)


def _list_folders() -> list[Path]:
    """Return the folders on this machine, of encodings and of arriving shards."""
    root = embeddings_root()
    return [path for path in root.iterdir() if path.is_dir()] if root.exists() else []


def _delete_encoding(key: str, *, copy_alone: bool = False) -> bool:
    """Delete the encoding and its files, unless it is in use, or will be; or this machine's copy, unless in use."""
    with transaction.atomic():
        encoding = Encoding.objects.select_for_update().filter(key=key).first()
        if encoding is None:
            return False
        # A job uses it, waits for it, or makes a part of it.
        made = encoding.shards.filter(job__isnull=False).exclude(job__state__in=TERMINAL)
        if encoding.waiting_jobs.exists() or made.exists():
            return False
        if not copy_alone:
            # A job that has not ended, of the same model and corpus, may be about to request it.
            jobs = Job.objects.filter(
                submission__checkpoint__model_sha256=encoding.checkpoint.model_sha256,
                dataset__current_version__corpus_sha256=encoding.version.corpus_sha256,
            )
            if jobs.exclude(state__in=TERMINAL).exists():
                return False
            encoding.delete()
        _remove_folder(key)
    if (
        is_remote() and not copy_alone
    ):  # a shard that is made anew in this moment is missed, and made again, by whoever needs it
        _remove_stored(key)
    return True


def _remove_folder(key: str) -> None:
    """Delete an encoding's folder; an interrupted removal leaves nothing under the name."""
    folder = embeddings_folder(key)
    if folder.exists():
        leaving = folder.with_name(f".leaving-{key}")
        folder.rename(leaving)
        shutil.rmtree(leaving, ignore_errors=True)


def _remove_stored(key: str) -> None:
    """Delete stored embeddings, the mark of their use last: an interrupted removal can be resumed."""
    for shard in _storage().listdir(key)[0]:
        Bundle(_storage(), f"{key}/{shard}").remove()
    _storage().delete(f"{key}/used")
