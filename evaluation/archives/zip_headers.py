"""A zip says everything of a member twice, and where each lies: what differs or overlaps, no honest program wrote."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from typing import BinaryIO

_HEADER = struct.Struct("<4s5H3I2H")
_SIZES_FOLLOW, _ENCRYPTED = 0x8, 0x1
_IN_EXTRA = 0xFFFF_FFFF


class LyingHeader(ValueError):
    """What is wrong with a member's header, in words; `place` is that of the member in the list."""

    def __init__(self, place: int, what: str) -> None:
        self.place = place
        super().__init__(what)


def refuse_lies(file: BinaryIO, infos: Sequence[zipfile.ZipInfo], end: int) -> None:
    """Compare each member's own header with the list's; members have to lie apart and before byte `end`, the list's.

    The same bytes could else be many members (a bomb that expands without nested archives), or another member for
    another program. Raises LyingHeader.
    """
    last, before = 0, 0
    for place in sorted(range(len(infos)), key=lambda place: infos[place].header_offset):
        start = infos[place].header_offset
        if start < last:
            raise LyingHeader(before, "its bytes are those of another member too")
        last, before = _end_of(file, infos[place], place), place
    if last > end:
        raise LyingHeader(before, "its bytes go on into the zip's list of members")


def _end_of(file: BinaryIO, info: zipfile.ZipInfo, place: int) -> int:
    """Where the member's compressed bytes end."""
    file.seek(info.header_offset)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise LyingHeader(place, "there is no header where the list says")
    _, _, flags, method, _, _, checksum, stored, expanded, name_bytes, extra_bytes = _HEADER.unpack(header)
    name, extra = file.read(name_bytes), file.read(extra_bytes)
    if _text(name, flags) != info.orig_filename:
        raise LyingHeader(place, "its own header gives it another name")
    if method != info.compress_type or flags & ~info.flag_bits & _ENCRYPTED:
        raise LyingHeader(place, "its own header says that it was packed in another way")
    if not flags & _SIZES_FOLLOW:
        sizes = _sizes(expanded, stored, extra)
        if (checksum, *sizes) != (info.CRC, info.file_size, info.compress_size):
            raise LyingHeader(place, "its own header gives it another size or checksum")
    return info.header_offset + _HEADER.size + len(name) + len(extra) + info.compress_size


def _text(name: bytes, flags: int) -> str | None:
    try:
        return name.decode("utf-8" if flags & 0x800 else "cp437")
    except UnicodeDecodeError:
        return None


def _sizes(expanded: int, stored: int, extra: bytes) -> tuple[int, int]:
    """Expanded and stored size, from the extra field of large files where the header has no room for them."""
    if _IN_EXTRA not in (expanded, stored):
        return expanded, stored
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        if kind == 1:
            field = extra[place + 4 : place + 4 + length]
            wanted = (value for (value,) in struct.iter_unpack("<Q", field[: len(field) // 8 * 8]))
            expanded = next(wanted, expanded) if expanded == _IN_EXTRA else expanded
            stored = next(wanted, stored) if stored == _IN_EXTRA else stored
            break
        place += 4 + length
    return expanded, stored
