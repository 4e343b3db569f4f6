"""Vectors of encoded shards, made searchable: exactly as they are, exactly in float16, or approximately with faiss.

The folder of an index has `index.json` (the shards' files, their greatest norms), the ids (see `ordered_ids`), and for
float16 a copy of each shard, `00000.npy` and so on, or for other codes and an approximate search `index.faiss`. The
shards themselves, in float32, stay where they are: exact search reads them, and the others are compared with them.

faiss searches approximately by HNSW, inverted lists (IVF) or product quantisation (PQ): Y. Malkov and D. Yashunin,
"Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs", 2016; H.
Jégou et al., "Product Quantization for Nearest Neighbor Search", 2011 (IVF and PQ). Lists are read where they lie;
other indexes of faiss are held in memory. So are vectors of eight bits a dimension (int8), and of one (binary), which
are found by their Hamming distance and scored by their inner product with the query: I. Yamada et al., "Efficient
Passage Retrieval with Hashing for Open-domain Question Answering", 2021.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.core.errors import ModelFailure
from evaluation.core.writing import new_map
from evaluation.engines.base import Floats, Numbers, Resources, shard_name, size_of
from evaluation.engines.index import approximate
from evaluation.engines.index.exact_search import ExactSearch, Found, Vectors, greatest_norm
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids

#: What vectors may be stored in.
STORED = ("float32", "float16", "int8", "binary")
_STATE = "index.json"
#: Takes the dimensions of vectors that are searched.
Cut = Callable[[Vectors], Vectors]
#: Depth at which an approximate ranking is compared with the exact one.
_COMPARED_DEPTH = 100
_ROWS_AT_ONCE = 8_192
#: As torch.nn.functional.normalize has it.
_LEAST_NORM = 1e-12


def is_learned(parameters: Mapping[str, Any]) -> bool:
    """Whether an index has something that is learned from the vectors: parts of a collection must share that."""
    return bool(parameters["search"] != "exact" or parameters["stored_dtype"] == "int8")


def learn_index(
    shards: Sequence[Path], folder: Path, parameters: Mapping[str, Any], threads: int, cut: Cut
) -> None:
    """Write into the folder what indexes of any of these files of vectors, as `cut` makes them, are to share."""
    if is_learned(parameters):
        approximate.learn([load_vectors(path) for path in shards], folder, parameters, threads, cut)


def build_index(
    shards: Sequence[Path],
    ids: Iterable[str],
    folder: Path,
    parameters: Mapping[str, Any],
    threads: int,
    learned: Path,
) -> None:
    """Write an index of these files of vectors (documents × dimension, float32), whose documents have these ids.

    `learned` is the folder that `learn_index` filled. Raises InvalidContent where an id is there twice, and
    ModelFailure where a vector does not fit into float16.
    """
    write_ordered_ids(folder, ids)
    state: dict[str, Any] = {
        "shards": [str(path.resolve()) for path in shards],
        "norm": max(greatest_norm(load_vectors(path)) for path in shards),
    }
    if parameters["stored_dtype"] == "float16":
        state["copies"] = [shard_name(number) + ".npy" for number in range(len(shards))]
        for path, copy in zip(shards, state["copies"], strict=True):
            copy_vectors(path, folder / copy, lambda vectors: vectors, np.float16)
    if parameters["stored_dtype"] == "binary":
        approximate.build_binary([load_vectors(path) for path in shards], folder)
    elif is_learned(parameters):
        approximate.fill([load_vectors(path) for path in shards], learned, folder, threads)
    (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")


class VectorIndex:
    """An index that `build_index` left in a folder, opened."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any], resources: Resources) -> None:
        state = json.loads((folder / _STATE).read_text("utf-8"))
        self._folder = folder
        self._resources = resources
        self._files = [Path(name) for name in state["shards"]]
        self._norm: float = state["norm"]
        self._ids = OrderedIds(folder)
        self._copies = [folder / name for name in state.get("copies", ())]
        self._searcher: Any = None
        if parameters["stored_dtype"] == "binary":
            self._searcher = approximate.Binary(folder, self._ids.ranks, resources.threads)
        elif is_learned(parameters):
            self._searcher = approximate.Approximate(folder, self._ids.ranks, parameters, resources.threads)
        else:
            self._searcher = self._exact(self._copies) if self._copies else self.exact

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return len(self._ids)

    @cached_property
    def exact(self) -> ExactSearch:
        """Exact search of the vectors as they were encoded."""
        return self._exact(self._files)

    def search(self, queries: Floats, depth: int) -> Iterator[Found]:
        """The best documents of each query (queries × dimension), and their scores."""
        found: Iterator[Found] = self._searcher.search(queries, depth)
        return found

    def identifiers(self, documents: Numbers) -> list[str]:
        """The ids of the documents with these numbers."""
        return self._ids.at(self._ids.ranks[documents])

    def size(self) -> int:
        """Bytes of the vectors that are searched, or their index, and of the ids."""
        files = [path for path in self._folder.iterdir() if path.is_file() and path.suffix != ".json"]
        return size_of(*files, *(self._files if self._searcher is self.__dict__.get("exact") else ()))

    def overlap_with_exact(self, queries: Floats) -> float:
        """Mean share of the exact top 100 (in float32) that this index finds for these queries."""
        depth = min(_COMPARED_DEPTH, self.documents)
        pairs = zip(self.search(queries, depth), self.exact.search(queries, depth), strict=True)
        return float(np.mean([len(np.intersect1d(ours[0], exact[0])) / depth for ours, exact in pairs]))

    def _exact(self, files: Sequence[Path]) -> ExactSearch:
        shards, given = list(map(load_vectors, files)), self._resources
        return ExactSearch(shards, self._norm, self._ids.ranks, device=given.device, threads=given.threads)


def new_vectors(
    path: Path, count: int, dimension: int, dtype: type[np.floating[Any]] = np.float32
) -> Vectors:
    """An array (count × dimension) that is kept in a file, to be filled."""
    return np.asarray(new_map(path, dtype, (count, dimension)))


def load_vectors(path: Path) -> Vectors:
    """The array in a file, mapped for reading alone: a private mapping would be charged to the memory there is."""
    return np.asarray(np.load(path, mmap_mode="r"))


def bytes_of_vector(dimension: int, stored_dtype: str) -> int:
    """Bytes that a vector takes as it is stored."""
    bits = {"float32": 32, "float16": 16, "int8": 8, "binary": 1}[stored_dtype]
    return -(-dimension * bits // 8)


def leading(vectors: Vectors, dimension: int, unit_length: bool) -> Vectors:
    """The first dimensions of vectors (Matryoshka), made one long again where they were."""
    kept = vectors[:, :dimension]
    if not unit_length or kept.shape == vectors.shape:
        return kept
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return np.asarray(kept / np.maximum(lengths, _LEAST_NORM), np.float32)


def copy_vectors(path: Path, copy: Path, cut: Cut, dtype: type[np.floating[Any]] = np.float32) -> None:
    """Write what `cut` makes of a file of vectors to another one. Raises ModelFailure where that does not fit."""
    vectors = load_vectors(path)
    kept = new_vectors(copy, len(vectors), cut(vectors[:0]).shape[1], dtype)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            kept[rows] = cut(vectors[rows])
        if not np.isfinite(kept[rows]).all():
            name = np.dtype(dtype).name
            raise ModelFailure(
                "not_finite_output", f"a vector's values are beyond {name}, which was asked for"
            )
