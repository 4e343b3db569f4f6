"""Stored runs: zstd-compressed text, named by the SHA-256 of the text."""

import hashlib
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import zstandard
from django.conf import settings
from isal import isal_zlib

from evaluation.archives.compression import FileLimits, open_blocks
from evaluation.runs.header import BYTE_ORDER_MARK
from leaderboard.core.storage import shared
from leaderboard.core.storage.disk import disk_errors
from leaderboard.core.storage.store import Area, atomic_write, local_path, path_of, temporary_file, touch_existing

_BLOCK = 1 << 20
#: The value of `wbits` that makes zlib write gzip.
_GZIP = 31
#: This level shrinks runs about fivefold, at some 200 MB per second.
_LEVEL = 3


class StoredRun(NamedTuple):
    """Key of a stored run, and the size of its text in bytes."""

    sha256: str
    size: int


def store_run(path: Path | bytes, limits: FileLimits | None = None) -> StoredRun:
    """Store a run file, or its content, in any supported compression.

    Equal texts are stored once, without a byte order mark.

    Raises evaluation.core.problems.InvalidContent for a damaged file or one over `limits`, and
    leaderboard.core.storage.disk.DiskFull.
    """
    digest, size = hashlib.sha256(), 0
    folder = Path(settings.VAR) / Area.RUNS.value
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with disk_errors(folder), temporary_file(folder) as temporary:
        with (
            temporary.open("wb") as file,
            zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file) as writer,
        ):
            for block in open_blocks(path, limits or FileLimits()):
                if not size:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                digest.update(block)
                size += len(block)
                writer.write(block)
        sha256 = digest.hexdigest()
        target = path_of(Area.RUNS, sha256)
        if not touch_existing(target):
            with atomic_write(target) as temporary_target:
                temporary_target.unlink()
                temporary_target.hardlink_to(temporary)
        shared.send(target)
    return StoredRun(sha256, size)


def run_path(sha256: str) -> Path:
    """Return the path of the compressed run, which all readers of runs in `evaluation` accept."""
    return local_path(Area.RUNS, sha256)


@contextmanager
def open_run(sha256: str) -> Iterator[BinaryIO]:
    """Open the text of a stored run as a byte stream. Raises FileNotFoundError for an unknown run."""
    with run_path(sha256).open("rb") as stored, zstandard.ZstdDecompressor().stream_reader(stored) as source:
        yield io.BufferedReader(cast(io.RawIOBase, source), _BLOCK)


def read_text(sha256: str) -> bytes:
    with open_run(sha256) as source:
        return source.read()


def write_text(sha256: str, target: Path) -> None:
    """Write the text of a stored run to a file. Raises FileNotFoundError for an unknown run."""
    with open_run(sha256) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, _BLOCK)


def gzipped_run(sha256: str) -> Iterator[bytes]:
    """Yield the text of a stored run as gzip blocks. Raises FileNotFoundError for an unknown run."""
    compressor = isal_zlib.compressobj(level=1, wbits=_GZIP)
    with open_run(sha256) as source:
        while block := source.read(_BLOCK):
            yield compressor.compress(block)
    yield compressor.flush()
