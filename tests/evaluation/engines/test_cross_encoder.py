"""Re-ranking: scores are those of the library, depths follow from one set of them, and odd texts do no harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Query
from evaluation.core.problems import InvalidContent, ModelFailure
from evaluation.engines import ENGINES, InvalidParameter, Resources
from evaluation.engines.cross_encoder import parse_depths
from tests.evaluation.neural import (
    AWKWARD,
    AWKWARD_QUERIES,
    DOCUMENTS,
    QUERIES,
    created,
    rebuilt,
    scores_of,
    searched,
)
from tests.evaluation.tiny_models import tiny_cross_encoder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross-encoder")
    return rebuilt(folder, tiny_cross_encoder, CheckpointKind.CROSS_ENCODER)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All documents for two queries of three, the last document first."""
    path = tmp_path_factory.mktemp("run") / "run.txt"
    lines = [
        f"{query.id} Q0 {document.id} 1 {place} x\n"
        for query in QUERIES[:2]
        for place, document in enumerate(DOCUMENTS)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_scores_are_the_librarys(checkpoint: Path, run: Path, tmp_path: Path) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    engine = created("cross-encoder", checkpoint, (run,), reranking_depths="")
    engine.build(DOCUMENTS, tmp_path)
    model = CrossEncoder(str(checkpoint.parent / "raw"), device="cpu")
    texts = [f"{document.title} {document.text}".strip() for document in DOCUMENTS]
    found = searched(engine, QUERIES)
    for query in QUERIES[:2]:
        ranked = model.rank(query.text, texts, activation_fn=torch.nn.Identity())
        expected = {DOCUMENTS[row["corpus_id"]].id: float(row["score"]) for row in ranked}
        assert found[query.id] == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert list(found[query.id]) == list(expected)
    assert found[QUERIES[2].id] == {}
    assert engine.facts()["depth"] == len(DOCUMENTS)  # it is asked for 100
    assert {"first_stage", "search"} == set(engine.clock.seconds)


def test_bm25_is_the_first_stage_where_no_run_is_given(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "bm25").mkdir()
    bm25 = created("bm25", checkpoint)
    bm25.build(DOCUMENTS, tmp_path / "bm25")
    engine = created("cross-encoder", checkpoint, reranking_depth=2, reranking_depths="")
    (tmp_path / "ce").mkdir()
    engine.build(DOCUMENTS, tmp_path / "ce")
    expected = {ranking.query_id: set(ranking.document_ids) for ranking in bm25.search(QUERIES, 2)}
    found = {ranking.query_id: set(ranking.document_ids) for ranking in engine.search(QUERIES, 100)}
    assert found == expected
    assert engine.size() > bm25.size()
    kept = created("cross-encoder", checkpoint, index=tmp_path / "bm25", reranking_depth=2, reranking_depths="")
    (tmp_path / "over-kept").mkdir()
    kept.build(DOCUMENTS, tmp_path / "over-kept")
    assert list((tmp_path / "over-kept" / "first_stage").iterdir()) == []
    assert kept.size() == engine.size()
    again = {ranking.query_id: set(ranking.document_ids) for ranking in kept.search(QUERIES, 100)}
    assert again == expected


def test_every_depth_is_as_a_search_of_its_own(checkpoint: Path, run: Path, tmp_path: Path) -> None:
    engine = created("cross-encoder", checkpoint, (run,), reranking_depth=8, reranking_depths="2,5,50")
    engine.build(DOCUMENTS, tmp_path)
    assert engine.variants == ("top 2", "top 5", "top 8")
    description = ENGINES["cross-encoder"]
    chosen = description.complete({"reranking_depth": 8, "reranking_depths": "2,5,50"})
    assert description.variants(chosen) == engine.variants
    assert [engine.variant_facts(label)["depth"] for label in engine.variants] == [2, 5, 8]
    together = list(engine.search_variants(QUERIES, 4))
    for label, depth in (("top 2", 2), ("top 5", 5), ("top 8", 8)):
        alone = list(engine.variant(label).search(QUERIES, 4))
        separate = created("cross-encoder", checkpoint, (run,), reranking_depth=depth, reranking_depths="")
        separate.open(tmp_path)
        assert separate.variants == ()
        for rankings, one, other in zip(together, alone, separate.search(QUERIES, 4), strict=True):
            ranking = rankings[label]
            assert ranking.document_ids == one.document_ids == other.document_ids
            assert len(ranking.document_ids) == (min(depth, 4) if ranking.query_id != "q3" else 0)
            np.testing.assert_allclose(ranking.scores, one.scores, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(ranking.scores, other.scores, rtol=1e-5, atol=1e-6)
    main = [ranking.document_ids for ranking in engine.search(QUERIES, 4)]
    assert main == [rankings["top 8"].document_ids for rankings in together]


def test_any_text_is_scored(checkpoint: Path, tmp_path: Path) -> None:
    queries = [*AWKWARD_QUERIES, Query("odd", "cat\x00"), QUERIES[0]]
    path = tmp_path / "run.txt"
    lines = (f"{query.id} Q0 {document.id} 1 1 x\n" for query in queries for document in AWKWARD)
    path.write_text("".join(lines), encoding="utf-8")
    engine = created("cross-encoder", checkpoint, (path,), reranking_depths="")
    (tmp_path / "index").mkdir()
    engine.build(AWKWARD, tmp_path / "index")
    found = searched(engine, queries)
    assert {len(scores) for scores in found.values()} == {len(AWKWARD)}
    assert searched(engine, []) == {}


def test_a_corpus_of_one_document_or_none(checkpoint: Path, tmp_path: Path) -> None:
    for count in (0, 1):
        engine = created("cross-encoder", checkpoint)
        (tmp_path / str(count)).mkdir()
        engine.build(DOCUMENTS[:count], tmp_path / str(count))
        found = [scores_of(rankings["top 100"]) for rankings in engine.search_variants(QUERIES, 100)]
        assert [len(scores) for scores in found] == [count, 0, 0]


def test_the_maximum_length_counts(checkpoint: Path, run: Path, tmp_path: Path) -> None:
    engine = created("cross-encoder", checkpoint, (run,), maximum_length=8)
    engine.build(DOCUMENTS, tmp_path)
    whole = created("cross-encoder", checkpoint, (run,))
    whole.open(tmp_path)
    assert searched(engine, QUERIES) != searched(whole, QUERIES)


def test_a_run_over_another_corpus_is_refused(checkpoint: Path, run: Path, tmp_path: Path) -> None:
    engine = created("cross-encoder", checkpoint, (run,))
    engine.build(DOCUMENTS[:3], tmp_path)
    with pytest.raises(InvalidContent, match="contains the unknown document 'd10' for query 'q1'"):
        list(engine.search(QUERIES, 10))


@pytest.mark.parametrize(("value", "code"), [(np.nan, "not_finite_output"), (0.0, "constant_output")])
def test_a_model_that_says_nothing_fails(checkpoint: Path, run: Path, tmp_path: Path, value: float, code: str) -> None:
    engine = created("cross-encoder", checkpoint, (run,))
    engine.build(DOCUMENTS, tmp_path)
    engine.scorer._model.model.classifier.weight.fill_(value)
    with pytest.raises(ModelFailure) as failure:
        list(engine.search(QUERIES, 10))
    assert failure.value.code == code


def test_depths_are_numbers(checkpoint: Path) -> None:
    assert parse_depths("10,50,100,200", 100) == (10, 50, 100)
    assert parse_depths("200, 10", 200) == (10, 200)
    assert parse_depths("", 7) == (7,)
    for text in ("ten", "0", "10;50", "5000"):
        with pytest.raises(InvalidParameter, match="numbers from 1 to 1000"):
            parse_depths(text, 100)


def test_one_job_ranks_to_at_most_five_depths() -> None:
    engine = ENGINES["cross-encoder"]
    assert engine.complete({"reranking_depths": "10,20,50,100"})["reranking_depths"] == "10,20,50,100"
    with pytest.raises(InvalidParameter, match="lists 119 depths; it accepts at most 4 besides reranking_depth"):
        engine.complete({"reranking_depths": ",".join(map(str, range(1, 120)))})
    with pytest.raises(InvalidParameter, match="lists 5 depths"):
        parse_depths("1,2,3,4,5", 4)


def test_no_model_no_engine() -> None:
    with pytest.raises(InvalidParameter, match="specify a checkpoint"):
        ENGINES["cross-encoder"].check(Resources())
