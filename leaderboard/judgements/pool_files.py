"""The files of a pool: CSV with texts, to be judged in a spreadsheet or a tool, and TREC's lines to be filled in."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import orjson

from evaluation.collections.beir import read_corpus, read_queries
from evaluation.judgements.import_file import guarded

COLUMNS = ("item", "query_id", "query", "document_id", "title", "text", "grade")
#: The longest text of a cell: spreadsheets hold 32,767 characters in one.
LONGEST_TEXT = 30_000
#: What stands for a grade in TREC's lines until somebody judged: everywhere here a negative grade is none.
UNJUDGED = "-1"

Pairs = Sequence[tuple[str, str]]
Texts = Callable[[str], tuple[str, str]]


def write_csv(pairs: Pairs, target: Path, prefix: str, queries: dict[str, str], texts: Texts) -> None:
    """One row a pair (RFC 4180, UTF-8 with a byte order mark, which spreadsheets need). `grade` is empty.

    `prefix` begins the items' numbers, which tell nothing. Cells that a spreadsheet would run begin with `'`
    (evaluation.judgements.import_file.guarded).
    """
    with target.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(COLUMNS)
        for number, (query, document) in enumerate(pairs, 1):
            title, text = texts(document)
            cells = (query, queries.get(query, ""), document, title, text)
            writer.writerow([f"{prefix}-{number:06}", *map(guarded, cells), ""])


def write_trec(pairs: Pairs, target: Path) -> None:
    """`query 0 document -1`: a qrels file in which -1 is to be replaced by grades."""
    with target.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{query} 0 {document} {UNJUDGED}\n" for query, document in pairs)


def texts_of_queries(path: Path, wanted: set[str]) -> dict[str, str]:
    """What the queries ask, by id."""
    return {query.id: _cut(query.text) for query in read_queries(path) if query.id in wanted}


@contextmanager
def texts_of_documents(
    corpus: Path | None, wanted: set[str], folder: Path, progress: Callable[[float], None]
) -> Iterator[Texts]:
    """Title and text of a document by its id, both empty where the corpus is not here.

    The corpus is read once, as a stream; what is wanted of it waits in a file, so that memory is the ids' alone.
    """
    if corpus is None:
        yield lambda document: ("", "")
        return
    places: dict[str, tuple[int, int]] = {}
    with (folder / "texts").open("w+b") as file:
        end = 0
        for document in read_corpus(corpus, progress):
            if document.id in wanted:
                length = file.write(orjson.dumps([_cut(document.title), _cut(document.text)]))
                places[document.id] = (end, length)
                end += length
        yield lambda name: _read(file, *places[name]) if name in places else ("", "")


def _read(file: BinaryIO, start: int, length: int) -> tuple[str, str]:
    file.seek(start)
    title, text = orjson.loads(file.read(length))
    return title, text


def _cut(text: str) -> str:
    text = text.replace("\0", " ")
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rstrip()} …"
