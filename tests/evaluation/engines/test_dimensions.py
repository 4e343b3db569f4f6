"""Several numbers of dimensions from one encoding, and what computing in fewer bits loses."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collections.beir import Document
from evaluation.engines import (
    ENGINES,
    InvalidParameter,
    Resources,
    Retrieval,
    RetrievalTask,
    precision,
    retrieve,
)
from evaluation.engines.precision import get_compute_dtype
from tests.evaluation import tiny_models
from tests.evaluation.neural import DOCUMENTS, QUERIES, created, rebuilt, run_bytes, searched

LABELS = ("4 dimensions", "16 dimensions", "all dimensions")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("dense"), tiny_models.tiny_dense, CheckpointKind.SENTENCE_ENCODER)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"similarity": "dot"},
        {"stored_dtype": "float16"},
        {"passage_words": 4},
        {"truncate_dimension": 24},
    ],
)
def test_each_number_is_as_a_search_of_its_own(encoder: Path, tmp_path: Path, parameters: dict[str, Any]) -> None:
    engine = created("dense", encoder, dimensions="16, 4", **parameters)
    main = "24 dimensions" if "truncate_dimension" in parameters else "all dimensions"
    assert engine.variants == (*LABELS[:2], main)
    description = ENGINES["dense"]
    assert description.variants(description.complete({"dimensions": "16, 4", **parameters})) == engine.variants
    engine.build(DOCUMENTS, tmp_path)
    together = list(engine.search_variants(QUERIES, 5))
    for label, dimension in zip(engine.variants, (4, 16, parameters.get("truncate_dimension", 0)), strict=True):
        (tmp_path / label).mkdir()
        alone = created("dense", encoder, **{**parameters, "truncate_dimension": dimension})
        alone.build(DOCUMENTS, tmp_path / label)
        for rankings, own, other in zip(
            together, engine.variant(label).search(QUERIES, 5), alone.search(QUERIES, 5), strict=True
        ):
            assert rankings[label].document_ids == own.document_ids == other.document_ids
            np.testing.assert_allclose(rankings[label].scores, other.scores, rtol=1e-3, atol=1e-4)
        assert engine.variant(label).size() == alone.size()
        facts = alone.facts()
        assert {name: engine.variant_facts(label)[name] for name in facts} == pytest.approx(facts)
    assert list(searched(engine, QUERIES, 5)["q1"]) == together[0][main].document_ids


def test_a_text_vector_has_so_many_bytes(encoder: Path, tmp_path: Path) -> None:
    for stored, bytes_of_4 in {"float32": 16, "float16": 8, "int8": 4, "binary": 1}.items():
        (tmp_path / stored).mkdir()
        engine = created("dense", encoder, dimensions="4", stored_dtype=stored)
        engine.build(DOCUMENTS, tmp_path / stored)
        assert engine.variant_facts("4 dimensions")["bytes_per_document"] == bytes_of_4


def test_numbers_that_are_none_are_refused(encoder: Path) -> None:
    description, known = ENGINES["dense"], CheckpointDescription.read(encoder)
    for text in ("0", "a", "70000", "1,2,3,4,5,6,7"):
        with pytest.raises(InvalidParameter, match="dimensions"):
            description.complete({"dimensions": text})
    with pytest.raises(InvalidParameter, match=f"dimensions = 32 .* has only {tiny_models.HIDDEN} dimensions"):
        description.check_parameters(description.complete({"dimensions": "8,32"}), known)
    with pytest.raises(InvalidParameter, match="has only 8 dimensions"):
        description.check_parameters(description.complete({"dimensions": "8", "truncate_dimension": 8}), None)
    # Not known before it is loaded:
    replace(known, dimension=None).write(encoder)
    try:
        with pytest.raises(InvalidParameter, match="dimensions"):
            created("dense", encoder, dimensions="32")
    finally:
        known.write(encoder)


def retrieved(name: str, checkpoint: Path, folder: Path, **parameters: Any) -> Retrieval:
    """Return the retrieval over the small collection."""
    run_bytes(name, checkpoint, folder, **parameters)
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    return retrieve(
        RetrievalTask(
            name,
            corpus,
            queries,
            folder / "again.txt",
            parameters=parameters,
            resources=Resources(checkpoint),
        )
    )


@pytest.mark.parametrize(
    ("name", "make", "kind"),
    [
        ("dense", tiny_models.tiny_dense, CheckpointKind.SENTENCE_ENCODER),
        ("learned-sparse", tiny_models.tiny_splade, CheckpointKind.SPARSE_ENCODER),
        ("late-interaction", tiny_models.tiny_colbert, CheckpointKind.MULTI_VECTOR),
        ("cross-encoder", tiny_models.tiny_cross_encoder, CheckpointKind.CROSS_ENCODER),
        ("deepct", tiny_models.tiny_deepct, CheckpointKind.TERM_WEIGHTING),
        ("query-augmentation", tiny_models.tiny_augmentation, CheckpointKind.QUERY_AUGMENTATION),
    ],
)
def test_the_loss_of_fewer_bits_is_told(name: str, make: Any, kind: CheckpointKind, tmp_path: Path) -> None:
    checkpoint = rebuilt(tmp_path / "c", make, kind)
    whole = retrieved(name, checkpoint, tmp_path / "whole")
    assert whole.facts["compute_dtype"] == "float32"
    assert "precision_loss" not in whole.facts
    half = retrieved(name, checkpoint, tmp_path / "half", compute_dtype="bfloat16")
    assert half.facts["compute_dtype"] == "bfloat16"
    lost = half.facts["precision_loss"]
    assert isinstance(lost, float)
    assert 0 <= lost < 0.5
    assert (tmp_path / "half" / "run.txt").read_bytes() != (tmp_path / "whole" / "run.txt").read_bytes()
    if half.variant_facts:
        assert half.variant_facts[list(half.variants)[-1]] == half.facts
    assert "compute_dtype" not in half.variant_facts.get("bm25-wordpiece", {})  # which has no model


@pytest.mark.parametrize("name", ["doc2query", "query-rewriting"])
def test_texts_are_not_written_twice_to_know_what_fewer_bits_lose(name: str, tmp_path: Path) -> None:
    checkpoint = rebuilt(tmp_path / "c", tiny_models.tiny_t5, CheckpointKind.SEQ2SEQ)
    half = retrieved(name, checkpoint, tmp_path / "half", compute_dtype="bfloat16", generated_tokens=4)
    assert half.facts["compute_dtype"] == "bfloat16"
    assert "precision_loss" not in half.facts


def test_bfloat16_is_as_the_library_loads_it(tmp_path: Path) -> None:
    """Rotary angles stay float32; in eight bits they are wrong by radians some thousand tokens on."""
    import torch
    from safetensors.torch import load_file, save_file
    from sentence_transformers import SentenceTransformer

    from evaluation.engines.neural.loading import use_dtype

    weights = tiny_models.tiny_modernbert(tmp_path / "model") / "model.safetensors"
    sharp = {name: weight * 8 if "Wqkv" in name else weight for name, weight in load_file(weights).items()}
    save_file(sharp, weights, metadata={"format": "pt"})  # so that places matter
    text = " ".join(tiny_models._WORDS * 12)

    def loaded(**options: Any) -> SentenceTransformer:
        return SentenceTransformer(str(tmp_path / "model"), device="cpu", model_kwargs=options)

    ours = loaded()
    use_dtype(ours, "bfloat16", "cpu")
    models = (ours, loaded(dtype="bfloat16"), loaded().to(torch.bfloat16), loaded())
    found, expected, coarse, whole = (model.encode(text, convert_to_tensor=True).float() for model in models)
    assert torch.equal(found, expected)
    assert not torch.equal(found, coarse)
    assert not torch.equal(found, whole)


def test_the_loss_is_that_of_the_best_ten_over_a_hundred_queries(encoder: Path, tmp_path: Path) -> None:
    """The expected loss is computed from the runs of both precisions, over the first 100 of 130 queries."""
    from tests.evaluation.engines.test_dense import read_run, write_lines

    words = tiny_models._WORDS
    texts = [" ".join(["heart"] * 40 + [words[number % len(words)]] * (1 + number // 60)) for number in range(200)]
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    asked = [{"_id": f"q{n}", "text": words[n % len(words)] + " fox" * (n % 5)} for n in range(130)]
    queries = write_lines(tmp_path / "queries.jsonl", asked)
    best: dict[str, list[set[str]]] = {}
    for name in ("float32", "bfloat16"):
        out, chosen = tmp_path / f"{name}.txt", {"compute_dtype": name}
        done = retrieve(RetrievalTask("dense", corpus, queries, out, parameters=chosen, resources=Resources(encoder)))
        run = read_run(out)
        best[name] = [set(list(run[f"q{number}"])[:10]) for number in range(100)]
    kept = [len(one & other) / 10 for one, other in zip(best["float32"], best["bfloat16"], strict=True)]
    assert done.facts["precision_loss"] == pytest.approx(1 - sum(kept) / 100)
    assert sum(kept) < 100


def test_auto_is_bfloat16_on_a_gpu_alone() -> None:
    assert get_compute_dtype({"compute_dtype": "auto"}, "cuda") == "bfloat16"
    assert get_compute_dtype({"compute_dtype": "auto"}, "cpu") == "float32"
    assert get_compute_dtype({"compute_dtype": "float16"}, "cuda:0") == "float16"
    assert get_compute_dtype({}, "cuda") == ""


def test_long_documents_leave_fewer_queries() -> None:
    documents = [Document(f"d{number}", "", "x" * 1_500_000) for number in range(5)]
    asked = {"q1": ["d0", "d1"], "q2": ["d1", "d0"], "q3": ["d2"], "q4": ["d0"]}
    assert list(precision._limit_characters(asked, documents)) == ["q1", "q2"]
    assert list(precision._limit_characters({"q": [f"d{number}" for number in range(5)]}, documents)) == ["q"]
