"""One pass over a corpus: the words it uses, and how long each of its documents is."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from evaluation.collections.beir import Document, FileProblems, Progress, iterate_documents
from evaluation.collections.profiles.lengths import LengthDistribution
from evaluation.collections.profiles.unigrams import MOST_WORDS, UnigramCounter, Unigrams, key_of

_LEVEL = 3


@dataclass(frozen=True)
class DocumentLengths:
    """Words per document, by a 64-bit hash of the document's id: `keys` (sorted) and `words`, shape (documents,)."""

    keys: NDArray[np.uint64]
    words: NDArray[np.uint32]

    @classmethod
    def of(cls, keys: NDArray[np.uint64], words: NDArray[np.uint32]) -> DocumentLengths:
        """The lengths in the order of the keys."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], words[order])

    def find(self, document_ids: Iterable[str]) -> NDArray[np.int64]:
        """The lengths of these documents, in their order; those that the corpus does not have are left out."""
        wanted = np.fromiter(map(key_of, document_ids), np.uint64)
        if not len(self.keys) or not len(wanted):
            return np.zeros(0, np.int64)
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = self.keys[places] == wanted
        lengths: NDArray[np.int64] = self.words[places[found]].astype(np.int64)
        return lengths


@dataclass(frozen=True)
class CorpusProfile:
    """What figures need of a corpus. `examples`: documents by id, as they stand there."""

    unigrams: Unigrams
    documents: DocumentLengths
    examples: dict[str, Document]

    @property
    def lengths(self) -> LengthDistribution:
        """The distribution of the documents' lengths."""
        return LengthDistribution.of(self.documents.words)


def profile_corpus(
    path: Path,
    progress: Progress | None = None,
    *,
    examples: Iterable[str] = (),
    most_words: int = MOST_WORDS,
) -> CorpusProfile:
    """Read a corpus once, as a stream: at most twice `most_words` words and 12 bytes per document are held.

    `examples` are ids of documents to bring along; with none of them, the first document that has a text comes.
    Lines that are not documents are left out.
    """
    counter, keys, lengths = UnigramCounter(most_words), array("Q"), array("I")
    wanted, found = set(examples), dict[str, Document]()
    for _, document in iterate_documents(path, FileProblems(path.name), progress):
        counter.add(f"{document.title}\n{document.text}")
        keys.append(key_of(document.id))
        lengths.append(len(document.title.split()) + len(document.text.split()))
        if document.id in wanted or (not wanted and not found and document.text.strip()):
            found[document.id] = document
    return CorpusProfile(
        counter.result(),
        DocumentLengths.of(np.array(keys, np.uint64), np.array(lengths, np.uint32)),
        found,
    )


def write_profile(profile: CorpusProfile, path: Path) -> None:
    """Write words and lengths, compressed; the same profile gives the same bytes. Examples are not written."""
    with path.open("wb") as file, zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file) as out:
        unigrams = profile.unigrams
        for values in (
            np.array([unigrams.total, unigrams.dropped], np.uint64),
            unigrams.keys,
            unigrams.counts,
            profile.documents.keys,
            profile.documents.words,
        ):
            block = io.BytesIO()
            np.save(block, values, allow_pickle=False)
            out.write(block.getbuffer())


def read_unigrams(path: Path) -> Unigrams:
    """The words of a written profile."""
    totals, keys, counts = _read(path, 3)
    return Unigrams(keys, counts, int(totals[0]), int(totals[1]))


def read_document_lengths(path: Path) -> DocumentLengths:
    """The lengths of a written profile."""
    *_, keys, words = _read(path, 5)
    return DocumentLengths(keys, words)


def _read(path: Path, number: int) -> list[NDArray[Any]]:
    """The first arrays of the file."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as text:
        whole = io.BytesIO(text.read())
    return [np.load(whole, allow_pickle=False) for _ in range(number)]
