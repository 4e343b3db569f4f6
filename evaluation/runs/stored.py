"""A run kept on disk so that the documents of any query can be read at once, and only those.

Files: `lines.txt`: the run's lines as they came, those of a query in one or more stretches; `stretches.json`: by
query, where each of its stretches starts and ends; `documents.npy`: a hash of each different document, to count them.
"""

import json
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
#: Hashes of documents are gathered so many at a time before repeated ones are dropped.
_HASHES_AT_ONCE = 2**20


class IndexedRun:
    """What `write` left in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = folder / "lines.txt"
        self._lines = np.memmap(lines, np.uint8, "r").data if lines.stat().st_size else memoryview(b"")
        self._stretches: dict[str, list[int]] = json.loads((folder / "stretches.json").read_bytes())

    @classmethod
    def write(cls, path: Path, folder: Path) -> None:
        """Store a run (of any form, plain or compressed) in a new folder.

        The run is one that was accepted before. Raises InvalidRun for a line that is none of a run's.
        """
        folder.mkdir()
        stretches: dict[str, list[int]] = {}
        query, end = b"", 0
        hashes, documents = array("q"), np.empty(0, np.int64)
        with lines_of_run(path) as lines, (folder / "lines.txt").open("wb") as out:
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
                    message = f"{path.name}: line {number:,} is not one of a run"
                    hint = "Each line holds: query Q0 document rank score tag."
                    raise InvalidRun.of(FIELDS.problem(message, hint, lines=(number,)))
                if fields[0] != query:
                    query = fields[0]
                    bounds = stretches.setdefault(str(query, "utf-8"), [])
                    bounds += [end, end]
                end += out.write(line + b"\n")
                bounds[-1] = end
                hashes.append(hash(fields[2]))
                if len(hashes) == _HASHES_AT_ONCE:
                    documents, hashes = np.union1d(documents, hashes), array("q")
        np.save(folder / "documents.npy", np.union1d(documents, np.array(hashes, np.int64)))
        (folder / "stretches.json").write_text(json.dumps(stretches), "utf-8")

    def documents(self, query_id: str) -> tuple[list[str], NDArray[np.float64]]:
        """(ids, scores as float32 holds them) of a query in trec_eval's order; of a repeated document its first."""
        bounds = self._stretches.get(query_id, [])
        scores: dict[str, float] = {}
        ids: list[bytes] = []
        values: list[float] = []
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            for line in bytes(self._lines[start:end]).removesuffix(b"\n").split(b"\n"):
                fields = line.split()
                ids.append(fields[2])
                values.append(float(fields[4]))
        for place in trec_order(ids, values).tolist():
            scores.setdefault(str(ids[place], "utf-8"), float(np.float32(values[place])))
        return list(scores), np.array(list(scores.values()), np.float64)

    def document_hashes(self) -> NDArray[np.int64]:
        """Return a number for each different document, the same in all runs stored by one process."""
        hashes: NDArray[np.int64] = np.load(self.folder / "documents.npy")
        return hashes


@contextmanager
def lines_of_run(path: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the numbered lines of a run in any of its forms, behind its header."""
    with trec_text(path) as (header, text):
        yield enumerate((line.rstrip(b"\r\n") for line in text), 1 + header.lines)


#: Endings of run files, and of what compresses them.
_ENDINGS = (".gz", ".zst", ".bz2", ".run", ".txt", ".trec", ".res", ".tsv", ".csv", ".json", ".jsonl")


def first_tag(path: Path) -> str:
    """Return the sixth field of the run's first line, empty where it has none, or cannot be read."""
    try:
        with lines_of_run(path) as lines:
            first = next((line for _, line in lines if line.strip()), b"")
    except InvalidContent:
        return ""
    fields = first.split()
    return fields[5].decode("utf-8", "replace") if len(fields) == 6 else ""


def run_name(path: Path, tags: Sequence[str]) -> str:
    """Return the run's tag, or if it has none or several the file's name without known endings."""
    return tags[0] if len(tags) == 1 and tags[0].isprintable() and tags[0] else without_endings(path.name)


def without_endings(name: str) -> str:
    """Return the name of a file without the endings of run files and of compression."""
    while ending := next(
        (each for each in _ENDINGS if name.lower().endswith(each) and len(name) > len(each)), ""
    ):
        name = name[: -len(ending)]
    return name
