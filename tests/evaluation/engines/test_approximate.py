"""Approximate indexes: the sample for learning, and building in memory or in groups merged on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.engines.index import vector_index
from evaluation.engines.index.vector_index import VECTORS_PER_LIST, count_lists, sample_rows


@pytest.mark.parametrize(
    ("count", "dimension", "lists"),
    [
        (0, 768, 1),
        (63, 768, 1),
        (6_400, 768, 100),
        (1_000_000, 768, 4_000),
        (8_841_823, 768, 10_922),  # 4 √documents would be 11,892
        (8_841_823, 256, 11_892),
        (138_364_198, 768, 10_922),
    ],
)
def test_every_list_is_learned_from_64_vectors_and_the_sample_fits(count: int, dimension: int, lists: int) -> None:
    assert count_lists(count, dimension) == lists
    assert lists == 1 or lists * VECTORS_PER_LIST <= count
    assert lists * VECTORS_PER_LIST * dimension * 4 <= 2**31
    assert count_lists(count, dimension, requested_lists=100_000) <= max(count // 64, 1)


def test_a_sample_is_taken_at_equal_distances_through_all_shards() -> None:
    shards = [np.arange(start, end, dtype=np.float16)[:, None] for start, end in ((0, 7), (7, 7), (7, 30))]
    assert sample_rows(shards, 10)[:, 0].tolist() == list(range(0, 30, 3))
    assert sample_rows(shards, 100)[:, 0].tolist() == list(range(30))
    assert sample_rows([shards[1]], 3).shape == (0, 1)


def test_lists_that_are_filled_in_groups_are_searched_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    shards = [random.normal(size=(count, 8)).astype(np.float32) for count in (700, 300, 41)]
    queries = random.normal(size=(5, 8)).astype(np.float32)
    ranks = np.arange(1_041, dtype=np.uint32)
    parameters = {"search": "ivf", "stored_dtype": "float32", "ivf_lists": 0, "ivf_probes": 3}
    vector_index.learn(shards, tmp_path, parameters, 1, lambda vectors: vectors)

    def found(name: str) -> Any:
        (tmp_path / name).mkdir()
        vector_index.fill(shards, tmp_path, tmp_path / name, 1)
        (tmp_path / name).rename(tmp_path / f"{name}-moved")  # an index names no folder
        index = vector_index.Approximate(tmp_path / f"{name}-moved", ranks, parameters, 1)
        return [(documents.tolist(), scores.tolist()) for documents, scores in index.search(queries, 50)]

    one = found("one")
    monkeypatch.setattr(vector_index, "_GROUP", 2_000)
    monkeypatch.setattr(vector_index, "_INDEXED_AT_ONCE", 100)
    assert found("groups") == one
    assert sorted(path.name for path in (tmp_path / "groups-moved").iterdir()) == [
        "index.faiss",
        "index.ivfdata",
    ]
    assert len(one[0][0]) == 50
