"""Heads that no library saves: the rows of bge-m3 and SPARTA equal their authors' arithmetic over bare transformers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import HEADS, CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint, rebuild, validate_archive
from evaluation.collections.beir import Document, Query
from evaluation.engines import Resources, RetrievalTask, retrieve
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation.neural import created, rebuilt, searched
from tests.evaluation.tiny_families import HIDDEN, byte_tokenizer, save_encoder, save_transformer
from tests.evaluation.tiny_models import tiny_masked_language_model

QUERIES = [Query("q1", "market price"), Query("q2", "")]
TEXTS = [
    "",
    "a",
    "heart disease and blood pressure",
    "price price",
    ("stock market price fell " * 30).strip(),
]
DOCUMENTS = [Document(f"d{number}", "", text) for number, text in enumerate(TEXTS)]


def bge_m3(folder: Path) -> Path:
    """XLM-RoBERTa, CLS, Normalize, and two heads as `pack` converts them."""
    import torch
    from safetensors.torch import save_file

    words = byte_tokenizer(begin=True)
    words.cls_token = "<s>"
    save_encoder(folder, "xlm-roberta", "cls", words, ("Normalize",))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        for kind, width in ((CheckpointKind.SPARSE_ENCODER, 1), (CheckpointKind.MULTI_VECTOR, HIDDEN)):
            tensors = {"weight": torch.randn(width, HIDDEN), "bias": torch.randn(width)}
            save_file(tensors, folder / HEADS[kind])
    return folder


@pytest.fixture(scope="module")
def m3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("m3"), bge_m3, CheckpointKind.SENTENCE_ENCODER)


@pytest.fixture(scope="module")
def expected(m3: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Return the scores of FlagEmbedding's M3Embedder, text by text, by mode, query, and document."""
    import torch
    import transformers
    from safetensors.torch import load_file

    words = transformers.AutoTokenizer.from_pretrained(m3.parent / "raw")
    model = transformers.AutoModel.from_pretrained(m3.parent / "raw").eval()
    sparse, colbert = (load_file(m3.parent / "raw" / HEADS[kind]) for kind in HEADS)
    unused = {words.cls_token_id, words.eos_token_id, words.pad_token_id, words.unk_token_id}

    def encoded(text: str) -> tuple[Any, dict[int, float], Any]:
        batch = words([text], return_tensors="pt")
        with torch.inference_mode():
            states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state[0]
        lexical: dict[int, float] = {}
        weights = (states @ sparse["weight"].T + sparse["bias"])[:, 0].relu().tolist()
        for number, weight in zip(batch["input_ids"][0].tolist(), weights, strict=True):
            if number not in unused:
                lexical[number] = max(weight, lexical.get(number, 0.0))
        vectors = states[1:] @ colbert["weight"].T + colbert["bias"]
        normalise = torch.nn.functional.normalize
        return normalise(states[0], dim=0), lexical, normalise(vectors, dim=1)

    texts = [encoded(text) for text in TEXTS]
    found: dict[str, dict[str, dict[str, float]]] = {
        "dense": {},
        "learned-sparse": {},
        "late-interaction": {},
    }
    for query in QUERIES:
        dense, lexical, vectors = encoded(query.text)
        for one, (own, terms, tokens) in zip(DOCUMENTS, texts, strict=True):
            scores = (
                float(dense @ own),
                sum(weight * terms.get(number, 0.0) for number, weight in lexical.items()),
                float((vectors @ tokens.T).amax(1).mean()),
            )
            for name, score in zip(found, scores, strict=True):
                found[name].setdefault(query.id, {})[one.id] = score
    return found


@pytest.mark.parametrize("name", ["dense", "learned-sparse", "late-interaction"])
def test_each_head_of_bge_m3_is_a_row(
    name: str, m3: Path, expected: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    own = {"mode": "exhaustive", "maximum_length": 0} if name == "late-interaction" else {}
    engine = created(name, m3, batch_tokens=100_000, **own)
    engine.build(DOCUMENTS, tmp_path)
    for query_id, scores in searched(engine, QUERIES).items():
        wanted = expected[name][query_id]
        positive = {one: score for one, score in wanted.items() if name != "learned-sparse" or score > 0}
        assert scores == pytest.approx(positive, rel=1e-5, abs=1e-5)
    assert CheckpointDescription.read(m3).kinds >= set(HEADS)


def test_the_rows_of_bge_m3_are_fused_by_the_sum_of_their_scores(
    m3: Path, expected: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    lines = [f'{{"_id": "{one.id}", "title": "", "text": "{one.text}"}}\n' for one in DOCUMENTS]
    corpus.write_text("".join(lines), encoding="utf-8")
    queries.write_text(f'{{"_id": "q1", "text": "{QUERIES[0].text}"}}\n', encoding="utf-8")
    runs = []
    for name in expected:
        own = {"mode": "exhaustive", "maximum_length": 0} if name == "late-interaction" else {}
        runs.append(tmp_path / f"{name}.run")
        retrieve(RetrievalTask(name, corpus, queries, runs[-1], parameters=own, resources=Resources(checkpoint=m3)))
    fused = tmp_path / "fused.run"
    parameters = {"method": "sum", "weights": "0.4,0.2,0.4"}
    retrieve(
        RetrievalTask("fusion", corpus, queries, fused, parameters=parameters, resources=Resources(runs=tuple(runs)))
    )
    found = {line.split()[2]: float(line.split()[4]) for line in fused.read_text("utf-8").splitlines()}
    weights = dict(zip(expected, (0.4, 0.2, 0.4), strict=True))
    sums = {one.id: sum(weights[name] * expected[name]["q1"][one.id] for name in expected) for one in DOCUMENTS}
    assert found == pytest.approx(sums, rel=1e-5, abs=1e-5)


def test_sparta_weighs_terms_by_the_input_embeddings(tmp_path: Path) -> None:
    """The reference is beir/retrieval/models/sparta.py with its search, text by text."""
    import torch
    import transformers

    words = byte_tokenizer(begin=True)
    published = save_transformer(tmp_path / "raw", "bert", "AutoModel", words)
    checkpoint = open_checkpoint(published, {CheckpointKind.SPARSE_ENCODER}, tmp_path, "sparta")
    assert check_checkpoint(checkpoint).valid
    model = transformers.AutoModel.from_pretrained(published).eval()
    embeddings = model.get_input_embeddings().weight.detach()[: len(words)].clone()
    embeddings[words.all_special_ids] = 0
    rows = []
    for text in TEXTS:
        batch = words([text], return_tensors="pt")
        with torch.inference_mode():
            states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state[0]
        rows.append(torch.log(torch.relu((embeddings @ states.T).amax(1)) + 1))
    engine = created("learned-sparse", checkpoint, batch_tokens=100_000)
    (tmp_path / "index").mkdir()
    engine.build(DOCUMENTS, tmp_path / "index")
    for query in QUERIES:
        counts = Counter(words(query.text, add_special_tokens=False)["input_ids"])
        scores = {
            one.id: sum(float(row[n]) * c for n, c in counts.items()) for one, row in zip(DOCUMENTS, rows, strict=True)
        }
        found = searched(engine, [query])[query.id]
        assert found == pytest.approx({one: score for one, score in scores.items() if score > 0}, rel=1e-5)
        once = {one: sum(float(row[n]) for n in counts) for one, row in zip(scores, rows, strict=True)}
        assert not query.text or np.abs([found[one] - once[one] for one in found]).max() > 1e-3


def test_queries_and_documents_may_have_a_sparse_model_each(tmp_path: Path) -> None:
    """BT-SPLADE, as two masked language models with SpladePooling."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    models = {}
    for seed, side in enumerate(("query", "document")):
        plain = tiny_masked_language_model(tmp_path / "plain" / side, seed)
        modules = [Transformer(str(plain), transformer_task="fill-mask"), SpladePooling("max")]
        models[side] = SparseEncoder(modules=modules, device="cpu")
        models[side].save(str(tmp_path / "pair" / side))
    checkpoint = open_checkpoint(tmp_path / "pair", {CheckpointKind.SPARSE_ENCODER}, tmp_path)
    engine = created("learned-sparse", checkpoint, batch_tokens=100_000)
    (tmp_path / "index").mkdir()
    engine.build(DOCUMENTS, tmp_path / "index")
    documents = models["document"].encode_document(TEXTS, convert_to_sparse_tensor=False)
    for side, agrees in (("query", True), ("document", False)):
        vector = models[side].encode_query([QUERIES[0].text], convert_to_sparse_tensor=False)[0]
        scores = dict(zip((one.id for one in DOCUMENTS), (documents @ vector).tolist(), strict=True))
        assert (searched(engine, QUERIES)["q1"] == pytest.approx(scores, rel=1e-5)) is agrees


def test_pack_converts_the_heads_of_bge_m3_and_tries_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from safetensors.torch import load_file

    from evaluation.__main__ import main

    folder = bge_m3(tmp_path / "bge-m3")
    for name in HEADS.values():  # as they are published
        torch.save(load_file(folder / name), (folder / name).with_suffix(".pt"))
        (folder / name).unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["pack", str(folder)]) == 0
    said = capsys.readouterr().err
    assert [f"tried with {name}" in said for name in ("dense", "learned-sparse", "late-interaction")] == [True] * 3
    validation = validate_archive(tmp_path / "bge-m3.tar.zst", tmp_path / "scratch", set(HEADS))
    described = rebuild(validation, tmp_path / "rebuilt")
    assert (described.kind, described.also) == (CheckpointKind.SENTENCE_ENCODER, tuple(HEADS))
