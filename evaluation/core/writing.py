"""Files and folders that take their names only once they are whole; arrays whose room is there before they are filled.

What is not whole yet has a name that no other process gives: process ids are the same ones in each container.
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
#: What `make_folder` leaves in a folder: bytes by name of each file.
_SIZES = "sizes.json"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def beside(target: Path) -> Path:
    """A new name in the target's folder, for what is not whole yet."""
    return target.with_name(f"{target.name}.part-{secrets.token_hex(8)}")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Where to write a file that takes its name only when the block has ended well."""
    unfinished = beside(path)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def complete_or_absent(path: Path, heading: Callable[[], str] = str) -> Iterator[TextIO]:
    """A text file that takes its name only once all of it is written; compressed if the name ends in .gz.

    Its first line is what `heading` says when all others are written; before, it has to give a line of that length.
    """
    packed = path.suffix == ".gz"
    # A member of its own that is not compressed has one length for lines of one length, so it can be written over.
    stored_as = partial(gzip.compress, compresslevel=0, mtime=0) if packed else bytes
    with appearing(path) as unfinished:
        with unfinished.open("wb") as stored:
            if line := heading():
                stored.write(stored_as(line.encode()))
            content = gzip.GzipFile("", "wb", _GZIP_LEVEL, stored) if packed else stored
            with TextIOWrapper(cast(Any, content), encoding="utf-8", newline="\n") as file:
                yield file
        if line:
            with unfinished.open("r+b") as stored:
                stored.write(stored_as(heading().encode()))


def make_folder(target: Path, make: Callable[[Path], object]) -> None:
    """Have `make` fill an empty folder, which takes its name only once it is whole.

    Of several processes that make it the first is right. What the others began, or left when they were killed, is
    removed then; one that is still at it goes on with what the first one made.
    """
    unfinished = beside(target)
    unfinished.mkdir()
    try:
        make(unfinished)
        files = sorted(path for path in unfinished.rglob("*") if path.is_file())
        sizes = {path.relative_to(unfinished).as_posix(): path.stat().st_size for path in files}
        (unfinished / _SIZES).write_text(json.dumps(sizes), encoding="utf-8")
        unfinished.rename(target)
    except (OSError, RuntimeError):  # of faiss, if its folder is gone
        if not target.is_dir():
            raise
    finally:
        left = target.parent.glob(f"{target.name}.part-*") if target.is_dir() else [unfinished]
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)


def damage_of(folder: Path) -> str:
    """Which file of a folder from `make_folder` has not the bytes that it had; "" where there is none."""
    try:
        sizes: dict[str, int] = json.loads((folder / _SIZES).read_bytes())
    except FileNotFoundError:
        return ""  # of an earlier version, or not from here
    except ValueError:
        return f"{_SIZES} cannot be read"
    for name, size in sizes.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else 0
        if found != size:
            return f"{name} has {found:,} of {size:,} bytes"
    return ""


def new_map(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """An array in numpy's format, mapped, to be filled. Raises OSError where the disk has no room for it.

    Without room a process that fills the map ends by SIGBUS, and can say nothing.
    """
    array = open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
    return cast("np.memmap[Any, Any]", array)
