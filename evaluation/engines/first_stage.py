"""What finds the documents that a re-ranker looks at: BM25 as on every board, or a run that was made before.

Re-rankers read the texts of documents again when they search. `Texts` are files: `titles.bin`, `texts.bin` with their
offsets (see `strings`), in the corpus's order, and ids as in `ordered_ids`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.beir import Document, Query
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from evaluation.core.strings import Strings, StringsWriter
from evaluation.engines import bm25
from evaluation.engines.base import Engine, Resources, SearchResult
from evaluation.engines.index.ordered_ids import OrderedIds, OrderedIdsWriter
from evaluation.runs.stored import IndexedRun


class FirstStage:
    """BM25 with its defaults over the same corpus, or, where one is given, a run."""

    def __init__(self, resources: Resources) -> None:
        runs = resources.runs
        self._run_file = runs[0] if runs else None
        self._run: IndexedRun | None = None
        (description,) = (one for one in bm25.DESCRIPTIONS if one.name == "bm25")
        self._bm25: Engine | None = None
        if not runs:
            given = Resources(language=resources.language, index=resources.index)
            self._bm25 = description.create(description.complete({}), given)

    @property
    def name(self) -> str:
        """What it is, for people."""
        return "BM25" if self._bm25 else "a run"

    def build(self, documents: Iterable[Document], folder: Path) -> None:
        """Leave what is searched in `folder`, which is made. Documents are read only where BM25 has no index yet."""
        folder.mkdir()
        if self._bm25 is not None:
            self._bm25.build(documents, folder)
        elif self._run_file is not None:
            IndexedRun.write(self._run_file, folder / "run")

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        if self._bm25 is not None:
            self._bm25.open(folder)
        else:
            self._run = IndexedRun(folder / "run")

    def size(self) -> int:
        """Bytes of the index; a run is none."""
        return self._bm25.size() if self._bm25 else 0

    def rankings(self, queries: Sequence[Query], depth: int) -> list[SearchResult]:
        """The best `depth` documents of each query; none for a query that the run does not name."""
        if self._bm25 is not None:
            return list(self._bm25.search(queries, depth))
        if self._run is None:
            raise RuntimeError("build or open an index first")
        found = [(query.id, *self._run.documents(query.id)) for query in queries]
        return [
            SearchResult(name, ids[:depth], scores[:depth].astype(np.float32)) for name, ids, scores in found
        ]


def document_numbers(ranking: SearchResult, ids: OrderedIds) -> NDArray[np.int64]:
    """The documents of a first stage by their numbers. Raises InvalidContent where the corpus lacks one."""
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
        """The document with this number in the corpus's order."""
        (identifier,) = self.ids.of(np.array([number]))
        return Document(identifier, str(self._titles[number], "utf-8"), str(self._texts[number], "utf-8"))

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))

    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())
