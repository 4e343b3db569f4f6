"""Term weighting: the model's weights of first pieces, the greatest of each word, scaled, rounded, and searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.problems import ModelFailure
from evaluation.engines import Resources, RetrievalTask, describe, retrieve
from tests.evaluation.neural import AWKWARD, DOCUMENTS, QUERIES, created, rebuilt, searched
from tests.evaluation.tiny_models import tiny_deepct

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("model"), tiny_deepct, CheckpointKind.TERM_WEIGHTING)


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Any:
    return created("deepct", checkpoint)


def expected_frequencies(checkpoint: Path, text: str, scale: float) -> dict[str, int]:
    """Compute DeepCT's frequencies: pieces joined at `##`, first weight, maximum of a word, scaled and rounded."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint / "model")
    model = AutoModelForTokenClassification.from_pretrained(checkpoint / "model").eval()
    encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
    with torch.no_grad():
        weights = model(**encoded).logits[0, :, 0].tolist()
    words: list[tuple[str, float]] = []
    for piece, weight in zip(tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]), weights, strict=True):
        if piece.startswith("##"):
            words[-1] = words[-1][0] + piece[2:], words[-1][1]
        elif piece not in ("[CLS]", "[SEP]"):
            words.append((piece, weight))
    found: dict[str, int] = {}
    for word, weight in words:
        frequency = int(np.round(scale * max(weight, 0.0)))
        if frequency:
            found[word] = max(frequency, found.get(word, 0))
    return found


@pytest.mark.parametrize("scale", [100.0, 7.0])
def test_scores_are_bm25s_over_the_models_frequencies(checkpoint: Path, tmp_path: Path, scale: float) -> None:
    engine = created("deepct", checkpoint, scale=scale)
    (tmp_path / "weighted").mkdir()
    engine.build(DOCUMENTS, tmp_path / "weighted")
    description = describe("bm25")
    plain: Any = description.create(description.complete({}), Resources())
    (tmp_path / "plain").mkdir()
    counts = [expected_frequencies(checkpoint, f"{d.title} {d.text}", scale) for d in DOCUMENTS]
    texts = [" ".join(" ".join([word] * times) for word, times in count.items()) for count in counts]
    plain.build([Document(d.id, "", text) for d, text in zip(DOCUMENTS, texts, strict=True)], tmp_path / "plain")
    queries = [*QUERIES, Query("stems", "foxes jumping"), Query("none", "unknown")]
    assert searched(engine, queries) == searched(plain, queries)
    assert engine.facts() == {
        "nonzeros_per_document": pytest.approx(np.mean([len(count) for count in counts])),
        "maximum_length": 512,
    }


def test_any_document_is_indexed(engine: Any, tmp_path: Path) -> None:
    engine.build(AWKWARD, tmp_path)
    assert engine.documents == len(AWKWARD)
    found = searched(engine, [Query("empty", ""), Query("endless", "query"), Query("thai", "ระบบ")])
    assert found["empty"] == {}
    assert set(found["endless"]) <= {"endless"}


def test_shards_and_one_process_give_the_same_run(checkpoint: Path, tmp_path: Path) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    corpus.write_bytes(
        b"".join(orjson.dumps({"_id": d.id, "title": d.title, "text": d.text}) + b"\n" for d in DOCUMENTS)
    )
    queries.write_text('{"_id": "q", "text": "heat in the stock market"}\n')
    resources = Resources(checkpoint=checkpoint)
    first = retrieve(
        RetrievalTask(
            "deepct",
            corpus,
            queries,
            tmp_path / "a.run",
            resources=resources,
            shard_size=3,
            shards=tmp_path / "s",
        )
    )
    again = retrieve(
        RetrievalTask(
            "deepct",
            corpus,
            queries,
            tmp_path / "b.run",
            resources=resources,
            shard_size=3,
            shards=tmp_path / "s",
        )
    )
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()
    assert len(list((tmp_path / "s").glob("0*"))) == 4
    assert first.facts == again.facts


def test_a_model_that_weighs_all_alike_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    broken = created("deepct", checkpoint)
    broken.weigher._model.classifier.weight.data[:] = 0.0
    with pytest.raises(ModelFailure) as failure:
        broken.encode_shard(DOCUMENTS, tmp_path)
    assert failure.value.code == "constant_output"
