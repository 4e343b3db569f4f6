"""Zips of run files: only regular members, under names of ours, counted as they are written."""

from __future__ import annotations

import errno
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evaluation.errors import InvalidContent
from evaluation.formats.compression import Limits, describe_bytes
from evaluation.problems import Problem

#: Members that are looked at, most of which are runs.
MOST_MEMBERS = 64
_CHUNK = 1 << 20
_DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Member:
    """A file that was in a zip: its name there, and where its bytes lie now."""

    name: str
    path: Path


def is_zip(path: Path) -> bool:
    """Whether the file begins as a zip does."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def extract(path: Path, folder: Path, limits: Limits | None = None) -> list[Member]:
    """Write the members to `folder`. Raises InvalidContent for a zip that is damaged, doubtful, or too large."""
    limits = limits or Limits()
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if not _is_ballast(info)]
            _refuse_doubtful(infos)
            members, left = [], _allowance(path, limits)
            for number, info in enumerate(infos):
                target = folder / str(number)
                left -= _write(archive, info, target, left)
                members.append(Member(info.filename, target))
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise  # our disk is full, which is no fault of theirs
        raise _refusal(
            "compression", f"the zip is damaged: {error}", "Pack it again, and check it with `unzip -t`."
        ) from error
    return members


def _is_ballast(info: zipfile.ZipInfo) -> bool:
    """Folders, and what file managers add without being asked."""
    path = PurePosixPath(info.filename)
    return info.is_dir() or path.parts[:1] == ("__MACOSX",) or path.name in (".DS_Store", "Thumbs.db")


def _refuse_doubtful(infos: list[zipfile.ZipInfo]) -> None:
    if not infos:
        raise _refusal("empty", "the zip holds no files", "Pack one run for each dataset: <dataset>.txt.")
    if len(infos) > MOST_MEMBERS:
        raise _refusal(
            "too_many_files",
            f"the zip holds {len(infos):,} files",
            f"Pack at most {MOST_MEMBERS}, one run for each dataset.",
        )
    names = [info.filename.casefold() for info in infos]
    for info, name in zip(infos, names, strict=True):
        if (
            info.filename.startswith("/")
            or ".." in PurePosixPath(info.filename).parts
            or "\\" in info.filename
        ):
            raise _refusal(
                "member_name",
                f"the zip has a member with a doubtful path: {info.filename[:80]!r}",
                "Pack files under plain relative names such as <dataset>.txt.",
            )
        mode = info.external_attr >> 16
        if info.flag_bits & 0x1 or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
            raise _refusal(
                "member_kind",
                f"{info.filename} is encrypted, a link or a device",
                "Pack regular files without a password.",
            )
        if names.count(name) > 1:
            raise _refusal("member_name", f"the zip has {info.filename} twice", "Pack every file once.")


def _allowance(path: Path, limits: Limits) -> int:
    """How many bytes may come out: limited absolutely, and by the zip's own size where that is suspicious."""
    plausible = max(limits.ratio_floor_bytes, int(limits.max_ratio * path.stat().st_size))
    return min(limits.max_expanded_bytes, plausible)


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, allowance: int) -> int:
    """Write one member and return its size, counted rather than believed."""
    written = 0
    with archive.open(info) as reader, target.open("wb") as writer:
        while block := reader.read(min(_CHUNK, allowance + 1 - written)):
            written += len(block)
            if written > allowance:
                raise _refusal(
                    "expansion",
                    f"the zip expands to more than {describe_bytes(allowance)} at {info.filename}",
                    "Real run files shrink by a factor of 3 to 7; send the files one by one if these are real.",
                )
            writer.write(block)
    return written


def _refusal(code: str, message: str, hint: str) -> InvalidContent:
    return InvalidContent.of(Problem("error", code, 1, message, hint))
