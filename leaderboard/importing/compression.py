"""Files as they are offered: gzip, the same bytes for the same content."""

from __future__ import annotations

import shutil
from pathlib import Path

from isal import igzip

_GZIP = b"\x1f\x8b"
_LEVEL = 2


def gzipped(source: Path, target: Path) -> Path:
    """The file as gzip: itself where it is already, else compressed to `target` without name or time."""
    with source.open("rb") as reader:
        compressed = reader.read(2) == _GZIP
        reader.seek(0)
        if compressed:
            return source
        with (
            target.open("wb") as file,
            igzip.IGzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as writer,
        ):
            shutil.copyfileobj(reader, writer, 1 << 20)
    return target
