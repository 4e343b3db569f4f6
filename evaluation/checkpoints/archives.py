"""Archives that people upload, zip or tar.zst: taken apart into a scratch folder, and judged as a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tarfile import TarInfo

from evaluation.archives.compression import MIB, ExpandedFile, FileLimits, open_expanded
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.checkpoints.allowance import CheckpointAllowance
from evaluation.checkpoints.codes import CODES
from evaluation.checkpoints.files import ModelFiles, check_file_name
from evaluation.checkpoints.findings import Findings, quote
from evaluation.checkpoints.limits import MOST_EXPANDED, MOST_FILES_IN_ARCHIVE
from evaluation.checkpoints.member_names import MemberNames
from evaluation.checkpoints.tar import NotTar, members
from evaluation.checkpoints.validation import Kinds, Validation, requirements_of, validate_files
from evaluation.core.errors import InvalidContent

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


def validate_archive(
    path: Path,
    scratch: Path,
    wanted: Kinds = None,
    pooling: str = "",
    policy: ZipPolicy = POLICY,
    without_weights: bool = False,
) -> Validation:
    """Check an archive, and keep its files in the folder `scratch`, which is made, until the checkpoint is rebuilt;
    under numbers, for nothing on the disk is named by a stranger.

    As `validate_folder` otherwise. `without_weights`: of its files of weights the headers do; then a remark says so,
    and it cannot be rebuilt. Whatever the archive holds, nothing is written outside of `scratch`, no link is
    made, and no more than `policy` allows. Raises OSError for faults of the disk, ENOSPC where it is full.
    """
    findings = Findings()
    scratch.mkdir(exist_ok=True)
    stored: dict[str, Path] = {}
    with _archive_errors(path, findings):
        if is_zip(path):
            stored = _take_zip(path, scratch, policy, findings)
        else:
            stored = _take_tar(path, scratch, policy, findings)
        if not stored and not findings.refused:
            findings.refuse("empty_folder", path.name, "there is no file of a model")
    return validate_files(
        ModelFiles(scratch, frozenset(stored), "", CheckpointAllowance(without_weights), stored),
        requirements_of(wanted, pooling, path.name),
        findings,
    )


@contextmanager
def _archive_errors(path: Path, findings: Findings) -> Iterator[None]:
    """What readers raise over an archive becomes a finding."""
    try:
        yield
    except InvalidContent as error:
        for problem in error.report.problems:
            code = "file_too_large" if problem.code == "size" else problem.code
            findings.refuse(code, path.name, quote(problem.message, 200))
    except NotTar as error:
        findings.refuse(error.code, path.name, quote(error, 200))


def _take_zip(path: Path, scratch: Path, policy: ZipPolicy, findings: Findings) -> dict[str, Path]:
    _refuse_tail(path, findings)
    with open_archive(path, policy) as archive:
        if archive.first_byte:
            what = f"{archive.first_byte:,} bytes stand before the zip's first member"
            findings.refuse("trailing_data", path.name, what)
        names = MemberNames()
        fitting = [name for name in archive.names if _takes(name, names, findings)]
        kept = [name for name in archive.names if check_file_name(name, findings)]
        if len(fitting) < len(archive.names):  # which of two files was meant, nobody can tell
            return {}
        stored = {name: scratch / str(number) for number, name in enumerate(kept)}
        archive.extract(stored)
    return stored


def _refuse_tail(path: Path, findings: Findings) -> None:
    """A zip ends with its list of members, which has no comment here: what follows could be another archive."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 22))
        end = file.read(22)
    if not end.startswith(b"PK\x05\x06") or end[20:] != b"\0\0":
        findings.refuse("trailing_data", path.name, "something follows on the end of the zip")


def _takes(name: str, names: MemberNames, findings: Findings) -> bool:
    """Whether a file of this name can lie beside those before; else it is refused."""
    wrong = names.take(name)
    if wrong:
        findings.refuse("member_name", name, wrong)
    return not wrong


def _take_tar(path: Path, scratch: Path, policy: ZipPolicy, findings: Findings) -> dict[str, Path]:
    most = policy.max_expanded_bytes or 1 << 62
    limits = FileLimits(max_stored_bytes=most, max_expanded_bytes=most, max_ratio=policy.max_ratio,
                    ratio_floor_bytes=policy.ratio_floor_bytes, may_be_tar=True)  # fmt: skip
    stored: dict[str, Path] = {}
    taken = MemberNames()
    with open_expanded(path, limits) as expanded:
        if expanded.kind != "zstd":
            findings.refuse(
                "archive_kind", path.name, f"it is neither a zip nor a tar in zstd ({expanded.kind})"
            )
            return {}
        stream = _Stream(expanded)
        for number, member in enumerate(members(stream.read, stream.skip)):
            if number >= policy.max_members:
                raise NotTar("too_many_files", f"the archive holds more than {policy.max_members} files")
            fits = _takes(member.name, taken, findings)
            if check_file_name(member.name, findings) and fits:
                stored[member.name] = scratch / str(len(stored))
                _copy(stream, member, stored[member.name], policy)
            else:
                stream.skip(member.size)
    return stored


class _Stream:
    """The expanded bytes, as many at once as are asked for."""

    def __init__(self, expanded: ExpandedFile) -> None:
        self._expanded = expanded
        self._buffer = bytearray(_BLOCK)

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, at most a block; fewer at the end."""
        with memoryview(self._buffer) as view:
            filled = 0
            while filled < size and (count := self._expanded.readinto(view[filled:size])):
                filled += count
            return bytes(view[:filled])

    def blocks(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes."""
        while size:
            block = self.read(min(size, _BLOCK))
            if not block:
                raise NotTar("compression", "the archive ends in the middle of a file")
            size -= len(block)
            yield block

    def skip(self, size: int) -> None:
        """Take bytes that nobody wants."""
        for _ in self.blocks(size):
            pass


def _copy(stream: _Stream, member: TarInfo, target: Path, policy: ZipPolicy) -> None:
    with target.open("xb") as file:
        policy.check_disk_space(target.parent)
        for block in stream.blocks(member.size):
            file.write(block)
            if file.tell() % _FREE_INTERVAL < len(block):
                policy.check_disk_space(target.parent)
