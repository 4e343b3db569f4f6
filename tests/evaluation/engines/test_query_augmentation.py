"""Learned query augmentation: equal to its formula computed densely, with and without each of its parts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.problems import ModelFailure
from evaluation.engines import describe
from evaluation.engines.index.inverted_index import DECODED_LENGTHS, encode_lengths
from tests.evaluation.cli.test_retrieve import run_command
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
from tests.evaluation.tiny_models import tiny_augmentation

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("model"), tiny_augmentation, CheckpointKind.QUERY_AUGMENTATION)


def built(checkpoint: Path, folder: Path, documents: list[Document], **parameters: Any) -> Any:
    engine = created("query-augmentation", checkpoint, **parameters)
    folder.mkdir()
    engine.build(documents, folder)
    return engine


class Formula:
    """(w ⊙ idf ⊙ (bow + a))ᵀ f(d) with dense vectors over the whole vocabulary."""

    def __init__(self, checkpoint: Path, documents: list[Document], k1: float = 0.9, b: float = 0.4) -> None:
        from safetensors.numpy import load_file
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint / "model")
        self.model = AutoModel.from_pretrained(checkpoint / "model").eval()
        tensors = load_file(checkpoint / "model" / "augmentation.safetensors")
        self.projection, self.weighting = tensors["W"].astype(np.float64), tensors["u"].astype(np.float64)
        self.special = self.tokenizer.all_special_ids
        self.names = [document.id for document in documents]
        rows = [self._counts(f"{document.title} {document.text}") for document in documents]
        frequencies = np.stack(rows)
        lengths = DECODED_LENGTHS[encode_lengths(frequencies.sum(axis=1).astype(np.int64))]
        total = np.count_nonzero(frequencies.sum(axis=1))
        mean = frequencies.sum() / total
        containing = np.count_nonzero(frequencies, axis=0)
        self.idf = np.log((total - containing + 0.5) / (containing + 0.5) + 1)
        self.documents = frequencies / (frequencies + k1 * (1 - b + b * lengths[:, None] / mean))

    def _counts(self, text: str) -> NDArray[np.float64]:
        numbers = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        row = np.zeros(len(self.projection))
        for number, count in Counter(numbers).items():
            if number not in self.special:
                row[number] = count
        return row

    def scores(self, query: str, augmentation: bool, weighting: bool) -> tuple[dict[str, float], int]:
        """Scores above 0 by document, and how many pieces were added."""
        encoded = self.tokenizer(query, return_tensors="pt", truncation=True, max_length=512)
        with torch.no_grad():
            vectors = self.model(**encoded).last_hidden_state[0].double().numpy()
        added = np.maximum(self.projection @ vectors[0], 0) * augmentation
        added[self.special] = 0
        own, weights = np.zeros(len(added)), np.ones(len(added))
        for number, vector in zip(encoded["input_ids"][0].tolist(), vectors, strict=True):
            if number in self.special:
                continue
            weight = max(float(self.weighting @ vector), 0.0)
            if weighting:
                weights[number] = max(weight, weights[number]) if own[number] else weight
            own[number] = 1
        totals = self.documents @ (weights * self.idf * (own + added))
        found = {name: total for name, total in zip(self.names, totals, strict=True) if total > 0}
        return found, np.count_nonzero(added[own == 0])


@pytest.mark.parametrize(("augmentation", "weighting"), [(True, True), (False, True), (True, False), (False, False)])
def test_scores_are_the_formula(checkpoint: Path, tmp_path: Path, augmentation: bool, weighting: bool) -> None:
    documents = [*DOCUMENTS, *AWKWARD]
    queries = [*QUERIES, Query("repeats", "cat cat the cat and the dog"), Query("letters", "xyz [SEP] zyx")]
    engine = built(checkpoint, tmp_path / "index", documents, augmentation=augmentation, weighting=weighting)
    found = searched(engine, queries)
    formula = Formula(checkpoint, documents)
    lengths = []
    for query in queries:
        expected, added = formula.scores(query.text, augmentation, weighting)
        lengths.append(added)
        assert found[query.id] == pytest.approx(expected, rel=1e-5), query.id
    assert engine.facts()["mean_augmentation_length"] == pytest.approx(np.mean(lengths))
    assert (engine.facts()["mean_augmentation_length"] > 0) == augmentation
    assert set(engine.clock.seconds) == {"query_encoding", "search"}


def test_the_index_is_that_of_bm25_over_word_pieces(checkpoint: Path, tmp_path: Path) -> None:
    built(checkpoint, tmp_path / "augmented", DOCUMENTS)
    plain = created("bm25-wordpiece", checkpoint)
    (tmp_path / "plain").mkdir()
    plain.build(DOCUMENTS, tmp_path / "plain")
    for file in (tmp_path / "plain").iterdir():
        assert (tmp_path / "augmented" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("beside", "labels"),
    [
        ("none", []),
        ("bm25-wordpiece", ["bm25-wordpiece", "augmented and weighted"]),
        ("ablations", ["bm25-wordpiece", "augmented", "weighted", "augmented and weighted"]),
    ],
)
def test_what_it_improves_on_is_searched_beside_it(
    checkpoint: Path, tmp_path: Path, beside: str, labels: list[str]
) -> None:
    engine = built(checkpoint, tmp_path / "index", DOCUMENTS, beside=beside)
    assert list(engine.variants) == labels
    description = describe("query-augmentation")
    assert list(description.variants(description.complete({"beside": beside}))) == labels
    if not labels:
        return
    plain = created("bm25-wordpiece", checkpoint)
    plain.open(tmp_path / "index")
    rankings = list(engine.search_variants(QUERIES, 100))
    for query, found in zip(QUERIES, rankings, strict=True):
        assert scores_of(found["bm25-wordpiece"]) == searched(plain, [query])[query.id]
        for label in labels:
            alone = searched(engine.variant(label), [query])[query.id]
            assert scores_of(found[label]) == pytest.approx(alone, rel=1e-5), label
        main = searched(engine, [query])[query.id]
        assert scores_of(found["augmented and weighted"]) == pytest.approx(main, rel=1e-5)
    assert len({tuple(found.scores.tolist()) for found in rankings[0].values()}) == len(labels)
    added = {label: engine.variant_facts(label)["mean_augmentation_length"] for label in labels}
    assert {label for label in labels if added[label]} == {label for label in labels if label.startswith("augmented")}
    assert "maximum_length" not in engine.variant_facts("bm25-wordpiece")


def test_the_command_writes_the_main_run_where_it_says_and_names_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tiny_augmentation(tmp_path / "raw")
    corpus, queries, out = (tmp_path / name for name in ("corpus.jsonl", "queries.jsonl", "run.txt"))
    rows = [{"_id": one.id, "title": one.title, "text": one.text} for one in DOCUMENTS]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries.write_text("".join(json.dumps({"_id": one.id, "text": one.text}) + "\n" for one in QUERIES))
    given = ["--corpus", corpus, "--queries", queries, "--checkpoint", raw, "--device", "cpu"]

    assert run_command("retrieve", "--engine", "query-augmentation", *given, "--out", out) == 0

    said = capsys.readouterr().err
    assert f"{out}: {len(out.read_text().splitlines()):,} lines" in said
    beside = tmp_path / "run.bm25-wordpiece.txt"
    assert f"{beside}: bm25-wordpiece" in said
    assert beside.read_text() != out.read_text()
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run.bm25-wordpiece.txt", "run.txt"]


def test_any_query_over_any_document_is_answered(checkpoint: Path, tmp_path: Path) -> None:
    engine = built(checkpoint, tmp_path / "index", AWKWARD)
    found = searched(engine, AWKWARD_QUERIES)
    assert set(found) == {query.id for query in AWKWARD_QUERIES}
    assert all("empty" not in scores for scores in found.values())
    assert engine.facts()["maximum_length"] == 512
    one = built(checkpoint, tmp_path / "one", [Document("only", "", "heart")], augmentation=False)
    assert list(searched(one, [Query("q", "heart")])["q"]) in (["only"], [])


def test_one_query_alone_scores_as_among_others(checkpoint: Path, tmp_path: Path) -> None:
    engine = built(checkpoint, tmp_path / "index", DOCUMENTS)
    together = searched(engine, QUERIES)
    for query in QUERIES:
        assert searched(engine, [query])[query.id] == pytest.approx(together[query.id], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"W": None}, "missing_weights"),
        ({"W": (3, 32)}, "not_loadable"),
        ({"u": (31,)}, "not_loadable"),
        ({"u": float("nan")}, "not_finite_output"),
    ],
)
def test_weights_that_do_not_fit_are_said(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    from safetensors.torch import load_file, save_file

    checkpoint = rebuilt(tmp_path / "model", tiny_augmentation, CheckpointKind.QUERY_AUGMENTATION)
    path = checkpoint / "model" / "augmentation.safetensors"
    tensors = load_file(path)
    for name, value in change.items():
        if value is None:
            del tensors[name]
        elif isinstance(value, tuple):
            tensors[name] = torch.zeros(value)
        else:
            tensors[name][:] = value
    save_file(tensors, path)
    with pytest.raises(ModelFailure) as failure:
        searched(built(checkpoint, tmp_path / "index", DOCUMENTS), QUERIES)
    assert failure.value.code == code
