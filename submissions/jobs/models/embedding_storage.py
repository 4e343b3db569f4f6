"""Encoded shards on storage that is no folder of ours, such as a bucket: sent there whole, brought here to be read.

Of a shard lie there `<key>/00000/<sha256>` for each file and, written last, `<key>/00000/manifest.json`: a shard is
there once its manifest is. `<key>/used` says by its age when the embeddings were used. What comes back is checked
against the manifest, byte for byte, before it takes its name here. Only workers that run models come here: they have
boto3.

The manifest comes back from a place that others may write to, so names and sizes are looked at before anything is done
with them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage, storages

from evaluation.engines.base import shard_name
from leaderboard.core.storage.store import sha256_of
from submissions.jobs.models.embedding_files import (
    UnusableOutput,
    checked_size,
    embeddings_root,
    move_into_place,
    shard_folder,
)
from submissions.sandbox.processes import remove

#: What the manifest is called, in a shard's folder and on storage.
MANIFEST = "manifest.json"
#: A manifest of this many bytes or more is none of ours.
LARGEST = 1 << 20

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEEPEST = 4
_MOST_FILES = 1000


class InvalidManifest(ValueError):
    """It is no manifest, or names what no shard of ours has."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of a shard: its path in the shard's folder, its bytes, and their checksum."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A shard's files, by name."""

    files: tuple[ShardFile, ...]

    @classmethod
    def of_folder(cls, folder: Path) -> Manifest:
        """The manifest of what lies in a folder of plain files. Raises InvalidManifest for names that are not ours."""
        return cls.checked(
            ShardFile(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_of(path))
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        )

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Read what `to_json` wrote. Raises InvalidManifest."""
        try:
            rows = json.loads(text)["files"]
            return cls.checked(ShardFile(row["name"], row["size"], row["sha256"]) for row in rows)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidManifest(f"it cannot be read ({type(error).__name__})") from error

    @classmethod
    def checked(cls, files: Iterator[ShardFile]) -> Manifest:
        """The files as a manifest. Raises InvalidManifest unless all of them are what a shard may have."""
        found = tuple(files)
        names = {file.name for file in found if _is_ours(file)}
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        if not found or len(found) > _MOST_FILES or len(names) < len(found) or names & folders:
            raise InvalidManifest("it names what no shard has")
        return cls(found)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def to_json(self) -> bytes:
        """The manifest as bytes: the same files give the same ones."""
        return json.dumps({"files": [asdict(file) for file in self.files]}, indent=1).encode()


def _is_ours(file: ShardFile) -> bool:
    """Whether the values are of the right kind, and the name is a plain one inside the shard's folder."""
    values: tuple[Any, ...] = (file.name, file.sha256)
    if not all(isinstance(value, str) for value in values) or type(file.size) is not int or file.size < 0:
        return False
    parts = file.name.split("/")
    return (
        file.name != MANIFEST
        and len(parts) <= _DEEPEST
        and all(_PART.fullmatch(part) for part in parts)
        and _SHA256.fullmatch(file.sha256) is not None
    )


logger = logging.getLogger(__name__)

#: Told stage, share of its work and a note; may raise to stop.
Report = Callable[[str, float, str], None]

_FOLDER = "django.core.files.storage.FileSystemStorage"
_KEY = re.compile(r"[0-9a-f]{64}")
_USED = "used"
_BLOCK = 1 << 20


class ShardDamaged(Exception):
    """A shard on storage is not there, not whole, or not what its manifest says."""


def is_remote() -> bool:
    """Whether embeddings are kept elsewhere than in a folder. Asking loads no client of any storage."""
    return str(settings.STORAGES["embeddings"]["BACKEND"]) != _FOLDER


def send_shard(folder: Path, key: str, number: int, report: Report) -> Manifest | None:
    """Send a shard's files; it is not there before `publish_shard`. None where a folder is all the storage there is.

    Files are named by what they hold: two workers that make the same shard do not get into each other's way.
    Raises UnusableOutput, and whatever `report` does.
    """
    if not is_remote():
        return None
    checked_size(folder)
    try:
        manifest = Manifest.of_folder(folder)
    except InvalidManifest as error:
        raise UnusableOutput(str(error)) from error
    mark_used(key)
    done = 0
    for file in manifest.files:
        report("storing", done / max(manifest.size, 1), "")
        with (folder / file.name).open("rb") as content:
            _storage().save(_object(key, number, file.sha256), File(content))
        done += file.size
    return manifest


def publish_shard(manifest: Manifest, key: str, number: int) -> None:
    """Make the shard whose files were sent be there, in place of what was there before."""
    _storage().save(_object(key, number, MANIFEST), ContentFile(manifest.to_json()))


def store_local_copy(folder: Path, manifest: Manifest, key: str, number: int) -> None:
    """Keep what was just sent, so that this machine need not bring it. The folder is gone afterwards, or useless."""
    try:
        (folder / MANIFEST).write_bytes(manifest.to_json())
        with _fetch_lock():
            if not _has_local_copy(manifest, key, number):
                move_into_place(folder, shard_folder(key, number))
    except OSError as error:
        logger.warning("embeddings %s, shard %s was not stored locally: %s", key, number, error)


def fetch_shards(key: str, sizes: Mapping[int, int], report: Report) -> frozenset[int]:
    """Bring the shards that this machine lacks into its folder; returns those that are missing or damaged.

    `sizes`: bytes of each shard by its number, as its row has them. One process of a machine at a time. Raises whatever
    `report` does, and the storage's errors where it is away.
    """
    lost: set[int] = set()
    with _fetch_lock():
        wanted: dict[int, Manifest] = {}
        for number, size in sizes.items():
            try:
                manifest = _read_manifest(key, number, size)
                if not _has_local_copy(manifest, key, number):
                    wanted[number] = manifest
            except ShardDamaged as error:
                lost.add(_log_lost(key, number, error))
        progress = _Progress(sum(manifest.size for manifest in wanted.values()), report)
        for number, manifest in wanted.items():
            try:
                _fetch_shard(manifest, key, number, progress)
            except ShardDamaged as error:
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
    """Delete embeddings. A removal that is cut off leaves no shard there, and can be taken up again."""
    storage = _storage()
    shards = storage.listdir(key)[0]
    for shard in shards:
        storage.delete(f"{key}/{shard}/{MANIFEST}")
    for shard in shards:
        for name in storage.listdir(f"{key}/{shard}")[1]:
            storage.delete(f"{key}/{shard}/{name}")
    storage.delete(f"{key}/{_USED}")


class _Progress:
    """How many of the bytes to be brought are here."""

    def __init__(self, total: int, report: Report) -> None:
        self._total, self._done, self._report = max(total, 1), 0, report

    def add(self, size: int) -> None:
        self._done += size
        note = f"{self._done / 2**20:,.0f} of {self._total / 2**20:,.0f} MiB"
        self._report("bringing", min(self._done / self._total, 1.0), note)


def _read_manifest(key: str, number: int, size: int) -> Manifest:
    """The manifest of a shard that has this many bytes."""
    try:
        with _storage().open(_object(key, number, MANIFEST)) as file:
            if file.size >= LARGEST:
                raise ShardDamaged("its manifest is far too large")
            manifest = Manifest.from_json(file.read())
    except FileNotFoundError as error:
        raise ShardDamaged("it has no manifest") from error
    except InvalidManifest as error:
        raise ShardDamaged(f"its manifest is none: {error}") from error
    if manifest.size != size:
        raise ShardDamaged(f"its manifest is of {manifest.size} bytes, not of {size}")
    return manifest


def _has_local_copy(manifest: Manifest, key: str, number: int) -> bool:
    """Whether this machine has the very shard: it came from here, or was brought before."""
    path = shard_folder(key, number) / MANIFEST
    return path.exists() and path.read_bytes() == manifest.to_json()


def _fetch_shard(manifest: Manifest, key: str, number: int, progress: _Progress) -> None:
    arriving = Path(tempfile.mkdtemp(prefix=".arriving-", dir=embeddings_root()))
    try:
        for file in manifest.files:
            _fetch(file, _object(key, number, file.sha256), arriving / file.name, progress)
        (arriving / MANIFEST).write_bytes(manifest.to_json())
        move_into_place(arriving, shard_folder(key, number))
    finally:
        if arriving.exists():
            remove(arriving)


def _fetch(file: ShardFile, name: str, target: Path, progress: _Progress) -> None:
    """One file, its size known to be right before it is read, and its checksum before it is used."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with _storage().open(name) as source, target.open("xb") as out:
            if source.size != file.size:
                raise ShardDamaged(f"{file.name} has {source.size} bytes in place of {file.size}")
            while block := source.read(_BLOCK):
                digest.update(block)
                out.write(block)
                progress.add(len(block))
    except FileNotFoundError as error:
        raise ShardDamaged(f"{file.name} is not there") from error
    if digest.hexdigest() != file.sha256:
        raise ShardDamaged(f"{file.name} is not what was written")


def _log_lost(key: str, number: int, error: ShardDamaged) -> int:
    logger.warning("embeddings %s, shard %s: %s", key, number, error)
    return number


@contextmanager
def _fetch_lock() -> Iterator[None]:
    """Wait until no other process of this machine brings shards."""
    embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (embeddings_root() / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _object(key: str, number: int, name: str) -> str:
    return f"{key}/{shard_name(number)}/{name}"


def _storage() -> Storage:
    return storages["embeddings"]
