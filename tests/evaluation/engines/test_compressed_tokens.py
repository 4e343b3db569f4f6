"""Compressed vectors of tokens: scores are MaxSim over what the codes stand for, and with enough bits MaxSim itself."""

from __future__ import annotations

import importlib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evaluation.engines.index.token_store import CompressedTokens, TokenStore, TokenWriter

Floats = NDArray[np.float32]


def stored(folder: Path, documents: list[Floats], shards: int, dimension: int) -> list[Path]:
    """The vectors of documents in shards, in each the last document first."""
    folders = []
    for number, places in enumerate(np.array_split(np.arange(len(documents)), shards)):
        folders.append(folder / f"{number}")
        folders[-1].mkdir(parents=True)
        with TokenWriter(folders[-1], dimension, "float32") as writer:
            for place in reversed(range(len(places))):
                vectors = documents[places[place]]
                writer.write(np.array([place]), np.array([len(vectors)]), vectors)
    return folders


def indexed(folder: Path, shards: list[Path], bits: int, probes: int, learned: Path | None = None) -> Any:
    folder.mkdir()
    index = CompressedTokens(bits, probes, 1)
    if learned is None:
        index.learn(TokenStore(shards), folder)
    index.build(TokenStore(shards), learned or folder, folder)
    index.open(folder)
    return index


def max_sim(query: Floats, vectors: Floats) -> float:
    return float((vectors @ query.T).max(axis=0).sum()) if len(vectors) else -np.inf


def made(seed: int, count: int, alike: bool = False) -> tuple[list[Floats], Floats]:
    random = np.random.default_rng(seed)
    few = random.normal(size=(5, 8))
    texts = [
        few[random.integers(5, size=n)] if alike else random.normal(size=(n, 8)) for n in random.integers(0, 12, count)
    ]
    return [text.astype(np.float32) for text in texts], random.normal(size=(4, 8)).astype(np.float32)


def test_what_is_learned_from_is_in_memory_once(tmp_path: Path) -> None:
    """The sample has up to 2 GiB. Only the part of the shard that is being read needs additional memory."""
    random = np.random.default_rng(1)
    documents = [random.normal(size=(40, 64)).astype(np.float32) for _ in range(80)]
    store = TokenStore(stored(tmp_path, documents, 8, 64))
    importlib.import_module("faiss")
    tracemalloc.start()
    CompressedTokens(2, 8, 1).learn(store, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * store.vectors * 64 * 4


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    count=st.integers(0, 60),
    shards=st.integers(1, 3),
    bits=st.sampled_from([1, 2, 4, 8]),
)
def test_scores_are_those_of_the_decoded_vectors(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, shards: int, bits: int
) -> None:
    import faiss

    documents, query = made(seed, count)
    folder = tmp_path_factory.mktemp("tokens")
    index = indexed(folder / "index", stored(folder, documents, shards, 8), bits, 10_000)
    found, scores = index.search(query, 100)
    assert found.tolist() == [place for place, vectors in enumerate(documents) if len(vectors)]
    decoder = faiss.read_index(str(folder / "index" / "learned.faiss"))
    for place, score in zip(found.tolist(), scores.tolist(), strict=True):
        decoded = decoder.sa_decode(decoder.sa_encode(documents[place]))
        assert score == pytest.approx(max_sim(query, decoded), abs=1e-4)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_with_enough_bits_and_lists_it_is_max_sim(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Vectors that repeat a few: codes hold them without loss."""
    documents, query = made(seed, 80, alike=True)
    folder = tmp_path_factory.mktemp("tokens")
    index = indexed(folder / "index", stored(folder, documents, 2, 8), 8, 10_000)
    found, scores = index.search(query, 100)
    expected = [max_sim(query, documents[place]) for place in found.tolist()]
    assert len(found) == sum(len(vectors) > 0 for vectors in documents)
    np.testing.assert_allclose(scores, expected, atol=2e-3)


def test_parts_that_share_what_was_learned_score_the_same_bytes(tmp_path: Path) -> None:
    documents, query = made(3, 200)
    shards = stored(tmp_path, documents, 4, 8)
    whole = indexed(tmp_path / "whole", shards, 2, 4)
    expected = dict(zip(*(array.tolist() for array in whole.search(query, 100)), strict=True))
    assert 0 < len(expected) < len(documents)
    found: dict[int, float] = {}
    for name, some, first in (("a", shards[:1], 0), ("b", shards[1:], 50)):
        numbers, scores = indexed(tmp_path / name, some, 2, 4, tmp_path / "whole").search(query, 100)
        found |= dict(zip((numbers + first).tolist(), scores.tolist(), strict=True))
    assert found == expected


def test_two_bits_are_a_sixteenth_of_the_vectors(tmp_path: Path) -> None:
    documents, _ = made(5, 4_000)
    vectors = sum(map(len, documents))
    shards = stored(tmp_path, documents, 1, 8)
    indexed(tmp_path / "index", shards, 2, 4)
    assert (tmp_path / "index" / "codes.bin").stat().st_size == vectors * 4  # two of them say which centroid
