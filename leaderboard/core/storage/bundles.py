"""Bundles: files and folders on remote storage such as a bucket, uploaded and downloaded as a whole.

A bundle consists of one object `<sha256>` per file and `manifest.json`, which is written last: a bundle exists once its
manifest exists. If the caller stores the manifest's checksum, the manifest is named by that instead. Downloads are
verified against the manifest. Others may be able to write to the storage, so names and sizes in a manifest are checked
before they are used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage

#: Name of the manifest, in a folder and on storage.
MANIFEST = "manifest.json"
#: Size in bytes from which a manifest is rejected.
MAX_MANIFEST_BYTES = 1 << 20
#: Name of a single file in its manifest.
CONTENT = "content"
_DAMAGED = "damaged"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_DEPTH = 4
_MAX_FILES = 1000
_BLOCK = 1 << 20

#: Callback for the number of bytes of each transferred block; may raise to abort.
Progress = Callable[[int], None]


class InvalidManifest(ValueError):
    """The manifest is unreadable or names files that a bundle cannot have."""


class BundleDamaged(Exception):
    """A bundle on storage is missing, incomplete, or does not match its manifest."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle: path in the folder, size in bytes, and checksum."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files of a bundle."""

    files: tuple[BundleFile, ...]

    @classmethod
    def from_path(cls, path: Path) -> Manifest:
        """Build the manifest of a file, or of a folder of plain files. Raises InvalidManifest for invalid names."""
        if path.is_file():
            return cls((_bundle_file(path, CONTENT),))
        paths = (child for child in sorted(path.rglob("*")) if child.is_file())
        return cls.from_files(_bundle_file(child, child.relative_to(path).as_posix()) for child in paths)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Parse the output of `to_json`. Raises InvalidManifest."""
        try:
            rows = json.loads(text)["files"]
            return cls.from_files(BundleFile(row["name"], row["size"], row["sha256"]) for row in rows)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidManifest(f"it cannot be read ({type(error).__name__})") from error

    @classmethod
    def from_files(cls, files: Iterator[BundleFile]) -> Manifest:
        """Build a manifest of the files. Raises InvalidManifest for invalid files, none, or too many."""
        entries = tuple(files)
        names = {file.name for file in entries if _is_valid_file(file)}
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        if not entries or len(entries) > _MAX_FILES or len(names) < len(entries) or names & folders:
            raise InvalidManifest("it names files that a bundle cannot have")
        return cls(entries)

    @property
    def sha256(self) -> str:
        """Checksum of `to_json`, which covers all files."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> bytes:
        """Serialize the manifest; equal files give equal bytes."""
        return json.dumps({"files": [asdict(file) for file in self.files]}, indent=1).encode()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on a storage, identified by its name there."""

    storage: Storage
    name: str

    def send(self, path: Path, manifest: Manifest, progress: Progress) -> None:
        """Upload the files of `path`; the bundle does not exist before `publish`.

        Objects are named by their checksum, so that concurrent uploads of the same bundle do not interfere.
        """
        for file in manifest.files:
            with (path if path.is_file() else path / file.name).open("rb") as content:
                self.storage.save(self._object(file.sha256), File(content))
            progress(file.size)

    def publish(self, manifest: Manifest) -> None:
        """Make the uploaded bundle available, replacing an earlier one."""
        self.storage.save(self._object(MANIFEST), ContentFile(manifest.to_json()))
        if self.storage.exists(self._object(_DAMAGED)):
            self.storage.delete(self._object(_DAMAGED))

    def send_manifest(self, manifest: Manifest) -> None:
        """Upload the manifest under its checksum, for `manifest(sha256)`. It replaces no other manifest."""
        self.storage.save(self._object(manifest.sha256), ContentFile(manifest.to_json()))

    def exists(self) -> bool:
        return self.storage.exists(self._object(MANIFEST))

    def is_intact(self) -> bool:
        return self.exists() and not self.storage.exists(self._object(_DAMAGED))

    def mark_damaged(self) -> None:
        """Mark the bundle as damaged until it is published again."""
        self.storage.save(self._object(_DAMAGED), ContentFile(b"\n"))

    def last_written(self) -> float:
        """Return the time of the latest upload in seconds since the epoch; 0 if there are no objects."""
        names = self.storage.listdir(self.name)[1]
        times = [self.storage.get_modified_time(self._object(name)).timestamp() for name in names]
        return max(times, default=0.0)

    def manifest(self, sha256: str = "") -> Manifest:
        """Return the published manifest, or the one uploaded under a checksum. Raises BundleDamaged."""
        try:
            with self.storage.open(self._object(sha256 or MANIFEST)) as file:
                if file.size >= MAX_MANIFEST_BYTES:
                    raise BundleDamaged("its manifest is far too large")
                result = Manifest.from_json(file.read())
        except FileNotFoundError as error:
            raise BundleDamaged("it has no manifest") from error
        except InvalidManifest as error:
            raise BundleDamaged(f"its manifest is invalid: {error}") from error
        if sha256 and result.sha256 != sha256:
            raise BundleDamaged("its manifest does not match its checksum")
        return result

    def fetch(self, manifest: Manifest, folder: Path, progress: Progress) -> None:
        """Download all files into an empty folder. Raises BundleDamaged."""
        for file in manifest.files:
            self._fetch(file, folder / file.name, progress)

    def remove(self) -> None:
        """Delete the bundle. An interrupted removal leaves no manifest and can be retried."""
        self.storage.delete(self._object(MANIFEST))
        for name in self.storage.listdir(self.name)[1]:
            self.storage.delete(self._object(name))

    def _fetch(self, file: BundleFile, target: Path, progress: Progress) -> None:
        """Download one file, checking its size before reading and its checksum before use."""
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        try:
            with self.storage.open(self._object(file.sha256)) as source, target.open("xb") as output:
                if source.size != file.size:
                    raise BundleDamaged(f"{file.name} has {source.size} bytes instead of {file.size}")
                while block := source.read(_BLOCK):
                    digest.update(block)
                    output.write(block)
                    progress(len(block))
        except FileNotFoundError as error:
            raise BundleDamaged(f"{file.name} is missing") from error
        if digest.hexdigest() != file.sha256:
            raise BundleDamaged(f"{file.name} does not match its checksum")

    def _object(self, name: str) -> str:
        return f"{self.name}/{name}"


def _bundle_file(path: Path, name: str) -> BundleFile:
    with path.open("rb") as file:
        return BundleFile(name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _is_valid_file(file: BundleFile) -> bool:
    """Return whether the values have the right types, and the name is a plain path inside the folder."""
    values: tuple[Any, ...] = (file.name, file.sha256)
    if not all(isinstance(value, str) for value in values) or type(file.size) is not int or file.size < 0:
        return False
    parts = file.name.split("/")
    return (
        file.name != MANIFEST
        and len(parts) <= _MAX_DEPTH
        and all(_PART.fullmatch(part) for part in parts)
        and _SHA256.fullmatch(file.sha256) is not None
    )
