"""Batches of texts for models: what is in one, and what happens where one does not fit into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evaluation.core.problems import ModelFailure


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_batch_that_does_not_fit_is_halved_and_the_next_is_whole(on_gpu: bool) -> None:
    import torch

    from evaluation.engines.neural.loading import run_in_batches

    lengths = np.array([5, 1, 9, 3, 7, 2, 2])
    tried: list[list[int]] = []
    kept: list[list[int]] = []

    def run(indices: Any) -> int:
        tried.append(indices.tolist())
        if 2 in indices and len(indices) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory") if on_gpu else MemoryError
        return len(indices)

    shares: list[float] = []
    run_in_batches(lengths, run, lambda indices, _: kept.append(indices.tolist()), tokens=27, progress=shares.append)
    assert tried == [[2, 4, 0], [2, 4], [2], [4], [0], [3, 5, 6, 1]]
    assert kept == [[2], [4], [0], [3, 5, 6, 1]]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_what_is_in_a_batch_follows_from_the_texts_and_the_tokens_alone() -> None:
    from evaluation.engines.neural.loading import split_into_batches

    lengths = np.random.default_rng(5).integers(0, 300, 500)
    for tokens, most_texts in ((1, 0), (512, 0), (4096, 7), (10**6, 0)):
        batches = list(split_into_batches(lengths, tokens, most_texts))
        assert sorted(np.concatenate(batches)) == list(range(500))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens
            assert not most_texts or len(batch) <= most_texts


def test_one_text_that_does_not_fit_is_the_models_failure() -> None:
    from evaluation.engines.neural.loading import run_in_batches

    def run(indices: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    with pytest.raises(ModelFailure) as failure:
        run_in_batches(np.array([1, 2]), run, lambda indices, _: None)
    assert failure.value.code == "out_of_memory"
