"""Tar archives of strangers, read member by member: regular files, and headers that say nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BLOCK = 512
_MOST_PAX = 64 * 1024
_MOST_MEMBERS = 256
_OCTAL = re.compile(rb"[0-7]{1,12}")
_PAX = re.compile(rb"(\d{1,6}) ([^=]{1,256})=")
#: What extended headers may speak of: times, owners and attributes, which nobody needs. Never names or sizes.
_HARMLESS = re.compile(rb"mtime|atime|ctime|uid|gid|uname|gname|comment|(SCHILY|LIBARCHIVE)\..*", re.DOTALL)
_REGULAR, _FOLDER, _EXTENDED = (b"0", b"\0"), b"5", (b"x", b"g")


class NotTar(ValueError):
    """What is wrong with an archive: `code` is a code of checkpoints, the text says what was found."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file in the archive, whose bytes come next."""

    name: str
    size: int


def members(read: Callable[[int], bytes], skip: Callable[[int], None]) -> Iterator[Member]:
    """Every regular file, in order. `read(n)` gives exactly n bytes of the archive, or fewer at its end.

    The caller takes the `size` bytes of each member, by `read` or `skip`, before it asks for the next; the padding
    is taken here. After the last member nothing but zeros may follow. Raises NotTar.
    """
    for _ in range(_MOST_MEMBERS):
        header = read(BLOCK)
        if header == bytes(BLOCK):
            return _end(read)
        if len(header) < BLOCK:
            raise NotTar("compression", "the archive ends in the middle")
        kind = header[156:157]
        size = _header_size(header)
        name = _name(header)
        if kind in _EXTENDED:
            _check_extended(read, size, name)
        elif kind == _FOLDER:
            if size:
                raise NotTar("member_kind", f"the folder {name!r} has content")
        elif kind in _REGULAR:
            if name.endswith("/"):
                raise NotTar("member_kind", f"{name!r} is a folder by its name, and a file by its kind")
            yield Member(name, size)
            skip(-size % BLOCK)
        else:
            raise NotTar(
                "member_kind", f"{name!r} is a link, a device, a sparse file or another special member"
            )
    raise NotTar("too_many_files", f"the archive has more than {_MOST_MEMBERS} members")


def _header_size(header: bytes) -> int:
    """The member's size, after the header's own checks."""
    if header[257:262] != b"ustar":
        raise NotTar("compression", "a header is not of the ustar format")
    counted = sum(header) - sum(header[148:156]) + 8 * 32
    if counted != _number(header[148:156]):
        raise NotTar("compression", "a header's checksum is wrong")
    return _number(header[124:136])


def _number(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not _OCTAL.fullmatch(digits):
        raise NotTar("member_kind", "a header has a number that is not octal")
    return int(digits, 8)


def _name(header: bytes) -> str:
    """The whole name. Characters beyond ASCII become such as no name may have."""
    parts = [header[345:500].split(b"\0")[0], header[:100].split(b"\0")[0]]
    if header[257:265] == b"ustar  \0":  # GNU's: other things stand where the prefix would
        parts[0] = b""
    return b"/".join(part for part in parts if part).decode("ascii", "replace").removeprefix("./")


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
