"""Tar archives of strangers, read member by member: regular files, and headers that say nothing else.

tarfile reads each header. Members are walked here, since tarfile itself takes long names and extended headers of any
size into memory. Its data filter judges the paths that it writes to; no file of ours lies under a path from an archive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from tarfile import AREGTYPE, REGTYPE, XGLTYPE, XHDTYPE, HeaderError, TarInfo

BLOCK = 512
_MOST_PAX = 64 * 1024
_MOST_MEMBERS = 256
_PAX = re.compile(rb"(\d{1,6}) ([^=]{1,256})=")
#: What extended headers may speak of: times, owners and attributes, which nobody needs. Never names or sizes.
_HARMLESS = re.compile(rb"mtime|atime|ctime|uid|gid|uname|gname|comment|(SCHILY|LIBARCHIVE)\..*", re.DOTALL)


class NotTar(ValueError):
    """What is wrong with an archive: `code` is a code of checkpoints, the text says what was found."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def members(read: Callable[[int], bytes], skip: Callable[[int], None]) -> Iterator[TarInfo]:
    """Every regular file, in order. `read(n)` gives exactly n bytes of the archive, or fewer at its end.

    The caller takes the `size` bytes of each member, by `read` or `skip`, before it asks for the next; the padding
    is taken here. After the last member nothing but zeros may follow. Raises NotTar.
    """
    for _ in range(_MOST_MEMBERS):
        header = read(BLOCK)
        if header == bytes(BLOCK):
            return _end(read)
        info = _info(header)
        name, size = info.name, info.size
        if info.type in (XHDTYPE, XGLTYPE):
            _check_extended(read, size, name)
        elif info.isdir():
            if size:
                raise NotTar("member_kind", f"the folder {name!r} has content")
        elif info.type in (REGTYPE, AREGTYPE):
            if name.endswith("/"):
                raise NotTar("member_kind", f"{name!r} is a folder by its name, and a file by its kind")
            yield info
            skip(-size % BLOCK)
        else:
            raise NotTar(
                "member_kind", f"{name!r} is a link, a device, a sparse file or another special member"
            )
    raise NotTar("too_many_files", f"the archive has more than {_MOST_MEMBERS} members")


def _info(header: bytes) -> TarInfo:
    """What a header says. Characters of the name beyond ASCII become such as no name may have."""
    if len(header) < BLOCK:
        raise NotTar("compression", "the archive ends in the middle")
    if header[257:262] != b"ustar":
        raise NotTar("compression", "a header is not of the ustar format")
    try:
        info = TarInfo.frombuf(header, "ascii", "replace")
    except HeaderError as error:
        raise NotTar("compression", f"a header is damaged: {error}") from error
    if info.size < 0:
        raise NotTar("compression", "a header has a size below zero")
    info.name = info.name.removeprefix("./")
    return info


def _check_extended(read: Callable[[int], bytes], size: int, name: str) -> None:
    """Take an extended header, and refuse one that gives a member another name, size or kind."""
    if size > _MOST_PAX:
        raise NotTar("member_kind", f"the extended header {name!r} is too long")
    data = read(size + -size % BLOCK)[:size]
    place = 0
    while place < size:
        found = _PAX.match(data, place)
        length = int(found[1]) if found else 0
        if (
            found is None
            or length <= found.end() - place
            or data[place + length - 1 : place + length] != b"\n"
        ):
            raise NotTar("compression", f"the extended header {name!r} is damaged")
        if not _HARMLESS.fullmatch(found[2]):
            key = found[2].decode("ascii", "replace")
            raise NotTar("member_kind", f"an extended header gives a member another {key}")
        place += length


def _end(read: Callable[[int], bytes]) -> None:
    """Take what follows on the first block of zeros: more zeros, as many as programs like to add."""
    left = 1024 * 1024
    while block := read(BLOCK):
        left -= len(block)
        if block.count(0) != len(block) or left < 0:
            raise NotTar("trailing_data", "something follows on the end of the archive")
