"""Uploaded archives, zip or tar.zst, extracted into a scratch folder: regular files alone, within bounds.

The standard library's tarfile reads the headers of a tar. Its members are iterated here, because tarfile itself reads
long names and extended headers of any size into memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tarfile import AREGTYPE, REGTYPE, XGLTYPE, XHDTYPE, HeaderError, TarInfo

from evaluation.archives.compression import MIB, ExpandedFile, FileLimits, open_expanded
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.checkpoints.codes import CODES
from evaluation.checkpoints.files import check_file_name
from evaluation.checkpoints.findings import FileFindings, Findings, quote
from evaluation.checkpoints.limits import MOST_EXPANDED, MOST_FILES_IN_ARCHIVE
from evaluation.core.problems import InvalidContent

_BLOCK = MIB
_FREE_INTERVAL = 64 * MIB
#: `free_bytes` of the disk are left to others.
POLICY = ZipPolicy(
    max_members=MOST_FILES_IN_ARCHIVE,
    members_hint=CODES["too_many_files"],
    expansion_hint=CODES["expansion"],
    max_expanded_bytes=MOST_EXPANDED,
    free_bytes=512 * MIB,
)


def extract(path: Path, scratch: Path, findings: Findings) -> dict[str, Path]:
    """Extract the usable files of an archive into `scratch`, which is created, and return their paths by name.

    On disk they have numbers, so that nothing has a name that a sender chose. Whatever the archive contains, nothing is
    written outside of `scratch`, no link is created, and no more is written than POLICY allows. Raises OSError for
    faults of the disk, ENOSPC if it is full.
    """
    scratch.mkdir(exist_ok=True)
    file = findings.at(path.name)
    stored: dict[str, Path] = {}
    with _archive_errors(file):
        stored = (_extract_zip if is_zip(path) else _extract_tar)(path, scratch, file)
        if not stored and not findings.refused:
            file.refuse("empty_folder", "there is no file of a model")
    return stored


@contextmanager
def _archive_errors(file: FileFindings) -> Iterator[None]:
    """Make errors of readers findings about the archive."""
    try:
        yield
    except InvalidContent as error:
        for problem in error.report.problems:
            code = "file_too_large" if problem.code == "size" else problem.code
            file.refuse(code, quote(problem.message, 200))
    except NotTar as error:
        file.refuse(error.code, quote(error, 200))


def _extract_zip(path: Path, scratch: Path, file: FileFindings) -> dict[str, Path]:
    with path.open("rb") as stored:
        stored.seek(max(0, path.stat().st_size - 22))
        end = stored.read(22)
    # The list of members comes last, without a comment: what follows could be another archive.
    if not end.startswith(b"PK\x05\x06") or end[20:] != b"\0\0":
        file.refuse("trailing_data", "something follows on the end of the zip")
    with open_archive(path, POLICY) as archive:
        if archive.first_byte:
            message = f"{archive.first_byte:,} bytes stand before the zip's first member"
            file.refuse("trailing_data", message)
        names = _MemberNames(file.findings)
        fitting = [name for name in archive.names if names.take(name)]
        used = [name for name in archive.names if check_file_name(name, file.findings)]
        if len(fitting) < len(archive.names):  # either of two files may be the intended one
            return {}
        targets = {name: scratch / str(number) for number, name in enumerate(used)}
        archive.extract(targets)
    return targets


class _MemberNames:
    """The names of an archive so far; capital letters make no difference, as on some disks."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}

    def take(self, name: str) -> bool:
        """Add a file's name in normal form; return whether it fits beside the others, or refuse it."""
        folders = [name[:place] for place, letter in enumerate(name) if letter == "/"]
        fault = self._fault(name.casefold(), folders)
        if fault:
            self._findings.at(name).refuse("member_name", fault)
        self._files.add(name.casefold())
        for folder in folders:
            self._folders.setdefault(folder.casefold(), folder)
        return not fault

    def _fault(self, folded: str, folders: list[str]) -> str:
        if folded in self._files:
            return "the name is there twice"
        if folded in self._folders or any(folder.casefold() in self._files for folder in folders):
            return "it is a file and a folder at once"
        if any(self._folders.get(folder.casefold(), folder) != folder for folder in folders):
            return "another folder differs from its folder only by capital letters"
        return ""


def _extract_tar(path: Path, scratch: Path, file: FileFindings) -> dict[str, Path]:
    most = POLICY.max_expanded_bytes or 1 << 62
    limits = FileLimits(max_stored_bytes=most, max_expanded_bytes=most, max_ratio=POLICY.max_ratio,
                    ratio_floor_bytes=POLICY.ratio_floor_bytes, may_be_tar=True)  # fmt: skip
    targets: dict[str, Path] = {}
    names = _MemberNames(file.findings)
    with open_expanded(path, limits) as expanded:
        if expanded.kind != "zstd":
            file.refuse("archive_kind", f"it is neither a zip nor a tar in zstd ({expanded.kind})")
            return {}
        stream = _Stream(expanded)
        for number, member in enumerate(members(stream.read, stream.skip)):
            if number >= POLICY.max_members:
                raise NotTar("too_many_files", f"the archive holds more than {POLICY.max_members} files")
            fits = names.take(member.name)
            if check_file_name(member.name, file.findings) and fits:
                targets[member.name] = scratch / str(len(targets))
                _write(targets[member.name], stream.blocks(member.size))
            else:
                stream.skip(member.size)
    return targets


class _Stream:
    """Expanded bytes, read in any amounts."""

    def __init__(self, expanded: ExpandedFile) -> None:
        self._expanded = expanded
        self._buffer = bytearray(_BLOCK)

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, at most a block; fewer at the end."""
        with memoryview(self._buffer) as view:
            filled = 0
            while filled < size and (count := self._expanded.readinto(view[filled:size])):
                filled += count
            return bytes(view[:filled])

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes."""
        while size:
            block = self.read(min(size, _BLOCK))
            if not block:
                raise NotTar("compression", "the archive ends in the middle of a file")
            size -= len(block)
            yield block

    def skip(self, size: int) -> None:
        """Discard the next `size` bytes."""
        for _ in self.blocks(size):
            pass


def _write(target: Path, blocks: Iterable[bytes]) -> None:
    with target.open("xb") as file:
        POLICY.check_disk_space(target.parent)
        for block in blocks:
            file.write(block)
            if file.tell() % _FREE_INTERVAL < len(block):
                POLICY.check_disk_space(target.parent)


_TAR_BLOCK = 512
_MOST_PAX = 64 * 1024
_MOST_MEMBERS = 256
_PAX = re.compile(rb"(\d{1,6}) ([^=]{1,256})=")
#: Keys of extended headers that are ignored: times, owners, and attributes. Names and sizes are never among them.
_HARMLESS = re.compile(rb"mtime|atime|ctime|uid|gid|uname|gname|comment|(SCHILY|LIBARCHIVE)\..*", re.DOTALL)


class NotTar(ValueError):
    """A fault of a tar: `code` is a code of checkpoints, the text describes the fault."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def members(read: Callable[[int], bytes], skip: Callable[[int], None]) -> Iterator[TarInfo]:
    """Yield every regular file in order. `read(n)` returns n bytes of the archive, or fewer at its end.

    The caller reads or skips the `size` bytes of each member before it asks for the next; the padding is skipped here.
    After the last member only zeros may follow. Raises NotTar.
    """
    for _ in range(_MOST_MEMBERS):
        header = read(_TAR_BLOCK)
        if header == bytes(_TAR_BLOCK):
            return _check_end(read)
        if len(header) < _TAR_BLOCK:
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
        name, size = info.name, info.size
        if info.type in (XHDTYPE, XGLTYPE):
            if size > _MOST_PAX:
                raise NotTar("member_kind", f"the extended header {name!r} is too long")
            data = read(size + -size % _TAR_BLOCK)[:size]
            place = 0
            while place < size:
                match = _PAX.match(data, place)
                end = place + int(match[1]) if match else 0
                if match is None or end <= match.end() or data[end - 1 : end] != b"\n":
                    raise NotTar("compression", f"the extended header {name!r} is damaged")
                if not _HARMLESS.fullmatch(match[2]):
                    key = match[2].decode("ascii", "replace")
                    raise NotTar("member_kind", f"an extended header gives a member another {key}")
                place = end
        elif info.isdir():
            if size:
                raise NotTar("member_kind", f"the folder {name!r} has content")
        elif info.type not in (REGTYPE, AREGTYPE):
            message = f"{name!r} is a link, a device, a sparse file or another special member"
            raise NotTar("member_kind", message)
        elif name.endswith("/"):
            raise NotTar("member_kind", f"{name!r} is a folder by its name, and a file by its kind")
        else:
            yield info
            skip(-size % _TAR_BLOCK)
    raise NotTar("too_many_files", f"the archive has more than {_MOST_MEMBERS} members")


def _check_end(read: Callable[[int], bytes]) -> None:
    """Read the zeros after the last member, as many as programs like to add."""
    left = 1024 * 1024
    while block := read(_TAR_BLOCK):
        left -= len(block)
        if block.count(0) != len(block) or left < 0:
            raise NotTar("trailing_data", "something follows on the end of the archive")
