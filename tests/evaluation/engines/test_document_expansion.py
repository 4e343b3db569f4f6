"""Document expansion: what is drawn follows the model's probabilities, and depends on nothing but the document."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.problems import ModelFailure
from evaluation.engines import Resources, RetrievalTask, describe, retrieve
from evaluation.engines.base import split_corpus
from tests.evaluation.neural import AWKWARD, DOCUMENTS, created, rebuilt, searched
from tests.evaluation.tiny_models import tiny_t5

torch = pytest.importorskip("torch")
SMALL = {"queries_per_document": 3, "generated_tokens": 8}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("model"), tiny_t5, CheckpointKind.SEQ2SEQ)


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Any:
    return created("doc2query", checkpoint, **SMALL)


def queries_of(engine: Any, documents: list[Document], folder: Path) -> dict[str, list[str]]:
    """The queries written for each document of a shard."""
    folder.mkdir()
    engine.encode_shard(documents, folder)
    rows = [orjson.loads(line) for line in (folder / "documents.jsonl").read_bytes().splitlines()]
    return {row["_id"]: row["queries"] for row in rows}


def test_the_queries_of_a_document_do_not_depend_on_its_shard(engine: Any, tmp_path: Path) -> None:
    documents = [*DOCUMENTS, *AWKWARD]
    together = queries_of(engine, documents, tmp_path / "together")
    apart: dict[str, list[str]] = {}
    for number, some in enumerate(split_corpus(reversed(documents), 4)):
        apart |= queries_of(engine, some, tmp_path / f"{number}")
    assert apart == together
    assert together["empty"] == []
    assert {len(queries) for name, queries in together.items() if name != "empty"} <= {0, 3}
    assert len({tuple(queries) for queries in together.values()}) > 10


def test_another_seed_draws_other_queries(engine: Any, checkpoint: Path, tmp_path: Path) -> None:
    first = queries_of(engine, DOCUMENTS[:2], tmp_path / "first")
    again = queries_of(created("doc2query", checkpoint, **SMALL), DOCUMENTS[:2], tmp_path / "again")
    other = queries_of(created("doc2query", checkpoint, **SMALL, seed=1), DOCUMENTS[:2], tmp_path / "other")
    assert first == again
    assert first != other


def test_the_only_candidate_is_the_greedy_choice(checkpoint: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    engine = created("doc2query", checkpoint, queries_per_document=1, top_k=1, generated_tokens=12)
    written = queries_of(engine, DOCUMENTS, tmp_path / "shard")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint / "model")
    model = T5ForConditionalGeneration.from_pretrained(checkpoint / "model").eval()
    for document in DOCUMENTS:
        text = f"{document.title} {document.text}".strip()
        encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        output = model.generate(**encoded, max_new_tokens=12, do_sample=False, num_beams=1)
        assert written[document.id] == [" ".join(tokenizer.decode(output[0], skip_special_tokens=True).split())]


def test_tokens_are_drawn_by_their_probabilities_among_the_likeliest(checkpoint: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    options = {"queries_per_document": 200, "top_k": 5, "generated_tokens": 1}
    text = DOCUMENTS[0].text
    drawn: Counter[str] = Counter()
    for seed in range(5):
        engine = created("doc2query", checkpoint, seed=seed, **options)
        drawn.update(queries_of(engine, [Document("d", "", text)], tmp_path / str(seed))["d"])
    tokenizer = AutoTokenizer.from_pretrained(checkpoint / "model")
    model = T5ForConditionalGeneration.from_pretrained(checkpoint / "model").eval()
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt"), decoder_input_ids=torch.tensor([[0]])).logits
    best = logits[0, -1].topk(5)
    expected: Counter[str] = Counter()
    for number, share in zip(best.indices.tolist(), best.values.softmax(0).tolist(), strict=True):
        expected[" ".join(tokenizer.decode([number], skip_special_tokens=True).split())] += share
    assert set(drawn) <= set(expected)
    for name, share in expected.items():
        assert drawn[name] / 1000 == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 1000) + 1e-9)


def test_documents_are_found_by_the_queries_written_for_them(engine: Any, tmp_path: Path) -> None:
    shard, index = tmp_path / "shard", tmp_path / "index"
    written = queries_of(engine, DOCUMENTS, shard)
    index.mkdir()
    engine.build_from_shards([shard], index)
    by_text = {d.id: set(engine.analyser(f"{d.title} {d.text}")) for d in DOCUMENTS}
    for name, queries in written.items():
        new = set(engine.analyser(" ".join(queries))) - by_text[name]
        for term in new:
            assert name in searched(engine, [Query("q", term)])["q"]
    lengths = [len(" ".join(queries).split()) for queries in written.values()]
    assert engine.facts() == {
        "queries_per_document": 3,
        "generated_length": pytest.approx(np.mean(lengths)),
        "maximum_length": 512,
    }


def test_shards_and_one_process_give_the_same_run(checkpoint: Path, tmp_path: Path) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    documents = [*DOCUMENTS, *AWKWARD[2:]]
    corpus.write_bytes(
        b"".join(orjson.dumps({"_id": d.id, "title": d.title, "text": d.text}) + b"\n" for d in documents)
    )
    queries.write_text('{"_id": "q", "text": "heat in the stock market"}\n')
    for size in (4, 100):
        retrieve(
            RetrievalTask(
                "doc2query",
                corpus,
                queries,
                tmp_path / f"{size}.run",
                parameters=SMALL,
                resources=Resources(checkpoint=checkpoint),
                shard_size=size,
            )
        )
    assert (tmp_path / "4.run").read_bytes() == (tmp_path / "100.run").read_bytes()


def test_defaults_are_those_of_the_papers() -> None:
    values = describe("doc2query").complete({})
    assert (values["queries_per_document"], values["top_k"], values["maximum_length"]) == (40, 10, 512)


def test_a_model_that_gives_no_numbers_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    broken = created("doc2query", checkpoint, **SMALL)
    broken.writer._model.shared.weight.data[:] = float("nan")
    with pytest.raises(ModelFailure) as failure:
        queries_of(broken, DOCUMENTS, tmp_path / "shard")
    assert failure.value.code == "not_finite_output"
