"""Dense retrieval against sentence-transformers' own encoding and search, with tiny models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from evaluation.__main__ import main
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.core.problems import InvalidContent, ModelFailure
from evaluation.core.writing import make_folder
from evaluation.engines import InvalidParameter, Resources, Retrieval, RetrievalTask, describe, retrieve
from tests.evaluation import tiny_models

QUERIES = ["heart disease", "the price of stock", "brown fox", "zzz 12", ""]
DOCUMENTS = [
    ("", "heart disease and the blood pressure of patients"),
    ("Markets", "the stock market fell, and the price rose"),
    ("", ""),
    ("", "検索システム"),
    ("Fox", "the quick brown fox jumped over the lazy dog " * 3),
    ("", "wing flow pressure layer boundary heat " * 200),
    *((f"number {n}", " ".join(tiny_models._WORDS[n * 5 : n * 5 + n % 9 + 2])) for n in range(24)),
]


def write_lines(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("collection")
    corpus = [{"_id": f"d{n}", "title": title, "text": text} for n, (title, text) in enumerate(DOCUMENTS)]
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(QUERIES)]
    return write_lines(folder / "corpus.jsonl", corpus), write_lines(folder / "queries.jsonl", queries)


def describe_checkpoint(folder: Path, kind: CheckpointKind, *parts: str, **known: Any) -> Path:
    """Make the folder of parts one that `evaluation.checkpoints` could have rebuilt."""
    CheckpointDescription(kind, parts, "bert", 1, 1, "0" * 64, **known).write(folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_models.tiny_dense(folder / "model")
    return describe_checkpoint(folder, CheckpointKind.SENTENCE_ENCODER, "model", similarity="cosine")


@pytest.fixture(scope="module")
def two_encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    tiny_models.tiny_dense(folder / "query", seed=1, pooling="cls", normalize=False)
    tiny_models.tiny_dense(folder / "document", seed=2, pooling="cls", normalize=False)
    kind = CheckpointKind.SENTENCE_ENCODER
    return describe_checkpoint(folder, kind, "query", "document", similarity="dot")


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    tiny_models.tiny_static(folder / "model")
    return describe_checkpoint(folder, CheckpointKind.STATIC_EMBEDDINGS, "model", similarity="cosine")


Run = dict[str, dict[str, float]]


@pytest.fixture
def search(collection: tuple[Path, Path], tmp_path: Path) -> Callable[..., tuple[Run, Retrieval]]:
    """Retrieve with a checkpoint and parameters: the run by query and document, and what was done."""

    def searched(checkpoint: Path, *, shard_size: int = 50_000, **parameters: object) -> tuple[Run, Retrieval]:
        out = tmp_path / "run.txt"
        resources = Resources(checkpoint)
        done = retrieve(
            RetrievalTask(
                "dense",
                *collection,
                out,
                parameters=parameters,
                resources=resources,
                shard_size=shard_size,
                k=100,
            )
        )
        return read_run(out), done

    return searched


def read_run(path: Path) -> Run:
    run: Run = {}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, {})[document] = float(score)
    return run


def expected(
    queries: Any, documents: Any, *, query_prompt: str = "", document_prompt: str = "", dot: bool = False
) -> Run:
    """Return the run of sentence-transformers with these models."""
    from sentence_transformers import util

    texts = [f"{title} {text}".strip() for title, text in DOCUMENTS]
    found = util.semantic_search(
        queries.encode(QUERIES, prompt=query_prompt, convert_to_tensor=True),
        documents.encode(texts, prompt=document_prompt, convert_to_tensor=True),
        top_k=100,
        score_function=util.dot_score if dot else util.cos_sim,
    )
    return {f"q{number}": {f"d{hit['corpus_id']}": hit["score"] for hit in hits} for number, hits in enumerate(found)}


def assert_same(run: Run, reference: Run) -> None:
    assert run.keys() == reference.keys()
    for query, scores in reference.items():
        assert run[query] == pytest.approx(scores, abs=1e-5)


def library(folder: Path, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", **options)


Search = Callable[..., tuple[Run, Retrieval]]


@pytest.mark.parametrize("batch_tokens", [0, 1, 70])
def test_scores_are_the_librarys(search: Search, tiny: Path, batch_tokens: int) -> None:
    model = library(tiny / "model")
    run, done = search(tiny, batch_tokens=batch_tokens)
    assert_same(run, expected(model, model))
    assert done.facts["dimension"] == tiny_models.HIDDEN
    assert done.facts["similarity"] == "cosine"
    assert done.facts["maximum_length"] == tiny_models.LENGTH
    assert done.index_bytes > len(DOCUMENTS) * tiny_models.HIDDEN * 4
    assert done.analyser == "bert, mean pooling, cosine"


def test_queries_and_documents_may_have_an_encoder_each(search: Search, two_encoders: Path) -> None:
    reference = expected(library(two_encoders / "query"), library(two_encoders / "document"), dot=True)
    run, done = search(two_encoders)
    assert_same(run, reference)
    assert done.facts["similarity"] == "dot"


def test_static_embeddings_read_whole_texts(search: Search, static: Path) -> None:
    model = library(static / "model")
    run, done = search(static)
    assert_same(run, expected(model, model))
    assert "maximum_length" not in done.facts


def test_prompts_are_the_checkpoints_unless_given(search: Search, tiny: Path, tmp_path: Path) -> None:
    model = library(tiny / "model")
    with_prompts = tmp_path / "prompted"
    with_prompts.mkdir()
    (with_prompts / "model").symlink_to(tiny / "model")
    prompts = {"query": "query: ", "document": "data: "}
    describe_checkpoint(with_prompts, CheckpointKind.SENTENCE_ENCODER, "model", prompts=prompts)
    reference = expected(model, model, query_prompt="query: ", document_prompt="data: ")
    assert_same(search(with_prompts)[0], reference)
    assert_same(search(tiny, query_prompt="query: ", document_prompt="data: ")[0], reference)
    assert_same(search(with_prompts, query_prompt="", document_prompt="")[0], expected(model, model))


@pytest.mark.parametrize("pooling", ["cls", "max", "lasttoken"])
def test_pooling_and_length_may_be_chosen(search: Search, tiny: Path, pooling: str) -> None:
    model = library(tiny / "model")
    model[1].pooling_mode = pooling
    model.max_seq_length = 9
    run, done = search(tiny, pooling=pooling, maximum_length=9)
    assert_same(run, expected(model, model))
    assert done.facts["maximum_length"] == 9
    assert done.analyser == f"bert, {pooling} pooling, cosine"


def test_dimensions_may_be_cut(search: Search, two_encoders: Path) -> None:
    queries, documents = (library(two_encoders / part, truncate_dim=8) for part in ("query", "document"))
    assert_same(search(two_encoders, truncate_dimension=8)[0], expected(queries, documents, dot=True))
    run, done = search(two_encoders, truncate_dimension=8, similarity="cosine")
    assert_same(run, expected(queries, documents))
    assert done.facts["dimension"] == 8
    assert_same(search(two_encoders, truncate_dimension=8, normalise=True)[0], run)


def test_float16_halves_the_index_and_says_what_it_loses(search: Search, tiny: Path) -> None:
    whole, before = search(tiny)
    run, done = search(tiny, stored_dtype="float16")
    assert done.facts["overlap_with_float32"] == pytest.approx(1.0, abs=0.05)
    assert before.index_bytes - done.index_bytes == len(DOCUMENTS) * tiny_models.HIDDEN * 2
    for query, scores in whole.items():
        assert run[query] == pytest.approx(scores, abs=2e-3)


@pytest.mark.parametrize(("stored", "share", "least"), [("int8", 4, 0.9), ("binary", 32, 0.3)])
def test_codes_are_small_and_say_what_they_lose(
    search: Search, tiny: Path, stored: str, share: int, least: float
) -> None:
    whole, before = search(tiny)
    run, done = search(tiny, stored_dtype=stored)
    vectors = len(DOCUMENTS) * tiny_models.HIDDEN * 4
    assert before.index_bytes - done.index_bytes == pytest.approx(vectors * (1 - 1 / share), abs=1_000)
    overlap = done.facts["overlap_with_float32"]
    assert isinstance(overlap, float)
    assert least < overlap <= 1
    if stored == "int8":
        for query, scores in whole.items():
            assert run[query] == pytest.approx(scores, abs=2e-2)


def test_binary_codes_are_scored_by_their_product_with_the_query(search: Search, tiny: Path) -> None:
    model = library(tiny / "model")
    texts = [f"{title} {text}".strip() for title, text in DOCUMENTS]
    signs = np.where(model.encode(texts) > 0, 1.0, -1.0)
    scores = model.encode(QUERIES) @ signs.T
    run, _ = search(tiny, stored_dtype="binary")
    for number, row in enumerate(scores):
        found = run[f"q{number}"]
        assert found == pytest.approx({name: row[int(name[1:])] for name in found}, abs=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_gives_nearly_the_same(search: Search, tiny: Path, dtype: str) -> None:
    whole, _ = search(tiny)
    run, _ = search(tiny, compute_dtype=dtype)
    assert run != whole
    for query, scores in whole.items():
        assert run[query] == pytest.approx(scores, abs=5e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_halved_batches_change_no_top_ten(
    search: Search, tiny: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Memory suffices for at most three texts at once."""
    import torch
    from transformers import BertModel

    whole, _ = search(tiny, compute_dtype=dtype)
    forward, refused = BertModel.forward, []

    def forward_few(model: Any, input_ids: Any = None, **options: Any) -> Any:
        if len(input_ids) > 3:
            refused.append(len(input_ids))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(model, input_ids, **options)

    monkeypatch.setattr(BertModel, "forward", forward_few)
    halved, _ = search(tiny, compute_dtype=dtype)
    assert max(refused) > 6, "some were halved twice"
    for query, scores in whole.items():
        assert list(halved[query])[:10] == list(scores)[:10]
        assert halved[query] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "pq"])
def test_an_approximate_search_says_its_recall(search: Search, tiny: Path, kind: str) -> None:
    run, done = search(tiny, search=kind, pq_bytes=4)
    recall = done.facts["recall_against_exact"]
    assert isinstance(recall, float)
    assert 0 < recall <= 1
    assert done.facts["index_kind"] == kind
    assert run.keys() == {f"q{number}" for number in range(len(QUERIES))}


def test_shards_give_the_bytes_of_one(
    search: Search, tiny: Path, collection: tuple[Path, Path], tmp_path: Path
) -> None:
    """Shards encoded apart, by other engines, are what a single job would have made itself."""
    from evaluation.collections.beir import read_corpus
    from evaluation.engines.base import ShardedEngine, shard_name, split_corpus

    alone, apart = tmp_path / "alone", tmp_path / "apart"
    outs = [tmp_path / "alone.txt", tmp_path / "apart.txt"]
    retrieve(RetrievalTask("dense", *collection, outs[0], resources=Resources(tiny), shards=alone, shard_size=7))
    description = describe("dense")
    apart.mkdir()
    for number, documents in reversed(list(enumerate(split_corpus(read_corpus(collection[0]), 7)))):
        engine = description.create(description.complete({}), Resources(tiny))
        assert isinstance(engine, ShardedEngine)
        make_folder(apart / shard_name(number), partial(engine.encode_shard, documents))
    retrieve(RetrievalTask("dense", *collection, outs[1], resources=Resources(tiny), shards=apart, shard_size=7))
    assert outs[0].read_bytes() == outs[1].read_bytes()
    files = sorted(path.relative_to(alone) for path in alone.glob("0*/**/*") if path.is_file())
    assert all((alone / name).read_bytes() == (apart / name).read_bytes() for name in files)
    assert_same(read_run(outs[0]), search(tiny)[0])


@pytest.mark.parametrize(
    "parameters",
    [
        {}, {"stored_dtype": "float16"}, {"stored_dtype": "int8"}, {"stored_dtype": "binary"}, {"search": "pq"},
        {"search": "hnsw"},
    ],
)  # fmt: skip
def test_collections_may_be_as_small_as_can_be(tiny: Path, tmp_path: Path, parameters: dict[str, str]) -> None:
    queries = write_lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": "cat"}])
    corpus = tmp_path / "corpus.jsonl"
    out = tmp_path / "run.txt"
    write_lines(corpus, [{"_id": "d", "text": "word " * 100_000}])
    retrieve(RetrievalTask("dense", corpus, queries, out, parameters=parameters, resources=Resources(tiny)))
    assert out.read_text().startswith("q Q0 d 1 ")
    write_lines(corpus, [])
    retrieve(RetrievalTask("dense", corpus, queries, out, parameters=parameters, resources=Resources(tiny)))
    assert out.read_text() == ""
    write_lines(queries, [])
    retrieve(RetrievalTask("dense", corpus, queries, out, parameters=parameters, resources=Resources(tiny)))
    assert out.read_text() == ""


def test_repeated_ids_are_refused(tiny: Path, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"_id": "d", "text": "a"}, {"_id": "d", "text": "b"}])
    queries = write_lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": "cat"}])
    with pytest.raises(InvalidContent, match="identifier"):
        retrieve(RetrievalTask("dense", corpus, queries, tmp_path / "run.txt", resources=Resources(tiny)))


def test_parameters_that_do_not_go_together_are_refused(search: Search, tiny: Path, static: Path) -> None:
    with pytest.raises(InvalidParameter, match="stored_dtype"):
        search(tiny, search="hnsw", stored_dtype="float16")
    with pytest.raises(InvalidParameter, match="pooling"):
        search(static, pooling="cls")


@pytest.fixture
def spoiled(tiny: Path, tmp_path: Path) -> Iterator[Callable[[float], Path]]:
    """A copy of the tiny model whose last weights all have one value."""
    from safetensors.numpy import load_file, save_file

    def spoil(value: float) -> Path:
        folder = tmp_path / "spoiled"
        (folder / "model").mkdir(parents=True)
        for path in (tiny / "model").iterdir():
            (folder / "model" / path.name).symlink_to(path)
        weights = load_file(tiny / "model" / "model.safetensors")
        for name in weights:
            if "LayerNorm" in name:
                weights[name] = np.full_like(weights[name], value)
        (folder / "model" / "model.safetensors").unlink()
        save_file(weights, folder / "model" / "model.safetensors", {"format": "pt"})
        return describe_checkpoint(folder, CheckpointKind.SENTENCE_ENCODER, "model")

    return spoil


@pytest.mark.parametrize(("value", "code"), [(float("nan"), "not_finite_output"), (0.0, "constant_output")])
def test_a_model_that_says_nothing_fails_by_name(
    search: Search, spoiled: Callable[[float], Path], value: float, code: str
) -> None:
    with pytest.raises(ModelFailure) as failure:
        search(spoiled(value))
    assert failure.value.code == code


def test_the_command_takes_folders_as_people_have_them(
    collection: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two encoders that one Router holds, validated and taken apart on the way."""
    folder = tiny_models.tiny_dpr(tmp_path / "dpr")
    out = tmp_path / "run.txt"
    words = ["--corpus", collection[0], "--queries", collection[1], "--out", out, "--checkpoint", folder]
    options = [*map(str, words), "--engine", "dense", "--depth", "100", "--threads", "1", "--device", "cpu"]
    assert main(["retrieve", *options]) == 0
    said = capsys.readouterr().err
    assert f"Dimension: {tiny_models.HIDDEN}" in said
    assert "Similarity: dot" in said
    assert main(["retrieve", *options, "--shards", str(tmp_path / "shards")]) == 0
    assert main(["retrieve", *options, "--shards", str(tmp_path / "shards"), "--fields", "text"]) == 2
    assert "were made with another fields" in capsys.readouterr().err
    model = library(folder)
    texts = [f"{title} {text}".strip() for title, text in DOCUMENTS]
    scores = model.encode_query(QUERIES) @ model.encode_document(texts).T
    reference = {f"q{q}": {f"d{d}": float(s) for d, s in enumerate(row)} for q, row in enumerate(scores)}
    assert_same(read_run(out), reference)


def test_the_command_says_what_a_folder_lacks(
    tiny: Path, collection: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    words = ["--corpus", collection[0], "--queries", collection[1], "--out", tmp_path / "run.txt"]
    options = [*map(str, words), "--engine", "dense", "--checkpoint", str(tmp_path / "empty")]
    assert main(["retrieve", *options]) == 1
    assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "run.txt").exists()


@pytest.mark.parametrize("engine", ["dense", "bm25"])
@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["heart disease"], id="one"),
        pytest.param(["", "", ""], id="empty"),
        pytest.param(["heart disease", "heart disease " * 4_600_000], id="64 MB", marks=pytest.mark.long),
    ],
)
def test_a_corpus_of_one_document_of_empty_ones_and_of_a_huge_one(
    texts: list[str], engine: str, tiny: Path, tmp_path: Path
) -> None:
    rows = [{"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(texts)]
    corpus = write_lines(tmp_path / "corpus.jsonl", rows)
    queries = write_lines(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "heart disease"}])
    resources = Resources(tiny if engine == "dense" else None)
    done = retrieve(RetrievalTask(engine, corpus, queries, tmp_path / "run.txt", resources=resources))
    assert done.documents == len(texts)
    found = read_run(tmp_path / "run.txt").get("q0", {})
    # No word of the query is in an empty text; vectors rank whatever there is.
    assert set(found) == ({row["_id"] for row in rows if row["text"] or engine == "dense"})


@pytest.mark.long
def test_a_document_that_is_longer_than_any_may_be_is_named(tiny: Path, tmp_path: Path) -> None:
    rows = [{"_id": "d0", "title": "", "text": "heart disease " * 7_200_000}]  # 100 MB
    corpus = write_lines(tmp_path / "corpus.jsonl", rows)
    queries = write_lines(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "heart disease"}])
    with pytest.raises(InvalidContent, match="1 line is longer than 64 MiB"):
        retrieve(RetrievalTask("dense", corpus, queries, tmp_path / "run.txt", resources=Resources(tiny)))
    assert not (tmp_path / "run.txt").exists()
