"""Files and folders on storage that is no folder of ours, such as a bucket: sent there whole, brought here to be read.

Under the name of a bundle lie `<sha256>` for each of its files and, written last, `manifest.json`: a bundle is there
once its manifest is; or, where somebody keeps the manifest's checksum, the manifest lies there under that. What comes
back is checked against the manifest, byte for byte. The manifest itself comes back from a place that others may write
to, so names and sizes are looked at before anything is done with them.
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

#: What the manifest is called, in a folder and on storage.
MANIFEST = "manifest.json"
#: A manifest of this many bytes or more is none of ours.
LARGEST = 1 << 20
#: What the manifest of a single file calls it.
CONTENT = "content"
_DAMAGED = "damaged"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEEPEST = 4
_MOST_FILES = 1000
_BLOCK = 1 << 20

#: Told the bytes of each block that has travelled; may raise to stop.
Progress = Callable[[int], None]


class InvalidManifest(ValueError):
    """It is no manifest, or names what no bundle of ours has."""


class BundleDamaged(Exception):
    """A bundle on storage is not there, not whole, or not what its manifest says."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle: its path in the folder, its bytes, and their checksum."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A bundle's files, by name."""

    files: tuple[BundleFile, ...]

    @classmethod
    def of(cls, path: Path) -> Manifest:
        """The manifest of a file, or of a folder of plain files. Raises InvalidManifest for names that are not ours."""
        if path.is_file():
            return cls((_described(path, CONTENT),))
        paths = (found for found in sorted(path.rglob("*")) if found.is_file())
        return cls.checked(_described(found, found.relative_to(path).as_posix()) for found in paths)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Read what `to_json` wrote. Raises InvalidManifest."""
        try:
            rows = json.loads(text)["files"]
            return cls.checked(BundleFile(row["name"], row["size"], row["sha256"]) for row in rows)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidManifest(f"it cannot be read ({type(error).__name__})") from error

    @classmethod
    def checked(cls, files: Iterator[BundleFile]) -> Manifest:
        """The files as a manifest. Raises InvalidManifest unless all of them are what a bundle may have."""
        found = tuple(files)
        names = {file.name for file in found if _is_ours(file)}
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        if not found or len(found) > _MOST_FILES or len(names) < len(found) or names & folders:
            raise InvalidManifest("it names what no bundle has")
        return cls(found)

    @property
    def sha256(self) -> str:
        """The checksum of `to_json`, which stands for all files."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def to_json(self) -> bytes:
        """The manifest as bytes: the same files give the same ones."""
        return json.dumps({"files": [asdict(file) for file in self.files]}, indent=1).encode()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on a storage, by its name there."""

    storage: Storage
    name: str

    def send(self, path: Path, manifest: Manifest, progress: Progress) -> None:
        """Send the files of `path`; the bundle is not there before `publish`.

        Files are named by what they hold: two that send the same bundle do not get into each other's way.
        """
        for file in manifest.files:
            with (path if path.is_file() else path / file.name).open("rb") as content:
                self.storage.save(self._object(file.sha256), File(content))
            progress(file.size)

    def publish(self, manifest: Manifest) -> None:
        """Make the bundle whose files were sent be there, in place of what was there before."""
        self.storage.save(self._object(MANIFEST), ContentFile(manifest.to_json()))
        if self.storage.exists(self._object(_DAMAGED)):
            self.storage.delete(self._object(_DAMAGED))

    def send_manifest(self, manifest: Manifest) -> None:
        """Send the manifest by the name of its checksum, for `manifest(sha256)`. It replaces no other manifest."""
        self.storage.save(self._object(manifest.sha256), ContentFile(manifest.to_json()))

    def exists(self) -> bool:
        """Whether it was published."""
        return self.storage.exists(self._object(MANIFEST))

    def is_there(self) -> bool:
        """Whether it was published, and nobody found it damaged since."""
        return self.exists() and not self.storage.exists(self._object(_DAMAGED))

    def mark_damaged(self) -> None:
        """Say that it came back as something else: it stays until somebody publishes it again."""
        self.storage.save(self._object(_DAMAGED), ContentFile(b"\n"))

    def last_written(self) -> float:
        """When anything of it was written last, in seconds since the epoch; 0 where there is nothing."""
        names = self.storage.listdir(self.name)[1]
        times = [self.storage.get_modified_time(self._object(name)).timestamp() for name in names]
        return max(times, default=0.0)

    def manifest(self, sha256: str = "") -> Manifest:
        """The manifest of what was published, or the one that was sent with this checksum. Raises BundleDamaged."""
        try:
            with self.storage.open(self._object(sha256 or MANIFEST)) as file:
                if file.size >= LARGEST:
                    raise BundleDamaged("its manifest is far too large")
                found = Manifest.from_json(file.read())
        except FileNotFoundError as error:
            raise BundleDamaged("it has no manifest") from error
        except InvalidManifest as error:
            raise BundleDamaged(f"its manifest is none: {error}") from error
        if sha256 and found.sha256 != sha256:
            raise BundleDamaged("its manifest is not what was written")
        return found

    def fetch(self, manifest: Manifest, folder: Path, progress: Progress) -> None:
        """Bring all files into an empty folder. Raises BundleDamaged."""
        for file in manifest.files:
            self._fetch(file, folder / file.name, progress)

    def remove(self) -> None:
        """Delete it. A removal that is cut off leaves no bundle there, and can be taken up again."""
        self.storage.delete(self._object(MANIFEST))
        for name in self.storage.listdir(self.name)[1]:
            self.storage.delete(self._object(name))

    def _fetch(self, file: BundleFile, target: Path, progress: Progress) -> None:
        """One file, its size known to be right before it is read, and its checksum before it is used."""
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        try:
            with self.storage.open(self._object(file.sha256)) as source, target.open("xb") as out:
                if source.size != file.size:
                    raise BundleDamaged(f"{file.name} has {source.size} bytes in place of {file.size}")
                while block := source.read(_BLOCK):
                    digest.update(block)
                    out.write(block)
                    progress(len(block))
        except FileNotFoundError as error:
            raise BundleDamaged(f"{file.name} is not there") from error
        if digest.hexdigest() != file.sha256:
            raise BundleDamaged(f"{file.name} is not what was written")

    def _object(self, name: str) -> str:
        return f"{self.name}/{name}"


def _described(path: Path, name: str) -> BundleFile:
    with path.open("rb") as file:
        return BundleFile(name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _is_ours(file: BundleFile) -> bool:
    """Whether the values are of the right kind, and the name is a plain one inside the folder."""
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
