"""First documents of every query of a run, in a small memory-mapped file for pages.

A run has up to 1,000 documents for each query and is compressed as a whole, but a page shows ten documents of one query
and a comparison needs ten of each. The first documents are therefore extracted once. The file has one line for each
query, sorted by the queries' bytes: its id, a tab, and its documents in rank order, separated by single spaces (ids
have no white space). Queries are found by bisection.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation.archives.compression import FileLimits
from evaluation.collections.document_ids import PROCESS_SEED
from evaluation.judgements.qrels import Qrels
from evaluation.kernel.layout import pad_text
from evaluation.kernel.library import NO_JUDGEMENTS, Judged
from evaluation.runs.trec_run import ReadingTask, read_run

#: One more document than pages show, because the next one moves up if the query itself is dropped.
STORED_DEPTH = 11


def write_top_documents(run: Path, target: Path, excluded: Qrels | None = None) -> None:
    """Write the first `STORED_DEPTH` documents of every query of an accepted run in any format to `target`.

    It needs as much time and memory as `first_documents`.
    """
    target.write_bytes(sort_by_query(_read_first(run, STORED_DEPTH, excluded)))


def sort_by_query(first: bytes) -> bytes:
    """Sort the lines of first documents, which the reader returns in the run's order, by the queries' bytes."""
    lines = sorted(line.partition(b"\t") for line in first.split(b"\n")[:-1])
    return b"".join(b"%b\t%b\n" % (query, documents) for query, _, documents in lines)


def first_documents(
    run: Path, depth: int, excluded: Qrels | None = None, *, drop_self_matches: bool = False
) -> dict[bytes, list[bytes]]:
    """Return the first `depth` documents of every query of an accepted run, best first, without excluded ones.

    If `drop_self_matches` is set, a document with the query's own id is omitted. The order is trec_eval's: scores as
    float32, descending, then document ids, descending by their bytes.
    """
    lines = _read_first(run, depth + drop_self_matches, excluded)
    documents = {}
    for line in lines.split(b"\n")[:-1]:
        query, _, names = line.partition(b"\t")
        documents[query] = [name for name in names.split(b" ") if not (drop_self_matches and name == query)][:depth]
    return documents


def _read_first(run: Path, depth: int, excluded: Qrels | None) -> bytes:
    """Return a line with the first `depth` documents of every query, without excluded ones, in the run's order."""
    names = [query.encode() for query in excluded.query_ids] if excluded else []
    rows = np.arange(len(names), dtype=np.int32)
    task = ReadingTask(
        pad_text(b"".join(names)),
        np.cumsum([0, *map(len, names)], dtype=np.int64),
        PROCESS_SEED,
        maximum_depth=depth,
        first_documents=depth,
        excluded=Judged(rows, excluded.table(PROCESS_SEED)) if excluded else NO_JUDGEMENTS,
        any_query=True,
    )
    return read_run(run, task, FileLimits()).first_documents


class TopDocuments:
    """Reader of a file written by `write_top_documents`: ids as `str`, best first, at most `STORED_DEPTH` per query."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            is_empty = not path.stat().st_size
            self._text = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def get_documents(self, query_id: str) -> list[str]:
        """Return the first documents of a query, or an empty list if the run has none."""
        encoded_id, text = query_id.encode(), self._text
        low, high = 0, len(text)
        while low < high:  # The line of the query, if it exists, begins in [low, high).
            start = text.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = text.find(b"\n", start)
            query, _, documents = text[start:end].partition(b"\t")
            if query == encoded_id:
                return documents.decode().split(" ")
            if query < encoded_id:
                low = end + 1
            else:
                high = start
        return []

    def __iter__(self) -> Iterator[tuple[str, list[str]]]:
        """Yield (query id, its first documents) of every query, in order of the ids' bytes."""
        return ranked_documents(bytes(self._text))


def ranked_documents(lines: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield (query id, its first documents) of each line that the reader of runs returned, in its order."""
    for line in lines.split(b"\n")[:-1]:
        query, _, documents = line.decode().partition("\t")
        yield query, documents.split(" ")


def cut_lines(first: bytes, depth: int) -> bytes:
    """Return the lines with the first `depth` documents of each query, or no lines for a depth of 0."""
    lines = (f"{query}\t{' '.join(documents[:depth])}\n" for query, documents in ranked_documents(first))
    return "".join(lines).encode() if depth else b""


def displayed_documents(documents: list[str], query_id: str, *, depth: int, drop_self_matches: bool) -> list[str]:
    """Return the first `depth` documents, without the query's own id if self-matches are dropped."""
    other_documents = [name for name in documents if name != query_id] if drop_self_matches else documents
    return other_documents[:depth]
