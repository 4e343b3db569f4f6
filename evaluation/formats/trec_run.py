"""Runs read, checked and reduced to the ranks of their judged documents, in one pass over the file."""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import replace
from pathlib import Path

from evaluation.errors import InvalidContent
from evaluation.formats.compression import BLOCK, Limits, open_expanded
from evaluation.formats.mteb import looks_like_json, predictions_as_lines
from evaluation.formats.run_header import RunHeader, read_header
from evaluation.formats.run_pass import MAX_TAGS, NotGroupedError, ReadingTask, RunContents, RunPass
from evaluation.formats.run_problems import Counted
from evaluation.formats.run_source import GroupedLines, Progress, StreamedLines
from evaluation.problems import Problem

__all__ = ["MAX_TAGS", "ReadingTask", "RunContents", "read_run"]


def read_run(
    path: Path | str, task: ReadingTask, limits: Limits, progress: Progress | None = None
) -> RunContents:
    """Read a run (TREC lines or MTEB predictions, plain or compressed).

    `progress` is called between blocks with the share read, and may raise to stop. Raises InvalidContent where
    the file cannot be read to its end; all other problems are counted in the result.
    """
    path = Path(path)
    with open_expanded(path, limits) as file:
        block = bytearray(BLOCK)
        start = b""
        while len(start) < BLOCK and (count := file.readinto(memoryview(block))):
            start += block[:count]
        if looks_like_json(start):
            return _read_predictions(path, task, limits, progress)
        header = read_header(start)
        _refuse_lone_carriage_returns(start[header.size :])
        try:
            contents = RunPass(task, limits, header.lines).read(
                StreamedLines(file, start[header.size :]), progress
            )
            return _with_header(contents, header, file.expanded_bytes)
        except NotGroupedError:
            pass
    while True:
        source = GroupedLines(path, header.size, limits, secrets.randbits(63), progress)
        try:
            contents = RunPass(task, limits, header.lines).read(source, progress)
            return _with_header(contents, header, int(source.starts[-1]) + header.size)
        except NotGroupedError:  # two ids shared a hash, once in a universe
            continue


def _read_predictions(
    path: Path, task: ReadingTask, limits: Limits, progress: Progress | None
) -> RunContents:
    with tempfile.NamedTemporaryFile(prefix="predictions-", suffix=".run") as lines:
        metadata = predictions_as_lines(path, limits, lines.file)
        lines.flush()
        contents = read_run(lines.name, task, limits, progress)
    # the lines are ours, so their numbers would tell the sender nothing
    counted = {code: Counted(counted.count) for code, counted in contents.counted.items()}
    return replace(contents, counted=counted, metadata=metadata)


def _with_header(contents: RunContents, header: RunHeader, expanded_bytes: int) -> RunContents:
    counted = contents.counted
    if header.byte_order_mark:
        found = counted.get("encoding", Counted())
        counted = {**counted, "encoding": Counted(found.count + 1, (1, *found.lines)[:5])}
    return replace(contents, counted=counted, expanded_bytes=int(expanded_bytes), metadata=header.metadata)


def _refuse_lone_carriage_returns(start: bytes) -> None:
    if b"\n" not in start and b"\r" in start.rstrip(b"\r"):
        message = "lines end with a carriage return alone, so the file is a single line"
        raise InvalidContent.of(
            Problem("error", "encoding", 1, message, "End lines with LF, or with CR LF.", (1,))
        )
