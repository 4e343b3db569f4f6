"""Bounded extraction of zips from untrusted sources: regular members only, under names that the caller chooses.

A zip contains two descriptions and the offset of each member. Zips with contradicting headers or overlapping members
are refused.
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

MEMBER_NAME = ProblemCode("member_name", "The zip has a file twice, or a file whose name is not a plain relative path.",
    "Pack every file once, as <dataset>.txt.", "../nfcorpus.txt")  # fmt: skip
MEMBER_KIND = ProblemCode("member_kind", "A file in the zip is encrypted, a link, or a device.", "Pack regular files "
    "without a password.")  # fmt: skip
TOO_MANY_FILES = ProblemCode("too_many_files", "More run files than a submission or a zip may have.",
    "Send at most 64 files, including those in zips.")  # fmt: skip

#: Callback that receives a member's name and the written share of it, 0 to 1.
Progress = Callable[[str, float], None]

_BLOCK = MIB
#: Free space is checked before each member, and whenever this number of bytes was written.
_DISK_INTERVAL = 8 * MIB
#: Maximum size of a zip's list of members, which zipfile reads into memory: in bytes, and in bytes per
#: member.
_LIST_BYTES, _LIST_BYTES_EACH = 2 * MIB, 1024
#: Number of characters of a name in a message.
_QUOTED_CHARACTERS = 120
#: Methods that zipfile expands piecewise. With bzip2 and LZMA, a single read can expand to gigabytes.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_OTHER_METHODS = {
    9: "deflate64",
    zipfile.ZIP_BZIP2: "bzip2",
    zipfile.ZIP_LZMA: "LZMA",
    93: "zstd",
    95: "xz",
    98: "PPMd",
}
#: Errors of damaged zips; OverflowError is raised for impossible offsets.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ZipPolicy:
    """Limits of a zip, in bytes, and hints for the two limits that a sender can correct.

    Expansion stops at `max_ratio` times the zip's size, but not below `ratio_floor_bytes`, and always at
    `max_expanded_bytes` (None for no such limit). `free_bytes` of the disk must remain free.
    """

    max_members: int
    members_hint: str
    expansion_hint: str
    max_ratio: float = 50
    ratio_floor_bytes: int = 64 * MIB
    max_expanded_bytes: int | None = None
    free_bytes: int = 0

    def allowance(self, stored_bytes: int) -> int:
        """Return how many bytes a zip of this size may expand to."""
        plausible = max(self.ratio_floor_bytes, int(self.max_ratio * stored_bytes))
        return plausible if self.max_expanded_bytes is None else min(plausible, self.max_expanded_bytes)

    def check_disk_space(self, folder: Path) -> None:
        """Raise OSError (ENOSPC) if the folder's disk has less than `free_bytes` free."""
        if self.free_bytes and shutil.disk_usage(folder).free < self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


class ZipAllowance:
    """Remaining number of bytes that a zip, or several zips sent together, may expand to.

    `message_start` begins the error if there are more, and is followed by "to more than 64 MiB".
    """

    def __init__(self, total: int, message_start: str = "the zip expands") -> None:
        self.total = self.remaining_bytes = total
        self.message_start = message_start


def is_zip(path: Path) -> bool:
    """Return whether the file begins like a zip."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def open_archive(path: Path, policy: ZipPolicy, allowance: ZipAllowance | None = None) -> Iterator[Archive]:
    """Open a zip for extraction.

    Expanded bytes count against `allowance`, or against the policy's limit for a zip of this size. Raises
    InvalidContent if the zip is damaged, has overlapping members or contradicting headers, too many members, or an
    unsafe path.
    """
    with _BoundedReader(path, policy) as stored:
        with _archive_errors():
            archive = zipfile.ZipFile(stored)
        with archive:
            opened_archive = Archive(archive, policy, allowance or ZipAllowance(policy.allowance(path.stat().st_size)))
            with _archive_errors():
                # Overlapping members can be a zip bomb, and other programs may read them differently.
                last_end, previous = 0, None
                for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
                    if previous is not None and info.header_offset < last_end:
                        raise _mismatch(previous, "its bytes overlap with another member")
                    last_end, previous = _find_end(stored, info), info
                if previous is not None and last_end > archive.start_dir:
                    raise _mismatch(previous, "its bytes overlap with the zip's list of members")
            yield opened_archive


class Archive:
    """Members of a zip, without folders and files added by operating systems and editors.

    `names` have / between folders, although Compress-Archive of Windows PowerShell writes backslashes. `first_byte` is
    the offset of the first member: a value other than 0 means that other data precedes it. Raises InvalidContent for
    too many members or an unsafe path.
    """

    def __init__(self, archive: zipfile.ZipFile, policy: ZipPolicy, allowance: ZipAllowance) -> None:
        self._archive, self._policy, self._allowance = archive, policy, allowance
        self.first_byte = min((info.header_offset for info in archive.infolist()), default=0)
        files = [(_with_slashes(info.filename), info) for info in archive.infolist()]
        files = [(name, info) for name, info in files if not name.endswith("/")]
        for name, info in files:
            path = _with_slashes(info.orig_filename)  # `filename` is cut at NUL.
            climbs = path.startswith("/") or ".." in PurePosixPath(path).parts or re.match("[A-Za-z]:", path)
            if not path or climbs or not (is_clutter(name) or path.isprintable()):
                message = f"the zip has a member with an unsafe path: {path[:_QUOTED_CHARACTERS]!r}"
                raise MEMBER_NAME.refusal(message, "Pack files under plain relative names with / between folders.")
        self._infos = [(name, info) for name, info in files if not is_clutter(name)]
        self.names = tuple(name for name, _ in self._infos)
        if len(self.names) > policy.max_members:
            raise _too_many(f"the zip has {len(self.names):,} files", policy)

    def extract(self, targets: Mapping[str, Path], progress: Progress = lambda name, share: None) -> None:
        """Write the members in `targets`, by name, to the given paths. Names that are not in the zip are ignored.

        Raises InvalidContent, before writing if possible, if a member is encrypted, a link, a device, unsupported,
        repeated, damaged, or too large. Raises OSError (ENOSPC) if the disk is full or would have less than the
        policy's free space, which is not the zip's fault.
        """
        name_counts = Counter(name.casefold() for name in self.names)
        members = [(name, info) for name, info in self._infos if name in targets]
        for name, info in members:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.flag_bits & _ENCRYPTED or (kind and not stat.S_ISREG(kind)):
                message = f"{_quote(info.filename)} is encrypted, a link, or a device"
                raise MEMBER_KIND.refusal(message, "Pack regular files without a password.")
            if info.compress_type not in _METHODS:
                method = _OTHER_METHODS.get(info.compress_type, f"method {info.compress_type}")
                message = f"{_quote(info.filename)} is compressed with {method}, which is not supported"
                raise COMPRESSION.refusal(message, "Pack with the method deflate.")
            if name_counts[name.casefold()] > 1:
                raise MEMBER_NAME.refusal(f"the zip has {_quote(name)} twice", "Pack every file once.")
        for name, info in members:
            target = targets[name]
            self._policy.check_disk_space(target.parent)
            with target.open("wb") as writer:
                for block in self._read_blocks(info, target.parent):
                    writer.write(block)
                    progress(name, min(1.0, writer.tell() / max(1, info.file_size)))

    def _read_blocks(self, info: zipfile.ZipInfo, folder: Path) -> Iterator[bytes]:
        """Yield a member's expanded bytes, which are counted against the allowance instead of trusting the header.

        Raises InvalidContent if the member is damaged or expands over the allowance, and OSError if the disk is nearly
        full.
        """
        with _archive_errors():
            reader = self._archive.open(info)
        with reader:
            while True:
                with _archive_errors():
                    block = reader.read(min(_BLOCK, self._allowance.remaining_bytes + 1))
                if not block:
                    return
                self._count_bytes(len(block), info, folder)
                yield block

    def _count_bytes(self, count: int, info: zipfile.ZipInfo, folder: Path) -> None:
        """Subtract expanded bytes from the allowance, and check the disk space at intervals.

        Raises InvalidContent if the allowance is exceeded, and OSError if less than the policy's space is free.
        """
        allowance = self._allowance
        allowance.remaining_bytes -= count
        if allowance.remaining_bytes < 0:
            limit = describe_bytes(allowance.total)
            message = f"{allowance.message_start} to more than {limit} at {_quote(info.filename)}"
            raise EXPANSION.refusal(message, self._policy.expansion_hint)
        if (allowance.total - allowance.remaining_bytes) % _DISK_INTERVAL < count:
            self._policy.check_disk_space(folder)


class _BoundedReader(io.BufferedReader):
    """Reader of the stored zip that refuses a long list of members, because zipfile creates an object for each."""

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
    """Convert errors of the zip to InvalidContent, but let errors of the local disk pass."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        hint = "Pack the files again and check the zip with `unzip -t`."
        has_clear_message = isinstance(error, zipfile.BadZipFile)  # Other messages come from decompressors.
        reason = _quote(str(error)) if has_clear_message else "its data cannot be decompressed"
        raise COMPRESSION.refusal(f"the zip is damaged: {reason}", hint) from error


def _with_slashes(name: str) -> str:
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
#: Names of files that document others, and extensions of scripts, settings, logs, documents, and images.
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


def drop_companions(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without READMEs, scripts, images, and similar files, or all names if there are no others."""
    all_names = tuple(names)
    return tuple(name for name in all_names if not _COMPANION.fullmatch(name.rpartition("/")[2])) or all_names


def _quote(text: str) -> str:
    """Return a member's name or an error of zipfile for a message, shortened and with only printable characters."""
    start = "".join(character if character.isprintable() else "�" for character in text[:_QUOTED_CHARACTERS])
    return start if len(text) <= _QUOTED_CHARACTERS else f"{start}…"


def _too_many(message: str, policy: ZipPolicy) -> InvalidContent:
    return TOO_MANY_FILES.refusal(message, policy.members_hint)


_HEADER = struct.Struct("<4s5H3I2H")
_SIZES_FOLLOW, _ENCRYPTED = 0x8, 0x1
_IN_EXTRA = 0xFFFF_FFFF


def _mismatch(info: zipfile.ZipInfo, message: str) -> InvalidContent:
    message = f"the zip is damaged at {_quote(info.orig_filename)}: {message}"
    return COMPRESSION.refusal(message, "Pack the files again with another program.")


def _find_end(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the offset at which the member's compressed bytes end.

    Raises InvalidContent if the member's own header is missing, or differs from the zip's list of members in the name,
    the method, the encryption, the sizes, or the checksum.
    """
    file.seek(info.header_offset)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise _mismatch(info, "there is no header at its listed offset")
    _, _, flags, method, _, _, checksum, stored, expanded, name_bytes, extra_bytes = _HEADER.unpack(header)
    name, extra = file.read(name_bytes), file.read(extra_bytes)
    try:
        own_name = name.decode("utf-8" if flags & 0x800 else "cp437")
    except UnicodeDecodeError:
        own_name = None
    if own_name != info.orig_filename:
        raise _mismatch(info, "its own header has a different name")
    if method != info.compress_type or flags & ~info.flag_bits & _ENCRYPTED:
        raise _mismatch(info, "its own header has a different method or encryption")
    if not flags & _SIZES_FOLLOW:
        sizes = _parse_sizes(expanded, stored, extra)
        if (checksum, *sizes) != (info.CRC, info.file_size, info.compress_size):
            raise _mismatch(info, "its own header has a different size or checksum")
    return info.header_offset + _HEADER.size + len(name) + len(extra) + info.compress_size


def _parse_sizes(expanded: int, stored: int, extra: bytes) -> tuple[int, int]:
    """Return a member's expanded and stored size, from the ZIP64 extra field if the header is too small for them."""
    if _IN_EXTRA not in (expanded, stored):
        return expanded, stored
    offset = 0
    while offset + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, offset)
        if kind == 1:
            field = extra[offset + 4 : offset + 4 + length]
            values = (value for (value,) in struct.iter_unpack("<Q", field[: len(field) // 8 * 8]))
            expanded = next(values, expanded) if expanded == _IN_EXTRA else expanded
            stored = next(values, stored) if stored == _IN_EXTRA else stored
            break
        offset += 4 + length
    return expanded, stored
