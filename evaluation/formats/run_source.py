"""Where the lines of a run come from: a file read as a stream, or one held in memory and put in order of queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evaluation.errors import InvalidContent
from evaluation.formats.compression import (
    BLOCK,
    ExpandedFile,
    Limits,
    describe_bytes,
    open_expanded,
)
from evaluation.kernel.layout import PADDING, address
from evaluation.kernel.lines import index_lines
from evaluation.problems import Problem

Progress = Callable[[float], None]
#: A line is cut to this before it is called too long.
LONGEST_KEPT = 4096
#: Lines that are put in order at once.
GATHERED = 16_384


class LineSource(Protocol):
    """Bytes of lines in order, and the lines' places in the file (from 0) where the order is not the file's."""

    numbers: NDArray[np.int64]

    def readinto(self, view: memoryview, /) -> int: ...
    @property
    def share_read(self) -> float: ...


class StreamedLines:
    """The lines of an opened file as they come, behind bytes that were read already."""

    numbers = np.zeros(0, np.int64)

    def __init__(self, file: ExpandedFile, ahead: bytes) -> None:
        self.file, self.ahead = file, ahead

    def readinto(self, view: memoryview, /) -> int:
        if self.ahead:
            count = min(len(self.ahead), len(view))
            view[:count] = self.ahead[:count]
            self.ahead = self.ahead[count:]
            return count
        return self.file.readinto(view)

    @property
    def share_read(self) -> float:
        return self.file.share_read


class GroupedLines:
    """The lines of a file held in memory, those of each query together; within a query in the file's order."""

    def __init__(self, path: Path, skip: int, limits: Limits, seed: int, progress: Progress | None) -> None:
        self.text = _whole_file(path, skip, limits, progress)
        stop = len(self.text) - PADDING
        lines = self.text.count(b"\n")
        bytes_ = np.frombuffer(self.text, np.uint8)
        self.starts, hashes = np.empty(lines + 1, np.int64), np.empty(lines, np.int64)
        index_lines(address(bytes_), address(bytes_) + stop, seed, address(self.starts), address(hashes))
        # equal ids have equal hashes; should two ids share one, their lines mix, which the reader would notice
        self.numbers = np.argsort(hashes, kind="stable")
        self.done = 0

    def readinto(self, view: memoryview, /) -> int:
        lines = self.numbers[self.done : self.done + GATHERED]
        starts, ends = self.starts[lines], self.starts[lines + 1]
        sizes = np.cumsum(np.minimum(ends - starts, LONGEST_KEPT))
        count = int(np.searchsorted(sizes, len(view), side="right"))
        if not count:
            return 0
        text = memoryview(self.text)
        pieces = [
            text[start:end]
            if end - start <= LONGEST_KEPT
            else bytes(text[start : start + LONGEST_KEPT - 1]) + b"\n"
            for start, end in zip(starts[:count].tolist(), ends[:count].tolist(), strict=True)
        ]
        size = int(sizes[count - 1])
        view[:size] = b"".join(pieces)
        self.done += count
        return size

    @property
    def share_read(self) -> float:
        return 0.5 + 0.5 * self.done / max(1, len(self.numbers))


def _whole_file(path: Path, skip: int, limits: Limits, progress: Progress | None) -> bytearray:
    """The file's bytes behind the first `skip`, ending in a newline, and padding."""
    content = bytearray()
    with open_expanded(path, limits) as file, memoryview(bytearray(BLOCK)) as block:
        while count := file.readinto(block):
            content += block[:count]
            if len(content) > limits.max_ungrouped_bytes:
                raise InvalidContent.of(
                    Problem(
                        "error", "ungrouped", 1,
                        "the lines of a query are not together, and the file is over "
                        f"{describe_bytes(limits.max_ungrouped_bytes)}",
                        "Sort the file by query, for example with `sort -s -k1,1`.",
                    )
                )  # fmt: skip
            if progress:
                progress(file.share_read * 0.5)
    del content[:skip]
    if not content.endswith(b"\n"):
        content += b"\n"
    content += bytes(PADDING)
    return content


def too_many_queries(limits: Limits) -> InvalidContent:
    """The error for a run with more query ids than are kept track of."""
    return InvalidContent.of(
        Problem(
            "error", "size", 1, f"the run has more than {limits.max_queries:,} different queries",
            "Check that the first column holds the dataset's query ids.",
        )
    )  # fmt: skip
