"""Learned sparse retrieval: scores are those of the library, whatever the texts, and shards change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.problems import ModelFailure
from tests.evaluation.cli.test_retrieve import run_command
from tests.evaluation.neural import (
    AWKWARD,
    AWKWARD_QUERIES,
    DOCUMENTS,
    QUERIES,
    bytes_of,
    created,
    encoded_elsewhere,
    rebuilt,
    run_bytes,
    searched,
)
from tests.evaluation.small_checkpoint import files, write
from tests.evaluation.tiny_models import tiny_inference_free, tiny_splade


def without_special_tokens(folder: Path) -> Path:
    """SPLADE with a tokenizer that adds nothing to a text, so that the empty one has no token."""
    tiny_splade(folder)
    for name, change in (
        ("tokenizer.json", {"post_processor": None}),
        (
            "tokenizer_config.json",
            {"tokenizer_class": "PreTrainedTokenizerFast"},
        ),  # BERT's own adds them again
    ):
        content = {**json.loads((folder / name).read_bytes()), **change}
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


MODELS: dict[str, tuple[Callable[..., Path], dict[str, str]]] = {
    "max": (tiny_splade, {}),
    "sum": (tiny_splade, {"pooling": "sum"}),
    "inference-free": (tiny_inference_free, {}),
    "no special tokens": (without_special_tokens, {}),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: rebuilt(tmp_path_factory.mktemp(name), make, CheckpointKind.SPARSE_ENCODER, **options)
        for name, (make, options) in MODELS.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_librarys(checkpoints: dict[str, Path], tmp_path: Path, name: str) -> None:
    from sentence_transformers import SparseEncoder

    engine = created("learned-sparse", checkpoints[name], most_terms=30)
    engine.build(DOCUMENTS, tmp_path)
    model = SparseEncoder(str(checkpoints[name].parent / "raw"), device="cpu")
    texts = [f"{document.title} {document.text}".strip() for document in DOCUMENTS]
    documents = model.encode_document(texts, max_active_dims=30)
    queries = model.encode_query([query.text for query in QUERIES])
    expected = model.similarity(queries, documents).to_dense().numpy()
    found = searched(engine, QUERIES)
    for row, query in enumerate(QUERIES):
        scores = {d.id: float(expected[row, column]) for column, d in enumerate(DOCUMENTS)}
        assert found[query.id] == pytest.approx({d: s for d, s in scores.items() if s > 0}, rel=1e-5, abs=1e-5)
        assert list(found[query.id].values()) == sorted(found[query.id].values(), reverse=True)
    facts = engine.facts()
    assert facts["dimension"] == documents.shape[1]
    assert facts["nonzeros_per_document"] == pytest.approx(documents.coalesce().values().numel() / len(texts))
    assert facts["nonzeros_per_query"] == pytest.approx(queries.coalesce().values().numel() / len(QUERIES))
    assert {"query_encoding", "search"} == set(engine.clock.seconds)


def test_cosine_where_the_checkpoint_says_so(tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder

    def cosine(folder: Path) -> Path:
        model = SparseEncoder(str(tiny_splade(folder)), device="cpu", similarity_fn_name="cosine")
        model.save(str(folder))
        return folder

    checkpoint = rebuilt(tmp_path / "checkpoint", cosine, CheckpointKind.SPARSE_ENCODER)
    engine = created("learned-sparse", checkpoint)
    (tmp_path / "index").mkdir()
    engine.build(DOCUMENTS[:3], tmp_path / "index")
    model = SparseEncoder(str(checkpoint.parent / "raw"), device="cpu")
    texts = [f"{document.title} {document.text}".strip() for document in DOCUMENTS[:3]]
    expected = model.similarity(model.encode_query(QUERIES[0].text), model.encode_document(texts))
    found = searched(engine, QUERIES)["q1"]
    assert [found[document.id] for document in DOCUMENTS[:3]] == pytest.approx(expected[0].tolist(), rel=1e-5)
    assert engine.facts()["similarity"] == "cosine"


@pytest.mark.parametrize("name", ["max", "inference-free", "no special tokens"])
def test_any_text_is_encoded(checkpoints: dict[str, Path], tmp_path: Path, name: str) -> None:
    engine = created("learned-sparse", checkpoints[name])
    engine.build(AWKWARD, tmp_path)
    found = searched(engine, AWKWARD_QUERIES)
    assert set(found) == {query.id for query in AWKWARD_QUERIES}
    if name != "max":  # a query without words has no terms
        assert found["empty"] == found["blank"] == {}


def test_pack_tries_a_model_whose_tokenizer_adds_no_special_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from evaluation.__main__ import main

    monkeypatch.chdir(tmp_path)
    assert main(["pack", str(without_special_tokens(tmp_path / "bare"))]) == 0
    assert "tried with learned-sparse: 20 texts, 3 of 3 queries have results" in capsys.readouterr().err


def test_a_corpus_of_one_document_or_none(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    for count in (0, 1):
        engine = created("learned-sparse", checkpoints["max"])
        (tmp_path / str(count)).mkdir()
        engine.build(DOCUMENTS[:count], tmp_path / str(count))
        assert [len(scores) for scores in searched(engine, QUERIES).values()] == [count] * len(QUERIES)
        assert engine.documents == count


def test_shards_encoded_elsewhere_are_the_same_bytes(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    one, apart = tmp_path / "one", encoded_elsewhere("learned-sparse", checkpoints["max"], tmp_path / "apart")
    run = run_bytes("learned-sparse", checkpoints["max"], tmp_path / "a", shards=one)
    assert bytes_of(one) == bytes_of(apart)
    assert run_bytes("learned-sparse", checkpoints["max"], tmp_path / "b", shards=apart) == run
    assert run_bytes("learned-sparse", checkpoints["max"], tmp_path / "c") == run
    assert run.count(b"\n") > len(QUERIES)


def test_prompts_and_lengths_count(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    def scores(folder: str, **parameters: Any) -> dict[str, dict[str, float]]:
        engine = created("learned-sparse", checkpoints["max"], **parameters)
        (tmp_path / folder).mkdir()
        engine.build(DOCUMENTS, tmp_path / folder)
        return searched(engine, QUERIES)

    plain = scores("plain")
    assert scores("prompt", query_prompt="search: ") != plain
    assert scores("short", maximum_length=4) != plain
    assert scores("title", fields="title") != plain


@pytest.mark.parametrize(
    ("bias", "weight", "code"), [(np.nan, 1.0, "not_finite_output"), (1.0, 0.0, "constant_output")]
)
def test_a_model_that_says_nothing_fails(
    tmp_path: Path, checkpoints: dict[str, Path], bias: float, weight: float, code: str
) -> None:
    engine = created("learned-sparse", checkpoints["max"])
    for name, parameter in engine.encoder._models["document"].named_parameters():
        if name.endswith("cls.predictions.bias"):
            parameter.fill_(bias)
        elif "cls.predictions.transform" in name:
            parameter.mul_(weight)
    with pytest.raises(ModelFailure) as failure:
        engine.encode_shard(DOCUMENTS, tmp_path)
    assert failure.value.code == code


def test_texts_that_are_alike_to_the_model_are_no_failure(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    engine = created("learned-sparse", checkpoints["max"])
    engine.build([Document(f"d{n}", "", "ไทย" * (n + 1)) for n in range(12)], tmp_path)
    assert len(searched(engine, [Query("q", "ไทย")])["q"]) == 12


def test_the_command_takes_a_plain_masked_language_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    corpus.write_text('{"_id": "d1", "title": "", "text": "a b c"}\n{"_id": "d2", "title": "", "text": "x y z"}\n')
    queries.write_text('{"_id": "q1", "text": "a b"}\n')
    given = ["--corpus", corpus, "--queries", queries, "--out", tmp_path / "run.txt"]
    engine = ["retrieve", *given, "--engine", "learned-sparse", "--device", "cpu"]
    plain = write(files("masked"), tmp_path / "plain")

    assert run_command(*engine, "--checkpoint", plain, "--pooling", "max") == 0
    assert (tmp_path / "run.txt").read_text().startswith("q1 Q0 d")
    assert run_command(*engine, "--checkpoint", plain) == 1
    assert "max, sum" in capsys.readouterr().err
    own = tiny_splade(tmp_path / "own", pooling="sum")
    assert run_command(*engine, "--checkpoint", own, "--pooling", "max") == 2
    assert "already defines its pooling (sum)" in capsys.readouterr().err
