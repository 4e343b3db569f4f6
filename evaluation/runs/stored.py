"""A run stored on disk with an index by query, so that single queries can be read.

The folder contains `lines.txt`, the run's lines in their original order, `stretches.json`, the start and end of each
stretch of consecutive lines by query, and `documents.npy`, a hash of each distinct document, to count documents.
"""

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.core.order import trec_order
from evaluation.core.problems import InvalidContent, InvalidRun
from evaluation.runs.forms import trec_text
from evaluation.runs.problems import FIELDS

#: Query, Q0, document, rank, score, tag.
_FIELDS = 6
#: Number of document hashes that are collected before duplicates are dropped.
_HASHES_AT_ONCE = 2**20


class IndexedRun:
    """Reader of a folder that `write` stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = folder / "lines.txt"
        self._lines = np.memmap(lines, np.uint8, "r").data if lines.stat().st_size else memoryview(b"")
        self._stretches: dict[str, list[int]] = json.loads((folder / "stretches.json").read_bytes())

    @classmethod
    def write(cls, path: Path, folder: Path) -> None:
        """Store a run (in any format, plain or compressed) in a new folder.

        The run must have been accepted before. Raises InvalidRun for an invalid line.
        """
        folder.mkdir()
        stretches: dict[str, list[int]] = {}
        query, end = b"", 0
        hashes, documents = array("q"), np.empty(0, np.int64)
        with open_run_lines(path) as lines, (folder / "lines.txt").open("wb") as output:
            for number, line in lines:
                fields = line.split()
                if not fields:
                    continue
                try:
                    score = float(fields[4])
                    str(fields[0] + fields[2], "utf-8")
                except (IndexError, ValueError):
                    score = float("nan")
                if len(fields) != _FIELDS or not np.isfinite(np.float32(score)):
                    message = f"{path.name}: line {number:,} is not a line of a run"
                    hint = "Write each line as `query Q0 document rank score tag`."
                    raise InvalidRun.build(FIELDS.problem(message, hint, lines=(number,)))
                if fields[0] != query:
                    query = fields[0]
                    bounds = stretches.setdefault(str(query, "utf-8"), [])
                    bounds += [end, end]
                end += output.write(line + b"\n")
                bounds[-1] = end
                hashes.append(hash(fields[2]))
                if len(hashes) == _HASHES_AT_ONCE:
                    documents, hashes = np.union1d(documents, hashes), array("q")
        np.save(folder / "documents.npy", np.union1d(documents, np.array(hashes, np.int64)))
        (folder / "stretches.json").write_text(json.dumps(stretches), "utf-8")

    def documents(self, query_id: str) -> tuple[list[str], NDArray[np.float64]]:
        """Return the distinct documents of a query in trec_eval's order, and their scores rounded to float32.

        Both are empty if the query is not in the run.
        """
        bounds = self._stretches.get(query_id, [])
        scores: dict[str, float] = {}
        ids: list[bytes] = []
        values: list[float] = []
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            for line in bytes(self._lines[start:end]).removesuffix(b"\n").split(b"\n"):
                fields = line.split()
                ids.append(fields[2])
                values.append(float(fields[4]))
        for index in trec_order(ids, values).tolist():
            scores.setdefault(str(ids[index], "utf-8"), float(np.float32(values[index])))
        return list(scores), np.array(list(scores.values()), np.float64)

    def document_hashes(self) -> NDArray[np.int64]:
        """Return a hash for each distinct document, the same in all runs stored by one process."""
        hashes: NDArray[np.int64] = np.load(self.folder / "documents.npy")
        return hashes


@contextmanager
def open_run_lines(path: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the numbered lines of a run in any format, after its header."""
    with trec_text(path) as (header, text):
        yield enumerate((line.rstrip(b"\r\n") for line in text), 1 + header.lines)


#: Pattern of the file name extensions of runs and of compressed files.
_EXTENSIONS = re.compile(
    r"(?<=.)(\.(gz|zst|bz2|run|txt|trec|res|tsv|csv|json|jsonl))+\Z", re.ASCII | re.DOTALL | re.IGNORECASE
)


def first_tag(path: Path) -> str:
    """Return the sixth field of the run's first line, or an empty string if it is missing or unreadable."""
    try:
        with open_run_lines(path) as lines:
            first_line = next((line for _, line in lines if line.strip()), b"")
    except InvalidContent:
        return ""
    fields = first_line.split()
    return fields[5].decode("utf-8", "replace") if len(fields) == 6 else ""


def run_name(path: Path, tags: Sequence[str]) -> str:
    """Return the run's tag, or the file's name without extensions if there is no single tag."""
    return tags[0] if len(tags) == 1 and tags[0].isprintable() and tags[0] else strip_extensions(path.name)


def strip_extensions(name: str) -> str:
    """Return a file name without the extensions of run formats and compression."""
    return _EXTENSIONS.sub("", name)
