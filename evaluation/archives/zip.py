"""Zips that strangers packed: only regular members, under names of ours, counted as they are written.

A zip describes each member twice, and says where it lies. Headers that differ, or members that overlap, are refused.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from evaluation.archives.compression import COMPRESSION, EXPANSION, MIB, describe_bytes
from evaluation.core.problems import InvalidContent, ProblemCode

MEMBER_NAME = ProblemCode("member_name", "A file in the zip is there twice, or its name is no plain relative path.",
    "Pack every file once, as <dataset>.txt.", "../nfcorpus.txt")  # fmt: skip
MEMBER_KIND = ProblemCode("member_kind", "A file in the zip is encrypted, a link or a device.", "Pack regular files "
    "without a password.")  # fmt: skip
TOO_MANY_FILES = ProblemCode("too_many_files", "More run files than one submission, or one zip, may have.",
    "Send at most 64, those in zips counted.")  # fmt: skip

#: Told a member's name and the share of it that is written, 0 to 1.
Progress = Callable[[str, float], None]

_BLOCK = MIB
#: Free space is asked for before each member, and each time that so many bytes were written.
_DISK_INTERVAL = 8 * MIB
#: What a zip's list of members may take, which zipfile reads whole: so many bytes, or so many a member.
_LIST_BYTES, _LIST_BYTES_EACH = 2 * MIB, 1024
#: Characters of a name in a message.
_SHOWN = 120
#: The methods that zipfile expands piece by piece. Of bzip2 and LZMA it expands all that one read brings: gigabytes.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_OTHER_METHODS = {
    9: "deflate64",
    zipfile.ZIP_BZIP2: "bzip2",
    zipfile.ZIP_LZMA: "LZMA",
    93: "zstd",
    95: "xz",
    98: "PPMd",
}
#: OverflowError: of a place that no file can have.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ZipPolicy:
    """What a zip may be; sizes in bytes. The hints say what would be right, for the two limits its sender may meet.

    Expanding stops at `max_ratio` times the zip's own size, which does not apply below `ratio_floor_bytes`, and at
    `max_expanded_bytes` in any case (None: no such limit). `free_bytes` of the disk are left to others.
    """

    max_members: int
    members_hint: str
    expansion_hint: str
    max_ratio: float = 50
    ratio_floor_bytes: int = 64 * MIB
    max_expanded_bytes: int | None = None
    free_bytes: int = 0

    def allowance(self, stored_bytes: int) -> int:
        """How many bytes may come out of a zip of this size."""
        plausible = max(self.ratio_floor_bytes, int(self.max_ratio * stored_bytes))
        return plausible if self.max_expanded_bytes is None else min(plausible, self.max_expanded_bytes)

    def check_disk_space(self, folder: Path) -> None:
        """Raise OSError (ENOSPC) where the folder's disk has less free than is left to others."""
        if self.free_bytes and shutil.disk_usage(folder).free < self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


class ZipAllowance:
    """How many bytes may come out of a zip, or of several that came together and share it."""

    def __init__(self, total: int, expanding: str = "the zip expands") -> None:
        self.total = self.left = total
        self.expanding = expanding


def is_zip(path: Path) -> bool:
    """Whether the file begins as a zip does."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def open_archive(path: Path, policy: ZipPolicy, shared: ZipAllowance | None = None) -> Iterator[Archive]:
    """The zip, opened. Raises InvalidContent where it is damaged, or has too many members or a doubtful path.

    What comes out of it counts against `shared`, else against what the policy gives a zip of its size.
    """
    with _BoundedReader(path, policy) as stored:
        with _archive_errors():
            archive = zipfile.ZipFile(stored)
        with archive:
            opened = Archive(archive, policy, shared or ZipAllowance(policy.allowance(path.stat().st_size)))
            with _archive_errors():
                # Bytes that belong to several members could expand to a bomb, or be other members for another program.
                last, before = 0, None
                for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
                    if before is not None and info.header_offset < last:
                        raise _mismatch(before, "its bytes are those of another member too")
                    last, before = _end_of(stored, info), info
                if before is not None and last > archive.start_dir:
                    raise _mismatch(before, "its bytes go on into the zip's list of members")
            yield opened


class Archive:
    """The members of a zip, without folders and the files that operating systems and editors add.

    `names` have / between folders, although Compress-Archive of Windows PowerShell writes backslashes. `first_byte` is
    the offset of the first member: a value other than 0 means that other data precedes it.
    """

    def __init__(self, archive: zipfile.ZipFile, policy: ZipPolicy, allowance: ZipAllowance) -> None:
        self._archive, self._policy, self._allowance = archive, policy, allowance
        self.first_byte = min((info.header_offset for info in archive.infolist()), default=0)
        files = [(_plain(info.filename), info) for info in archive.infolist()]
        files = [(name, info) for name, info in files if not name.endswith("/")]
        for name, info in files:
            whole = _plain(info.orig_filename)  # `filename` is cut at NUL
            climbs = (
                whole.startswith("/") or ".." in PurePosixPath(whole).parts or re.match("[A-Za-z]:", whole)
            )
            if not whole or climbs or not (is_clutter(name) or whole.isprintable()):
                message = f"the zip has a member with a doubtful path: {whole[:_SHOWN]!r}"
                hint = "Pack files under plain relative names, with / between folders."
                raise MEMBER_NAME.refusal(message, hint)
        self._infos = [(name, info) for name, info in files if not is_clutter(name)]
        self.names = tuple(name for name, _ in self._infos)
        if len(self.names) > policy.max_members:
            raise _too_many(f"the zip holds {len(self.names):,} files", policy)

    def extract(self, targets: Mapping[str, Path], progress: Progress = lambda name, share: None) -> None:
        """Write members, by name, to paths that the caller chose; other members are left alone.

        Raises InvalidContent, before anything is written where it can be told; OSError (ENOSPC) where the disk is
        full or would leave others less than the policy says, which is no fault of the zip.
        """
        often = Counter(name.casefold() for name in self.names)
        wanted = [(name, info) for name, info in self._infos if name in targets]
        for name, info in wanted:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.flag_bits & _ENCRYPTED or (kind and not stat.S_ISREG(kind)):
                message = f"{_quote(info.filename)} is encrypted, a link or a device"
                raise MEMBER_KIND.refusal(message, "Pack regular files without a password.")
            if info.compress_type not in _METHODS:
                method = _OTHER_METHODS.get(info.compress_type, f"method {info.compress_type}")
                message = f"{_quote(info.filename)} is compressed with {method}, which is not read here"
                raise COMPRESSION.refusal(message, "Pack with the usual method, deflate.")
            if often[name.casefold()] > 1:
                raise MEMBER_NAME.refusal(f"the zip has {_quote(name)} twice", "Pack every file once.")
        for name, info in wanted:
            target = targets[name]
            self._policy.check_disk_space(target.parent)
            with target.open("wb") as writer:
                for block in self._blocks(info, target.parent):
                    writer.write(block)
                    progress(name, min(1.0, writer.tell() / max(1, info.file_size)))

    def _blocks(self, info: zipfile.ZipInfo, folder: Path) -> Iterator[bytes]:
        """A member's bytes, counted rather than believed."""
        with _archive_errors():
            reader = self._archive.open(info)
        with reader:
            while True:
                with _archive_errors():
                    block = reader.read(min(_BLOCK, self._allowance.left + 1))
                if not block:
                    return
                self._count(len(block), info, folder)
                yield block

    def _count(self, more: int, info: zipfile.ZipInfo, folder: Path) -> None:
        allowed = self._allowance
        allowed.left -= more
        if allowed.left < 0:
            limit = describe_bytes(allowed.total)
            message = f"{allowed.expanding} to more than {limit} at {_quote(info.filename)}"
            raise EXPANSION.refusal(message, self._policy.expansion_hint)
        if (allowed.total - allowed.left) % _DISK_INTERVAL < more:
            self._policy.check_disk_space(folder)


class _BoundedReader(io.BufferedReader):
    """The stored zip. zipfile reads the list of members at once, and makes an object of each: a long one is refused."""

    def __init__(self, path: Path, policy: ZipPolicy) -> None:
        super().__init__(io.FileIO(path))
        self._policy = policy
        self._bound = max(_LIST_BYTES, policy.max_members * _LIST_BYTES_EACH)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._bound:
            raise _too_many(f"the zip's list of files takes {describe_bytes(size)}", self._policy)
        return super().read(size)


@contextmanager
def _archive_errors() -> Iterator[None]:
    """While a zip is read: what is wrong with it becomes InvalidContent, what is wrong with our disk passes."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        hint = "Pack it again, and check it with `unzip -t`."
        ours = isinstance(error, zipfile.BadZipFile)  # the others are a decompressor's, in words of its own
        why = _quote(str(error)) if ours else "what is packed in it does not expand"
        raise COMPRESSION.refusal(f"the zip is damaged: {why}", hint) from error


def _plain(name: str) -> str:
    return name.replace("\\", "/")


#: Folders of operating systems, version control, and editors, in lower case.
_CLUTTER_FOLDERS = frozenset((
    "__macosx", ".git", ".svn", ".hg", "__pycache__", ".ipynb_checkpoints", ".idea", ".vscode", ".vs", "$recycle.bin",
    "system volume information", ".spotlight-v100", ".trashes", ".fseventsd", ".temporaryitems", "@eadir", "lost+found",
))  # fmt: skip
#: Files of operating systems, version control, and editors.
_CLUTTER = re.compile(
    r"\._.*|\.ds_store|\.localized|\.apdisk|\.volumeicon\.icns|icon\r|(?:eh)?thumbs(?:_vista)?\.db|desktop\.ini"
    r"|\.directory|.*\.lnk|\.git.*|\.hg(?:ignore|tags)|\.editorconfig|\.nfs[0-9a-f]+|\.fuse_hidden.*"
    r"|.*~|~\$.*|\.~.*|\.#.*|#.*#|.*\.(?:bak|orig|rej|tmp|sw[a-p])",
    re.DOTALL | re.IGNORECASE,
)
#: Files that document the others, and those whose extensions are of scripts, settings, logs, documents, and images.
_COMPANION = re.compile(
    r"(?:readme|licen[cs]e|copying|notice|citation|changelog|authors)(?:[-_].*)?(?:\.(?:md|txt|rst|html?|pdf|cff|bib))?"
    r"|makefile|dockerfile|requirements\.txt"
    r"|.*\.(?:sh|bash|bat|ps1|py|ipynb|ya?ml|toml|ini|cfg|log|md|rst|tex|bib|html?|pdf|png|jpe?g|gif|svg)",
    re.IGNORECASE,
)


def is_clutter(name: str) -> bool:
    """Return whether operating systems, version control, or editors add files of this name, with / between folders."""
    *folders, base = name.split("/")
    return not _CLUTTER_FOLDERS.isdisjoint(map(str.casefold, folders)) or _CLUTTER.fullmatch(base) is not None


def without_companions(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without READMEs, scripts, images, and similar files, or all names if there are no others."""
    every = tuple(names)
    return tuple(name for name in every if not _COMPANION.fullmatch(name.rpartition("/")[2])) or every


def _quote(text: str) -> str:
    """A member's name, or what zipfile says of one, for a message: a name may have 64 KiB, and any character."""
    start = "".join(each if each.isprintable() else "�" for each in text[:_SHOWN])
    return start if len(text) <= _SHOWN else f"{start}…"


def _too_many(message: str, policy: ZipPolicy) -> InvalidContent:
    return TOO_MANY_FILES.refusal(message, policy.members_hint)


_HEADER = struct.Struct("<4s5H3I2H")
_SIZES_FOLLOW, _ENCRYPTED = 0x8, 0x1
_IN_EXTRA = 0xFFFF_FFFF


def _mismatch(info: zipfile.ZipInfo, message: str) -> InvalidContent:
    message = f"the zip is damaged at {_quote(info.orig_filename)}: {message}"
    return COMPRESSION.refusal(message, "Pack it again, with another program.")


def _end_of(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the place where the member's compressed bytes end."""
    file.seek(info.header_offset)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise _mismatch(info, "there is no header where the list says")
    _, _, flags, method, _, _, checksum, stored, expanded, name_bytes, extra_bytes = _HEADER.unpack(header)
    name, extra = file.read(name_bytes), file.read(extra_bytes)
    try:
        own_name = name.decode("utf-8" if flags & 0x800 else "cp437")
    except UnicodeDecodeError:
        own_name = None
    if own_name != info.orig_filename:
        raise _mismatch(info, "its own header gives it another name")
    if method != info.compress_type or flags & ~info.flag_bits & _ENCRYPTED:
        raise _mismatch(info, "its own header says that it was packed in another way")
    if not flags & _SIZES_FOLLOW:
        sizes = _sizes(expanded, stored, extra)
        if (checksum, *sizes) != (info.CRC, info.file_size, info.compress_size):
            raise _mismatch(info, "its own header gives it another size or checksum")
    return info.header_offset + _HEADER.size + len(name) + len(extra) + info.compress_size


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
