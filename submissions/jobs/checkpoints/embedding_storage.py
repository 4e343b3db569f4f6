"""Encoded shards on storage that is no folder of ours: a bundle `<key>/00000` for each.

`<key>/used` says by its age when the embeddings were used. What comes back takes its name here once it was checked.
Only workers that run models come here.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages

from evaluation.engines.base import shard_name
from leaderboard.core.storage.bundles import MANIFEST, Bundle, BundleDamaged, InvalidManifest, Manifest
from submissions.jobs.checkpoints.embedding_files import (
    UnusableOutput,
    checked_size,
    embeddings_root,
    is_remote,
    move_into_place,
    shard_folder,
)
from submissions.jobs.checkpoints.encoding_settings import require_free
from submissions.sandbox.machine_lock import PAUSE, WAITING
from submissions.sandbox.processes import remove

logger = logging.getLogger(__name__)

#: Told stage, share of its work and a note; may raise to stop.
Report = Callable[[str, float, str], None]

_KEY = re.compile(r"[0-9a-f]{64}")
_USED = "used"


def send_shard(folder: Path, key: str, number: int, report: Report) -> Manifest | None:
    """Send a shard's files and their manifest, last; None where a folder is all the storage there is.

    All are named by what they hold: two workers that make the same shard do not get into each other's way, and it is
    there once its row has the manifest's checksum.
    Raises UnusableOutput, and whatever `report` does.
    """
    if not is_remote():
        return None
    checked_size(folder)
    try:
        manifest = Manifest.of(folder)
    except InvalidManifest as error:
        raise UnusableOutput(str(error)) from error
    mark_used(key)
    progress = _Progress("storing", manifest.size, report)
    _bundle(key, number).send(folder, manifest, progress.add)
    _bundle(key, number).send_manifest(manifest)
    return manifest


def fetch_shards(key: str, manifests: Mapping[int, str], report: Report) -> frozenset[int]:
    """Bring the shards that this machine lacks into its folder; returns those that are missing or damaged.

    `manifests`: the checksum of each shard's manifest by its number, as its row has it. One process of a machine at a
    time brings the same ones. Raises whatever `report` does, the storage's errors where it is away, and DiskTooSmall.
    """
    lost: set[int] = set()
    with _fetch_lock(key, report):
        wanted: dict[int, Manifest] = {}
        for number, sha256 in manifests.items():
            if _has_local_copy(sha256, key, number):
                continue
            report("bringing", 0.0, "")
            try:
                wanted[number] = _manifest(sha256, key, number)
            except BundleDamaged as error:
                lost.add(_log_lost(key, number, error))
        size = sum(manifest.size for manifest in wanted.values())
        require_free(size)
        progress = _Progress("bringing", size, report)
        for number, manifest in wanted.items():
            try:
                _fetch_shard(manifest, key, number, progress)
            except BundleDamaged as error:
                lost.add(_log_lost(key, number, error))
    return frozenset(lost)


def mark_used(key: str) -> None:
    """Remember that the embeddings were used now."""
    _storage().save(f"{key}/{_USED}", ContentFile(b"\n"))


def last_used(key: str) -> float:
    """When the embeddings were used, in seconds since the epoch; 0 where there are none."""
    name = f"{key}/{_USED}"
    return _storage().get_modified_time(name).timestamp() if _storage().exists(name) else 0.0


def stored_keys() -> list[str]:
    """The keys of all embeddings there."""
    return [name for name in _storage().listdir("")[0] if _KEY.fullmatch(name)]


def remove_stored(key: str) -> None:
    """Delete embeddings, the mark of their use last: a removal that is cut off can be taken up again."""
    for shard in _storage().listdir(key)[0]:
        Bundle(_storage(), f"{key}/{shard}").remove()
    _storage().delete(f"{key}/{_USED}")


class _Progress:
    """How many of the bytes that travel have arrived."""

    def __init__(self, stage: str, total: int, report: Report) -> None:
        self._stage, self._total, self._done, self._report = stage, max(total, 1), 0, report

    def add(self, size: int) -> None:
        self._done += size
        note = f"{self._done / 2**20:,.0f} of {self._total / 2**20:,.0f} MiB"
        self._report(self._stage, min(self._done / self._total, 1.0), note)


def _has_local_copy(sha256: str, key: str, number: int) -> bool:
    """Whether this machine has the shard whose manifest has this checksum: it was brought before."""
    path = shard_folder(key, number) / MANIFEST
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _manifest(sha256: str, key: str, number: int) -> Manifest:
    """The manifest with this checksum. Raises BundleDamaged, also for a row that names none: any would do for it."""
    if not sha256:
        raise BundleDamaged("its row names no manifest")
    return _bundle(key, number).manifest(sha256)


def _fetch_shard(manifest: Manifest, key: str, number: int, progress: _Progress) -> None:
    arriving = Path(tempfile.mkdtemp(prefix=".arriving-", dir=embeddings_root()))
    try:
        _bundle(key, number).fetch(manifest, arriving, progress.add)
        (arriving / MANIFEST).write_bytes(manifest.to_json())
        move_into_place(arriving, shard_folder(key, number))
    finally:
        if arriving.exists():
            remove(arriving)


def _log_lost(key: str, number: int, error: BundleDamaged) -> int:
    logger.warning("embeddings %s, shard %s: %s", key, number, error)
    return number


@contextmanager
def _fetch_lock(key: str, report: Report) -> Iterator[None]:
    """Wait until no other process of this machine brings these shards. Raises whatever `report` does."""
    embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = embeddings_root() / f".lock-{key}"
    while True:
        with path.open("w") as file:
            if _try_lock(file):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        report(WAITING, 0.0, "while another job on this machine downloads the embeddings")
        time.sleep(PAUSE)


def _try_lock(file: IO[str]) -> bool:
    """Lock the file, unless another process has, or had and removed it between our opening and our locking it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(file.fileno()).st_nlink > 0


def _bundle(key: str, number: int) -> Bundle:
    return Bundle(_storage(), f"{key}/{shard_name(number)}")


def _storage() -> Storage:
    return storages["embeddings"]
