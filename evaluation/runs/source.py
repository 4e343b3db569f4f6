"""Where the lines of a run come from: a file read as a stream, or one held in memory and put in order of queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import (
    BLOCK,
    SIZE,
    ExpandedFile,
    Limits,
    describe_bytes,
    open_expanded,
)
from evaluation.core.errors import InvalidRun
from evaluation.kernel.layout import PADDING
from evaluation.kernel.reading import GatheredLines, Reading, TooManyQueriesError, order_by_query
from evaluation.runs.problems import UNGROUPED

Progress = Callable[[float], None]
#: A line is cut to this before it is called too long.
LONGEST_KEPT = 4096


class LineSource(Protocol):
    """Bytes of lines in order, and that order where it is not the file's."""

    @property
    def order(self) -> NDArray[np.uint32] | None: ...
    def readinto(self, view: memoryview, /) -> int: ...
    @property
    def share_read(self) -> float: ...


class StreamedLines:
    """The lines of an opened file as they come, behind bytes that were read already."""

    order = None

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
        self,
        path: Path | str | bytes,
        skip: int,
        skipped_lines: int,
        limits: Limits,
        seed: int,
        progress: Progress | None,
    ) -> None:
        text, length = _whole_file(path, skip, limits, progress)
        reading = Reading(seed, limits.max_queries, limits.max_id_bytes)
        reading.use_text(text)
        lines = int(np.count_nonzero(text[:length] == 10))
        try:
            starts, self.order = order_by_query(reading, length, lines)
        except TooManyQueriesError as error:
            raise too_many_queries(limits) from error
        self.length = length
        self.lines = GatheredLines(text, starts, self.order, LONGEST_KEPT)

    def readinto(self, view: memoryview, /) -> int:
        return self.lines.copy_to(np.frombuffer(view, np.uint8))

    @property
    def share_read(self) -> float:
        return 0.5 + 0.5 * self.lines.done / max(1, len(self.order))


def _whole_file(
    path: Path | str | bytes, skip: int, limits: Limits, progress: Progress | None
) -> tuple[NDArray[np.uint8], int]:
    """The file's bytes behind the first `skip`, ending in a newline, in an array with padding; how many."""
    content = bytearray()
    with open_expanded(path, limits) as file, memoryview(bytearray(BLOCK)) as block:
        while count := file.readinto(block):
            content += block[:count]
            if len(content) > limits.max_ungrouped_bytes:
                raise InvalidRun.of(
                    UNGROUPED.problem(
                        "the lines of a query are not together, and the file is over "
                        f"{describe_bytes(limits.max_ungrouped_bytes)}",
                        "Sort the file by query, for example with `sort -s -k1,1`.",
                    )
                )
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
        SIZE.problem(
            f"the run has more than {limits.max_queries:,} different queries",
            "Check that the first column holds the dataset's query ids.",
        )
    )
