"""What finds the documents that a re-ranker looks at: BM25 as on every board, or a run that was made before.

Re-rankers read the texts of documents again when they search. `Texts` are files: `titles.bin`, `texts.bin` with their
offsets (see `strings`), in the corpus's order, and ids as in `ordered_ids`.
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
    """The rankings of a run that was made before, with the methods of an engine."""

    label = "a run"

    def __init__(self, path: Path) -> None:
        self._path = path

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Put the run's lines together by query; the corpus is not read."""
        IndexedRun.write(self._path, folder / "run")
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        self._run = IndexedRun(folder / "run")

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the first `depth` documents of each query; none for a query that the run does not name."""
        for query in queries:
            ids, scores = self._run.documents(query.id)
            yield SearchResult(query.id, ids[:depth], scores[:depth].astype(np.float32))

    def size(self) -> int:
        """Return 0: a run is no index."""
        return 0


def first_stage(resources: Resources) -> BM25 | StoredRun:
    """Return BM25 with its defaults over the same corpus, or the run among the resources."""
    if resources.runs:
        return StoredRun(resources.runs[0])
    return BM25(
        bm25.DESCRIPTIONS[0].complete({}), Resources(language=resources.language, index=resources.index)
    )


def document_numbers(ranking: SearchResult, ids: OrderedIds) -> Numbers:
    """Return the documents of a first stage by their numbers. Raises InvalidContent where the corpus lacks one."""
    numbers = [ids.find(identifier) for identifier in ranking.document_ids]
    if -1 in numbers:
        name = ranking.document_ids[numbers.index(-1)]
        message = f"the run to re-rank names the document {name!r} for query {ranking.query_id!r}"
        hint = "The corpus has no such document; give a run over this version of the dataset."
        raise InvalidContent.of(Problem("error", "unknown_document", numbers.count(-1), message, hint))
    return np.array(numbers, np.int64)


def store_texts(documents: Iterable[Document], folder: Path) -> Iterator[Document]:
    """Pass the documents on, and write them to `folder`, which is complete once the last was taken.

    Raises InvalidContent where two have the same id.
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
    """What `store_texts` wrote, each document read where it lies; iterating gives them in the corpus's order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids = OrderedIds(folder)
        self._titles = Strings(folder, "titles")
        self._texts = Strings(folder, "texts")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: int) -> Document:
        """Return the document with this number in the corpus's order."""
        (identifier,) = self.ids.of(np.array([number]))
        return Document(identifier, str(self._titles[number], "utf-8"), str(self._texts[number], "utf-8"))

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))
