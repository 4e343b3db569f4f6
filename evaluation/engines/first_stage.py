"""First stages of re-rankers, BM25 or a stored run, and the document texts that re-rankers read.

`Texts` consist of `titles.bin` and `texts.bin` with their offsets (see `core.strings`) in the order of the corpus,
and of ids as described in `ordered_ids`.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from evaluation.collections.beir import Document, Query
from evaluation.core.problems import InvalidContent, Problem
from evaluation.core.strings import Strings, StringsWriter
from evaluation.engines import bm25
from evaluation.engines.base import Numbers, Resources, SearchResult
from evaluation.engines.bm25 import BM25
from evaluation.engines.index.ordered_ids import OrderedIds, OrderedIdsWriter
from evaluation.runs.stored import IndexedRun


class StoredRun:
    """The rankings of an existing run, with the methods of an engine."""

    label = "a run"

    def __init__(self, path: Path) -> None:
        self._path = path

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Write the run's lines to `folder`, grouped by query, and open them. The corpus is not read."""
        IndexedRun.write(self._path, folder / "run")
        self.open(folder)

    def open(self, folder: Path) -> None:
        self._run = IndexedRun(folder / "run")

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the first `depth` documents of each query, or none if the run does not contain the query."""
        for query in queries:
            ids, scores = self._run.documents(query.id)
            yield SearchResult(query.id, ids[:depth], scores[:depth].astype(np.float32))

    def size(self) -> int:
        return 0


def first_stage(resources: Resources) -> BM25 | StoredRun:
    """Return the first stage: the given run, or BM25 with default parameters over the same corpus."""
    if resources.runs:
        return StoredRun(resources.runs[0])
    return BM25(bm25.DESCRIPTIONS[0].complete({}), Resources(language=resources.language, index=resources.index))


def document_numbers(ranking: SearchResult, ids: OrderedIds) -> Numbers:
    """Return the corpus positions of a ranking's documents. Raises InvalidContent if one is not in the corpus."""
    numbers = [ids.find(identifier) for identifier in ranking.document_ids]
    if -1 in numbers:
        name = ranking.document_ids[numbers.index(-1)]
        message = f"the run to re-rank contains the unknown document {name!r} for query {ranking.query_id!r}"
        hint = "The corpus has no such document. Use a run over this version of the dataset."
        raise InvalidContent.build(Problem("error", "unknown_document", numbers.count(-1), message, hint))
    return np.array(numbers, np.int64)


def store_texts(documents: Iterable[Document], folder: Path) -> Iterator[Document]:
    """Yield the documents while writing them to `folder`, which is complete after the last one.

    Raises InvalidContent if two documents have the same id.
    """
    folder.mkdir()
    ids = OrderedIdsWriter(folder)
    with StringsWriter(folder, "titles") as titles, StringsWriter(folder, "texts") as texts:
        for document in documents:
            ids.write(document.id)
            titles.write(document.title)
            texts.write(document.text)
            yield document
    ids.close()


class Texts:
    """The documents that `store_texts` wrote, as a sequence in corpus order that is read from disk on access."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids = OrderedIds(folder)
        self._titles = Strings(folder, "titles")
        self._texts = Strings(folder, "texts")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: int) -> Document:
        (identifier,) = self.ids.get_ids(np.array([number]))
        return Document(identifier, str(self._titles[number], "utf-8"), str(self._texts[number], "utf-8"))

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))
