"""Texts of documents on disk, for engines that read them again when they search.

Files: `titles.bin`, `texts.bin` with their offsets (see `strings`), in the corpus's order, and ids as in `ordered_ids`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from evaluation.collections.beir import Document
from evaluation.core.strings import Strings, StringsWriter
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids


def keep_texts(documents: Iterable[Document], folder: Path) -> Iterator[Document]:
    """Pass the documents on, and write them to `folder`, which is complete once the last was taken.

    Raises InvalidContent where two have the same id.
    """
    folder.mkdir()
    ids: list[str] = []
    with StringsWriter(folder, "titles") as titles, StringsWriter(folder, "texts") as texts:
        for document in documents:
            ids.append(document.id)
            titles.write(document.title)
            texts.write(document.text)
            yield document
    write_ordered_ids(folder, ids)


class Texts:
    """What `keep_texts` wrote, each document read where it lies; iterating gives them in the corpus's order."""

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
