"""What a shard on storage consists of: names, sizes and checksums of its files, as one small JSON object.

It comes back from a place that others may write to, so names and sizes are looked at before anything is done with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from leaderboard.core.storage.store import sha256_of

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
