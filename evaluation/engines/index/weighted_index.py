"""An inverted index of weights, for learned sparse retrieval: a document's score is the dot product with the query.

An encoded shard holds its documents as rows: document d has the terms and weights at [offsets[d]:offsets[d + 1]] of
`terms` (int32, ascending) and `weights` (float32), and its id in `ids` (see `strings`). The index holds the same by
term: postings [offsets[t]:offsets[t + 1]] of `documents` (uint32, ascending) and `weights`; ids as in `ordered_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.core.strings import Strings, StringsWriter, map_array
from evaluation.core.writing import new_map
from evaluation.engines import operations
from evaluation.engines.base import Progress, SearchResult, ignore
from evaluation.engines.index import kernels
from evaluation.engines.index.ordered_ids import OrderedIds, OrderedIdsWriter


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse vectors: row r has the terms and weights at [offsets[r]:offsets[r + 1]], terms ascending."""

    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: NDArray[np.float32]

    def row(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Terms and weights of one row."""
        here = slice(self.offsets[number], self.offsets[number + 1])
        return self.terms[here], self.weights[here]


def write_sparse_shard(folder: Path, ids: Sequence[str], rows: SparseRows) -> None:
    """Write the encoded documents of a shard, one row each."""
    with StringsWriter(folder, "ids") as writer:
        for identifier in ids:
            writer.write(identifier)
    np.save(folder / "offsets.npy", rows.offsets)
    np.save(folder / "terms.npy", rows.terms)
    np.save(folder / "weights.npy", rows.weights)


def write_weighted_index(
    shards: Sequence[Path], folder: Path, dimension: int, progress: Progress = ignore
) -> None:
    """Index shards, in corpus order, for `dimension` terms. In memory at once: one shard, and the ids."""
    counts = np.zeros(dimension, np.int64)
    for shard in shards:
        counts += np.bincount(map_array(shard / "terms.npy"), minlength=dimension)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    np.save(folder / "offsets.npy", offsets)
    size = (int(offsets[-1]),)
    documents = new_map(folder / "documents.npy", np.uint32, size)
    weights = new_map(folder / "weights.npy", np.float32, size)
    cursors = offsets[:-1].copy()
    ids = OrderedIdsWriter(folder)
    for number, shard in enumerate(shards, 1):
        _append(shard, len(ids), cursors, np.asarray(documents), np.asarray(weights))
        for identifier in Strings(shard, "ids"):
            ids.write(str(identifier, "utf-8"))
        progress(number / len(shards))
    documents.flush()
    weights.flush()
    ids.close()


def _append(
    shard: Path,
    first_document: int,
    cursors: NDArray[np.int64],
    all_documents: NDArray[np.uint32],
    all_weights: NDArray[np.float32],
) -> None:
    """Add a shard's rows to the postings of their terms, and move the terms' cursors on."""
    terms = map_array(shard / "terms.npy")
    by_term = np.argsort(terms, kind="stable")
    lengths = np.diff(map_array(shard / "offsets.npy"))
    documents = np.repeat(np.arange(first_document, first_document + len(lengths), dtype=np.uint32), lengths)
    counts = np.bincount(terms, minlength=len(cursors))
    kernels.append_postings(
        np.arange(len(cursors), dtype=np.int32),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        documents[by_term],
        map_array(shard / "weights.npy")[by_term],
        cursors,
        all_documents,
        all_weights,
    )


class WeightedIndex:
    """An index opened for searching, its arrays mapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets = map_array(folder / "offsets.npy")
        self._documents = map_array(folder / "documents.npy")
        self._weights = map_array(folder / "weights.npy")
        self._ids = OrderedIds(folder)
        self._sums = np.zeros(kernels.BLOCK_SIZE, np.float64)
        kernels.load()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def nonzeros(self) -> int:
        """Weights of all documents together."""
        return len(self._weights)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def search(
        self, query: str, terms: NDArray[np.int32], weights: NDArray[np.float32], depth: int
    ) -> SearchResult:
        """The best `depth` documents with a positive score for the query of this id and these terms."""
        keys = np.empty(2 * depth + kernels.SPARE_KEYS, np.uint64)
        starts, ends = self._offsets[terms], self._offsets[terms + 1]
        operations.add(lambda: int((ends - starts).sum()))
        found = kernels.search_weighted(
            self._documents,
            self._weights,
            starts.astype(np.uint64),
            ends.astype(np.uint64),
            weights,
            self._ids.ranks,
            depth,
            self._sums,
            keys,
        )
        ranks, scores = kernels.read_keys(keys[:found])
        return SearchResult(query, self._ids.at(ranks), scores)
