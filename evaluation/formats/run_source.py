"""Where the lines of a run come from: a file read as a stream, or one held in memory and put in order of queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evaluation.errors import InvalidRun
from evaluation.formats.compression import (
    BLOCK,
    ExpandedFile,
    Limits,
    describe_bytes,
    open_expanded,
)
from evaluation.kernel.layout import STATE_SIZE, Queries, new_queries
from evaluation.kernel.lines import gather_lines, index_lines
from evaluation.kernel.text import PADDING
from evaluation.problems import Problem

Progress = Callable[[float], None]
#: A line is cut to this before it is called too long.
LONGEST_KEPT = 4096


class LineSource(Protocol):
    """Bytes of lines in order, and the lines' numbers in the file where the order is not the file's."""

    numbers: NDArray[np.int32]

    def readinto(self, view: memoryview, /) -> int: ...
    @property
    def share_read(self) -> float: ...


class StreamedLines:
    """The lines of an opened file as they come, behind bytes that were read already."""

    numbers = np.zeros(0, np.int32)

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

    def __init__(
        self, path: Path, skip: int, skipped_lines: int, limits: Limits, seed: int, progress: Progress | None
    ) -> None:
        self.text, length = _whole_file(path, skip, limits, progress)
        lines = int(np.count_nonzero(self.text[:length] == 10))
        self.starts = np.empty(lines + 1, np.int64)
        owners = np.empty(lines, np.int32)
        queries: Queries = new_queries(limits.max_queries, limits.max_id_bytes)
        state = np.zeros(STATE_SIZE, np.int64)
        if index_lines(self.text, length, np.uint64(seed), state, queries, self.starts, owners) < 0:
            raise too_many_queries(limits)
        self.order = np.argsort(owners, kind="stable")
        self.numbers = (self.order + (1 + skipped_lines)).astype(np.int32)
        self.done = 0

    def readinto(self, view: memoryview, /) -> int:
        buffer = np.frombuffer(view, np.uint8)
        self.done, filled = gather_lines(
            self.text, self.starts, self.order, self.done, buffer, 0, len(buffer), LONGEST_KEPT
        )
        return filled

    @property
    def share_read(self) -> float:
        return 0.5 + 0.5 * self.done / max(1, len(self.order))


def _whole_file(
    path: Path, skip: int, limits: Limits, progress: Progress | None
) -> tuple[NDArray[np.uint8], int]:
    """The file's bytes behind the first `skip`, ending in a newline, in an array with padding; how many."""
    content = bytearray()
    with open_expanded(path, limits) as file, memoryview(bytearray(BLOCK)) as block:
        while count := file.readinto(block):
            content += block[:count]
            if len(content) > limits.max_ungrouped_bytes:
                raise InvalidRun.of(
                    Problem(
                        "error", "ungrouped", 1,
                        "the lines of a query are not together, and the file is over "
                        f"{describe_bytes(limits.max_ungrouped_bytes)}",
                        "Sort the file by query, for example with `sort -s -k1,1`.",
                    )
                )  # fmt: skip
            if progress:
                progress(file.share_read * 0.5)
    if not content.endswith(b"\n"):
        content += b"\n"
    length = len(content) - skip
    content += bytes(PADDING + limits.max_id_bytes)
    return np.frombuffer(content, np.uint8)[skip:], length


def too_many_queries(limits: Limits) -> InvalidRun:
    """The error for a run with more query ids than are kept track of."""
    return InvalidRun.of(
        Problem(
            "error", "size", 1, f"the run has more than {limits.max_queries:,} different queries",
            "Check that the first column holds the dataset's query ids.",
        )
    )  # fmt: skip
