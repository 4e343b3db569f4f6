"""Atomic creation of files and folders, and memory-mapped arrays with disk space reserved in advance.

Temporary names are random, because process ids are not unique across containers.
"""

import errno
import gzip
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from numpy.lib.format import open_memmap

_GZIP_LEVEL = 6
#: File in which `make_folder` stores the size of each file of the folder.
_SIZES = "sizes.json"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def temporary_path(target: Path) -> Path:
    """Return an unused temporary path in the target's folder."""
    return target.with_name(f"{target.name}.part-{secrets.token_hex(8)}")


@contextmanager
def replace_on_success(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds."""
    unfinished = temporary_path(path)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def open_atomically(path: Path, heading: Callable[[], str] = str) -> Iterator[TextIO]:
    """Open a text file that appears only when it is complete; gzip-compressed if its name ends in .gz.

    `heading` returns the first line, or an empty string for none. It is called again after the content has been
    written, and must always return a line of the same length.
    """
    packed = path.suffix == ".gz"
    # The first line is a separate gzip member without compression. Its length depends only on the length of the line,
    # so it can be overwritten.
    stored_as = partial(gzip.compress, compresslevel=0, mtime=0) if packed else bytes
    with replace_on_success(path) as unfinished:
        with unfinished.open("wb") as raw_file:
            if line := heading():
                raw_file.write(stored_as(line.encode()))
            content = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw_file) if packed else raw_file
            with TextIOWrapper(cast(Any, content), encoding="utf-8", newline="\n") as file:
                yield file
        if line:
            with unfinished.open("r+b") as raw_file:
                raw_file.write(stored_as(heading().encode()))


def make_folder(target: Path, make: Callable[[Path], object]) -> None:
    """Create a folder atomically with the content that `make` writes.

    If several processes create the same folder, the first one to finish wins. Temporary folders of the others, and of
    killed processes, are then removed. A process that is still busy continues with the finished folder.
    """
    unfinished = temporary_path(target)
    unfinished.mkdir()
    try:
        make(unfinished)
        files = sorted(path for path in unfinished.rglob("*") if path.is_file())
        sizes = {path.relative_to(unfinished).as_posix(): path.stat().st_size for path in files}
        (unfinished / _SIZES).write_text(json.dumps(sizes), encoding="utf-8")
        unfinished.rename(target)
    except (OSError, RuntimeError):  # faiss raises RuntimeError if its folder is gone
        if not target.is_dir():
            raise
    finally:
        leftovers = target.parent.glob(f"{target.name}.part-*") if target.is_dir() else [unfinished]
        for folder in leftovers:
            shutil.rmtree(folder, ignore_errors=True)


def describe_damage(folder: Path) -> str:
    """Describe the first file that no longer has the size stored by `make_folder`.

    Returns an empty string if all files are intact or no sizes were stored.
    """
    try:
        sizes: dict[str, int] = json.loads((folder / _SIZES).read_bytes())
    except FileNotFoundError:
        return ""  # made by an earlier version or by another program
    except ValueError:
        return f"{_SIZES} cannot be read"
    for name, size in sizes.items():
        path = folder / name
        actual = path.stat().st_size if path.is_file() else 0
        if actual != size:
            return f"{name} has {actual:,} of {size:,} bytes"
    return ""


def new_map(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create a memory-mapped .npy array with disk space reserved. Raises OSError if the disk is full.

    Without the reservation, a process that fills the map on a full disk is killed by SIGBUS.
    """
    array = open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
    return cast("np.memmap[Any, Any]", array)
