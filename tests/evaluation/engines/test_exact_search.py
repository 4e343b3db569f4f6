"""Exact search against brute force: every score, every tie, however the documents are cut into blocks and shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evaluation.core.order import trec_order
from evaluation.core.problems import ModelFailure
from evaluation.engines.index import device_search, exact_search
from evaluation.engines.index.exact_search import ExactSearch, max_norm


@pytest.fixture(scope="module", params=["faiss", "torch", "numpy"], autouse=True)
def library(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with each library for the multiplication."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_search, "MANY_QUERIES", 1_000 if request.param == "torch" else 1)
        if request.param == "numpy":  # nothing else is installed
            patch.setattr(exact_search, "find_spec", lambda name: None)
        yield


def names(count: int) -> list[str]:
    """Ids whose byte order is not the documents' order."""
    return [f"{(number * 7919) % 10_007}-é{number}" for number in range(count)]


def ranks_of(ids: list[str]) -> NDArray[np.uint32]:
    ranks = np.empty(len(ids), np.uint32)
    ranks[trec_order(ids, np.zeros(len(ids)))] = np.arange(len(ids), dtype=np.uint32)
    return ranks


def brute_force(
    vectors: NDArray[np.float64], queries: NDArray[np.float64], depth: int
) -> list[list[tuple[str, float]]]:
    ids = names(len(vectors))
    found = []
    for query in queries.astype(np.float64):
        scores = (vectors.astype(np.float64) @ query).astype(np.float32)
        found.append([(ids[place], float(scores[place])) for place in trec_order(ids, scores)[:depth]])
    return found


def searched(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    depth: int,
    *,
    cuts: tuple[int, ...] = (),
    block: int | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> list[list[tuple[str, float]]]:
    ids = names(len(vectors))
    shards = np.split(vectors, sorted(cuts))
    search = ExactSearch(shards, max_norm(vectors), ranks_of(ids), threads=threads, device=device)
    with pytest.MonkeyPatch.context() as patch:
        if block is not None:
            patch.setattr(exact_search, "_BLOCK", block)
            patch.setattr(device_search, "_SCORES_HELD", block * len(queries))
        return [
            [(ids[document], float(score)) for document, score in zip(documents, scores, strict=True)]
            for documents, scores in search.search(queries, depth)
        ]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    documents=st.integers(1, 400),
    queries=st.integers(1, 5),
    dimensions=st.integers(1, 17),
    levels=st.sampled_from([1, 2, 3, 1000]),
    depth=st.integers(1, 60),
    block=st.integers(1, 200),
    cuts=st.lists(st.integers(0, 400), max_size=3),
    threads=st.integers(1, 3),
    half=st.booleans(),
)
def test_it_finds_what_brute_force_finds(
    seed: int,
    documents: int,
    queries: int,
    dimensions: int,
    levels: int,
    depth: int,
    block: int,
    cuts: list[int],
    threads: int,
    half: bool,
) -> None:
    """Few levels make many equal scores, all of which are exact in either arithmetic."""
    random = np.random.default_rng(seed)
    vectors = (random.integers(-levels, levels, (documents, dimensions)) / 8).astype(np.float16 if half else np.float32)
    asked = (random.integers(-levels, levels, (queries, dimensions)) / 8).astype(np.float32)
    found = searched(
        vectors,  # type: ignore[arg-type]
        asked,
        depth,
        cuts=tuple(cut % (documents + 1) for cut in cuts),
        block=block,
        threads=threads,
    )
    assert found == brute_force(vectors.astype(np.float64), asked.astype(np.float64), depth)


def test_thousands_of_equal_scores_are_ordered_by_id() -> None:
    vectors = np.ones((20_000, 3), np.float32)
    vectors[5_000] = 2
    asked = np.ones((2, 3), np.float32)
    assert searched(vectors, asked, 300, block=7_000) == brute_force(
        vectors.astype(np.float64), asked.astype(np.float64), 300
    )


def test_the_result_does_not_depend_on_blocks_shards_or_threads() -> None:
    random = np.random.default_rng(3)
    vectors = random.standard_normal((5_000, 96)).astype(np.float32)
    vectors[2_500:] = vectors[:2_500] * np.float32(1 + 1e-7)  # pairs that float32 arithmetic confuses
    asked = random.standard_normal((70, 96)).astype(np.float32)
    expected = brute_force(vectors.astype(np.float64), asked.astype(np.float64), 100)
    for block, cuts, threads in ((None, (), 1), (333, (100, 4_000), 2), (64, (2_500,), 3)):
        assert searched(vectors, asked, 100, block=block, cuts=cuts, threads=threads) == expected


@pytest.mark.parametrize("levels", [2, 1_000_000])
def test_what_a_device_finds_is_the_same(levels: int) -> None:
    """The way of a graphics card, walked on the processor ("cpu:0" is no "cpu"): with ties and without."""
    random = np.random.default_rng(5)
    vectors = (random.integers(-levels, levels, (3_000, 12)) / levels).astype(np.float32)
    asked = (random.integers(-levels, levels, (9, 12)) / levels).astype(np.float32)
    expected = brute_force(vectors.astype(np.float64), asked.astype(np.float64), 50)
    assert searched(vectors, asked, 50, cuts=(1_000, 1_003), block=700, device="cpu:0") == expected
    assert searched(vectors, asked, 4_000, device="cpu:0") == searched(vectors, asked, 4_000)


def test_vectors_are_read_from_mapped_files(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((1_000, 8)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert searched(mapped, vectors[:3], 10) == searched(vectors, vectors[:3], 10)


def test_nothing_to_search_gives_nothing() -> None:
    nothing = np.zeros((0, 4), np.float32)
    assert searched(nothing, np.ones((2, 4), np.float32), 10) == [[], []]
    assert searched(np.ones((3, 4), np.float32), nothing, 10) == []


def test_scores_beyond_float32_are_the_models_failure() -> None:
    with pytest.raises(ModelFailure) as failure:
        searched(np.full((2, 4), 1e30, np.float32), np.full((1, 4), 1e30, np.float32), 1)
    assert failure.value.code == "not_finite_output"
