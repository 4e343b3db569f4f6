"""The inverted index of weights: equal to a dense matrix product, whatever the vectors, ties and shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evaluation.core.order import trec_order
from evaluation.core.problems import InvalidContent
from evaluation.engines.index.inverted_index import (
    SparseRows,
    WeightedIndex,
    write_sparse_shard,
    write_weighted_index,
)

DIMENSION = 12


def rows_of(matrix: NDArray[np.float32]) -> SparseRows:
    rows, terms = np.nonzero(matrix)
    offsets = np.searchsorted(rows, np.arange(len(matrix) + 1))
    return SparseRows(offsets.astype(np.int64), terms.astype(np.int32), matrix[rows, terms])


def indexed(folder: Path, matrix: NDArray[np.float32], ids: list[str], shard_size: int) -> WeightedIndex:
    shards = []
    for start in range(0, max(len(ids), 1), shard_size):
        shards.append(folder / f"{start:05d}")
        shards[-1].mkdir()
        part = slice(start, start + shard_size)
        write_sparse_shard(shards[-1], ids[part], rows_of(matrix[part]))
    (folder / "index").mkdir()
    write_weighted_index(shards, folder / "index", DIMENSION)
    return WeightedIndex(folder / "index")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    documents=st.integers(0, 40),
    depth=st.integers(1, 12),
    shard_size=st.sampled_from([1, 7, 100]),
    rounded=st.booleans(),
    negative=st.booleans(),
)
def test_search_is_a_matrix_product(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    documents: int,
    depth: int,
    shard_size: int,
    rounded: bool,
    negative: bool,
) -> None:
    random = np.random.default_rng(seed)
    matrix = random.random((documents + 1, DIMENSION)) * (random.random((documents + 1, DIMENSION)) < 0.4)
    if rounded:  # halves: many scores are equal
        matrix = np.round(matrix * 2) / 2
    if negative:
        matrix *= random.choice([-1, 1], matrix.shape)
    matrix = matrix.astype(np.float32)
    ids = [f"é{number}" for number in random.permutation(documents)]
    index = indexed(tmp_path_factory.mktemp("sparse"), matrix[1:], ids, shard_size)
    query = rows_of(matrix[:1])
    found = index.search("q", *query.row(0), depth)
    scores = (matrix[1:].astype(np.float64) @ matrix[0].astype(np.float64)).astype(np.float32)
    order = [place for place in trec_order(ids, scores).tolist() if scores[place] > 0][:depth]
    np.testing.assert_allclose(found.scores, scores[order], rtol=1e-6)
    if rounded:  # sums are exact, so order and ties are too
        assert found.document_ids == [ids[place] for place in order]
    assert len(index) == documents
    assert index.nonzeros == np.count_nonzero(matrix[1:])


def test_more_documents_than_a_block_and_more_ties_than_room(tmp_path: Path) -> None:
    count = 20_000
    matrix = np.zeros((count, DIMENSION), np.float32)
    matrix[:, 3] = np.arange(count) % 5
    ids = [f"d{number}" for number in range(count)]
    index = indexed(tmp_path, matrix, ids, 9_000)
    found = index.search("q", np.array([3], np.int32), np.array([0.5], np.float32), 1500)
    expected = trec_order(ids, matrix[:, 3])[:1500]
    assert found.document_ids == [ids[place] for place in expected]
    assert set(found.scores.tolist()) == {2.0}


def test_a_query_without_terms_finds_nothing(tmp_path: Path) -> None:
    index = indexed(tmp_path, np.ones((2, DIMENSION), np.float32), ["a", "b"], 10)
    found = index.search("q", np.empty(0, np.int32), np.empty(0, np.float32), 10)
    assert found.document_ids == []


def test_documents_need_ids_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match="1 duplicate document identifiers"):
        indexed(tmp_path, np.ones((2, DIMENSION), np.float32), ["a", "a"], 10)
