"""What is fuzzed: any bytes, judged as a run, an archive, a checkpoint or a file of judgements, end in a verdict.

Each function takes what a stranger sent and an empty folder, and returns the verdict in one word. An exception is a
fault of ours, as is a verdict that contradicts itself.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock
from unittest.mock import patch

import zstandard

from evaluation.archives.compression import KIB, MIB, FileLimits
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.checkpoints import rebuilding
from evaluation.checkpoints.findings import CODES
from evaluation.checkpoints.rebuilding import rebuild, validate_archive, validate_folder
from evaluation.core.problems import InvalidContent, InvalidRun, Report
from evaluation.judgements import import_file
from evaluation.judgements.qrels import Qrels
from evaluation.runs.score import ScoringTarget, check_run, score_run
from tests.evaluation.small_checkpoint import files, write

Judge = Callable[[bytes, Path], str]

#: Small, so that inputs of a few KiB reach them.
LIMITS = FileLimits(
    max_stored_bytes=256 * KIB,
    max_expanded_bytes=MIB,
    ratio_floor_bytes=64 * KIB,
    max_queries=100,
    max_query_bytes=128 * KIB,
    max_ungrouped_bytes=512 * KIB,
    max_json_bytes=64 * KIB,
)
RUNS_ZIP = ZipPolicy(
    max_members=8, members_hint="At most eight.", expansion_hint="Send it plain.", ratio_floor_bytes=MIB
)
CHECKPOINT = replace(rebuilding.POLICY, ratio_floor_bytes=MIB, max_expanded_bytes=4 * MIB, free_bytes=0)
#: Ids shorter and longer than what the kernel keeps of an id in a table.
JUDGED = {
    "1": {"a": 1, "b": 0, "é": 2},
    "query-with-a-long-identifier": {"document-with-a-long-identifier": 1, "a": 1},
}
MEASURES = ("nDCG@10", "AP", "RR", "P@5", "R@100")
_TAR_BLOCK = 512


def judge_run(data: bytes, folder: Path) -> str:
    """The run is checked, and scored exactly where the check has found no error."""
    path = folder / "run"
    path.write_bytes(data)
    report = check_run(path, _target(), LIMITS)
    _refuse_unprintable(report)
    try:
        scored = score_run(path, _target(), MEASURES, LIMITS)
    except InvalidRun as error:
        assert not report.valid, "scoring refused what the check had accepted"
        return error.report.errors[0].code
    assert report.valid, "scoring accepted what the check had refused"
    assert all(0 <= mean <= 1 for mean in scored.means.values())
    return "accepted"


@cache
def _target() -> ScoringTarget:
    return ScoringTarget(Qrels.from_dict(JUDGED), ["1", "2", *JUDGED], hidden=False)


def judge_archive(data: bytes, folder: Path) -> str:
    """The bytes as an archive of runs and of a checkpoint; what is neither zip nor zstd is taken for a tar, packed."""
    path = folder / "sent"
    path.write_bytes(data)
    if is_zip(path):
        _extract(path, folder / "runs")
    elif not data.startswith(b"\x28\xb5\x2f\xfd"):
        path.write_bytes(zstandard.compress(data, 1))
        verdict = _validate(path, folder / "first")
        path.write_bytes(zstandard.compress(with_right_checksums(data), 1))
        return min(verdict, _validate(path, folder / "second"))
    return _validate(path, folder / "first")


def with_right_checksums(tar: bytes) -> bytes:
    """A tar whose headers say their own sums, so that what is spoilt in them is looked at."""
    mended = bytearray(tar)
    for place in range(0, len(tar) - _TAR_BLOCK + 1, _TAR_BLOCK):
        if tar[place + 257 : place + 262] == b"ustar":
            mended[place + 148 : place + 156] = b" " * 8
            mended[place + 148 : place + 156] = b"%06o\0 " % sum(mended[place : place + _TAR_BLOCK])
    return bytes(mended)


def _extract(path: Path, folder: Path) -> None:
    folder.mkdir()
    try:
        with open_archive(path, RUNS_ZIP) as archive:
            archive.extract({name: folder / str(number) for number, name in enumerate(archive.names)})
    except InvalidContent as error:
        _refuse_unprintable(error.report)
    written = sum(each.stat().st_size for each in folder.iterdir())
    assert written <= RUNS_ZIP.allowance(path.stat().st_size)


def _validate(path: Path, scratch: Path) -> str:
    with mock.patch.object(rebuilding, "POLICY", CHECKPOINT):
        validation = validate_archive(path, scratch, pooling="max")
    _refuse_unprintable(validation.report)
    assert not [each for each in scratch.rglob("*") if each.is_symlink()]
    if validation.valid:
        rebuild(validation, scratch.parent / f"{scratch.name}-rebuilt")
        return "accepted"
    assert all(problem.code in CODES for problem in validation.report.problems)
    return validation.report.errors[0].code


def judge_checkpoint(data: bytes, folder: Path) -> str:
    """The bytes after the first as one file of a good checkpoint; the first says which checkpoint, and which file."""
    choice, content = data[0] if data else 0, data[1:]
    base = _checkpoint(choice % 3)
    names = sorted(base)
    name = names[choice // 3 % len(names)]
    if name.endswith(".safetensors") and choice >= 128:
        content = _with_header(content, base[name])
    sent = write({**base, name: content}, folder / "sent")
    validation = validate_folder(sent, pooling="max")
    _refuse_unprintable(validation.report)
    if validation.valid:
        rebuild(validation, folder / "rebuilt")
        return "accepted"
    return validation.report.errors[0].code


def _with_header(header: bytes, weights: bytes) -> bytes:
    """The weights behind another header, of the length that the file says."""
    (length,) = struct.unpack("<Q", weights[:8])
    return struct.pack("<Q", len(header)) + header + weights[8 + length :]


@cache
def _checkpoint(number: int) -> dict[str, bytes]:
    return files(("base", "masked", "sequence")[number])  # type: ignore[arg-type]


def judge_judgements(data: bytes, folder: Path) -> str:
    """The bytes as judgements that somebody sends, in any of the forms."""
    path = folder / "judgements"
    path.write_bytes(data)
    try:
        with patch.object(import_file, "LIMITS", LIMITS):
            found = import_file.read_judgements(path, {"1", "2", "é"}, None, scale=3)
    except InvalidContent as error:
        _refuse_unprintable(error.report)
        return error.report.errors[0].code
    assert found.pairs >= 0
    return "accepted"


def _refuse_unprintable(report: Report) -> None:
    """A report has to be JSON, and text that a database and a page can hold."""
    text = json.dumps(report.as_dict(), ensure_ascii=False, default=str)
    text.encode()
    assert "\\u0000" not in text, "a report holds NUL"
    for problem in report.problems:
        assert problem.code, "a problem has no code"
        assert problem.message, "a problem has no message"
        assert len(problem.message) < 1000, "a message is as long as what was sent"


TARGETS: dict[str, Judge] = {
    "runs": judge_run,
    "archives": judge_archive,
    "checkpoints": judge_checkpoint,
    "judgements": judge_judgements,
}


def judge(name: str, data: bytes, folder: Path) -> str:
    """One verdict of a target, in a folder that is emptied afterwards."""
    work = folder / "work"
    work.mkdir()
    try:
        return TARGETS[name](data, work)
    finally:
        shutil.rmtree(work)
