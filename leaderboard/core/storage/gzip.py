"""Files as they are offered: gzip, the same bytes for the same content."""

from __future__ import annotations

import shutil
from pathlib import Path

from isal import igzip

_GZIP = b"\x1f\x8b"
_LEVEL = 2
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def gzipped(source: Path, target: Path) -> Path:
    """The file's content as gzip in `target`, without name, time or byte order mark: however it was sent, the same
    bytes."""
    with source.open("rb") as start:
        compressed = start.read(2) == _GZIP
    with (
        igzip.open(source, "rb") if compressed else source.open("rb") as reader,
        target.open("wb") as file,
        igzip.IGzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as writer,
    ):
        writer.write(reader.read(len(_BYTE_ORDER_MARK)).removeprefix(_BYTE_ORDER_MARK))
        shutil.copyfileobj(reader, writer, 1 << 20)
    return target
