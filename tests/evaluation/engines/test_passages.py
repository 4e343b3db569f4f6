"""Documents in passages: a document's score is its best passage's, exactly, for encoders and re-rankers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.engines import InvalidParameter
from evaluation.engines.passages import PassageReader
from tests.evaluation import tiny_models
from tests.evaluation.neural import created, rebuilt, searched

WORDS = tiny_models._WORDS
GENERATOR = np.random.default_rng(16)
#: From no word to two hundred; some are the same as others, so that scores tie.
DOCUMENTS = [
    Document(f"d{number}", "title" if number % 3 else "", " ".join(GENERATOR.choice(WORDS, length)))
    for number, length in enumerate((0, 1, 5, 9, 10, 11, 40, 90, 200, 3, 17, 60, 120, 33))
]
DOCUMENTS += [Document(f"copy {number}".replace(" ", "-"), "", DOCUMENTS[6].text) for number in range(9)]
QUERIES = [Query(f"q{number}", text) for number, text in enumerate(("heart disease", "stock market price", "", "flow"))]
READ = {"passage_words": 10, "passage_stride": 4, "fields": "title+text"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("dense"), tiny_models.tiny_dense, CheckpointKind.SENTENCE_ENCODER)


@pytest.fixture(scope="module")
def brute_force(encoder: Path) -> dict[str, dict[str, float]]:
    """Each document's greatest score over all of its passages, by the library alone."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(encoder / "model"), device="cpu")
    asked = model.encode([query.text for query in QUERIES], normalize_embeddings=True)
    scores: dict[str, dict[str, float]] = {query.id: {} for query in QUERIES}
    for document in DOCUMENTS:
        words = document.text.split()
        cuts = [words[start : start + 10] for start in range(0, max(len(words) - 6, 1), 4)]
        texts = [f"{document.title} {' '.join(cut)}".strip() for cut in cuts]
        best = (asked @ model.encode(texts, normalize_embeddings=True).T).max(1)
        for query, score in zip(QUERIES, best.tolist(), strict=True):
            scores[query.id][document.id] = score
    return scores


def test_words_are_cut_to_the_end_and_none_is_left_out() -> None:
    reader = PassageReader(READ)
    for length in range(60):
        text = " ".join(str(number) for number in range(length))
        passages = [passage.split()[1:] for passage in reader(Document("d", "Title", text))]
        assert {word for passage in passages for word in passage} == set(text.split())
        assert all(len(passage) <= 10 for passage in passages)
        assert len(passages) == max(1, -(-(length - 10) // 4) + 1)
    assert reader(Document("d", "A", "one  two")) == ["A one  two"]  # a document of one passage is left as it is
    assert PassageReader({**READ, "fields": "title"})(Document("d", "A", "word " * 50)) == ["A"]


@pytest.mark.parametrize("depth", [1, 3, 12, len(DOCUMENTS), 100])
@pytest.mark.parametrize("shards", [1, 2])
def test_scores_are_those_of_brute_force(
    encoder: Path, brute_force: dict[str, dict[str, float]], tmp_path: Path, depth: int, shards: int
) -> None:
    engine = created("dense", encoder, passage_words=10, passage_stride=4)
    folders = []
    for number in range(shards):
        folders.append(tmp_path / f"shard-{number}")
        folders[-1].mkdir()
        engine.encode_shard(DOCUMENTS[number * 10 : number * 10 + 10 if number + 1 < shards else None], folders[-1])
    (tmp_path / "index").mkdir()
    engine.build_from_shards(folders, tmp_path / "index")
    assert engine.documents == len(DOCUMENTS)
    found = searched(engine, QUERIES, depth)
    for query, scores in brute_force.items():
        assert len(found[query]) == min(depth, len(DOCUMENTS))
        assert found[query] == pytest.approx({name: scores[name] for name in found[query]}, abs=1e-5)
        best = sorted(scores.values(), reverse=True)[: len(found[query])]
        assert list(found[query].values()) == pytest.approx(best, abs=1e-5)
    copies = [name for name in found["q0"] if name.startswith("copy")]
    assert copies == sorted(copies, reverse=True)
    per_document = engine.facts()["passages_per_document"]
    assert per_document == sum(len(PassageReader(READ)(one)) for one in DOCUMENTS) / len(DOCUMENTS)


def test_a_long_document_is_found_by_its_end(encoder: Path, tmp_path: Path) -> None:
    end = "heart disease"
    documents = [
        Document("long", "", "wing flow layer " * 200 + end),
        Document("short", "", "stock market price"),
    ]
    scores: list[float] = []
    for words in (0, 8):
        (tmp_path / str(words)).mkdir()
        engine = created("dense", encoder, passage_words=words)
        engine.build(documents, tmp_path / str(words))
        scores.append(searched(engine, [Query("q", end)])["q"]["long"])
    assert scores[1] > scores[0] + 0.01


@pytest.mark.parametrize("parameters", [{"search": "hnsw"}, {"stored_dtype": "binary"}, {"stored_dtype": "int8"}])
def test_passages_go_with_every_index(encoder: Path, tmp_path: Path, parameters: dict[str, str]) -> None:
    engine = created("dense", encoder, passage_words=10, passage_stride=4, **parameters)
    engine.build(DOCUMENTS, tmp_path)
    found = searched(engine, QUERIES, 5)
    assert all(len(scores) == 5 for scores in found.values())


def test_nothing_is_found_in_an_empty_collection(encoder: Path, tmp_path: Path) -> None:
    engine = created("dense", encoder, passage_words=10)
    engine.build([], tmp_path)
    assert searched(engine, QUERIES) == {query.id: {} for query in QUERIES}
    assert engine.documents == 0


def test_a_re_ranker_takes_the_best_passage(tmp_path: Path) -> None:
    checkpoint = rebuilt(tmp_path / "c", tiny_models.tiny_cross_encoder, CheckpointKind.CROSS_ENCODER)
    run = tmp_path / "run.txt"
    run.write_text("".join(f"q1 Q0 {one.id} 1 1 x\n" for one in DOCUMENTS), encoding="utf-8")
    engines: dict[str, Any] = {
        name: created("cross-encoder", checkpoint, (run,), reranking_depths="", **parameters)
        for name, parameters in {"passages": {"passage_words": 10, "passage_stride": 4}, "whole": {}}.items()
    }
    (tmp_path / "p").mkdir()
    engines["passages"].build(DOCUMENTS, tmp_path / "p")
    found = searched(engines["passages"], QUERIES[1:2])["q1"]
    read = PassageReader(READ)
    pairs = [(QUERIES[1].text, text, one.id) for one in DOCUMENTS for text in read(one)]
    scores = engines["whole"].scorer.score([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    expected: dict[str, float] = {}
    for (_, _, name), score in zip(pairs, scores.tolist(), strict=True):
        expected[name] = max(score, expected.get(name, -np.inf))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert engines["passages"].facts()["passages_per_document"] == len(pairs) / len(DOCUMENTS)


@pytest.mark.parametrize("name", ["dense", "cross-encoder"])
def test_a_stride_beyond_the_passage_is_refused(name: str, encoder: Path) -> None:
    from evaluation.engines import describe

    description = describe(name)
    check: Callable[..., None] = description.check_parameters
    with pytest.raises(InvalidParameter, match=r"passage_stride = 12 is not valid: .* enter 0 to 10"):
        check(description.complete({"passage_words": 10, "passage_stride": 12}), None)
    with pytest.raises(InvalidParameter, match="passage_stride"):
        created(name, encoder, passage_stride=3)
