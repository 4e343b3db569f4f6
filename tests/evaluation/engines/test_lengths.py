"""Maximum lengths of texts: the model's own, or the submission's parameter."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from tests.evaluation import tiny_models
from tests.evaluation.neural import created, rebuilt, searched
from tests.evaluation.tiny_families import byte_tokenizer, save_encoder

BEGINNING = "heart disease and the blood pressure of patients " * 100
#: They differ after token 700 alone.
DOCUMENTS = [
    Document("a", "", f"{BEGINNING} stock market price fell"),
    Document("b", "", f"{BEGINNING} wing flow layer heat"),
    *(Document(f"other {n}", "", word) for n, word in enumerate(("cat", "dog", "money", "gene", "flow"))),
]
QUERIES = [Query("q", "stock market price")]


@pytest.fixture(scope="module")
def long_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ModernBERT with 8,192 positions."""
    folder = tmp_path_factory.mktemp("modernbert")
    return rebuilt(folder, tiny_models.tiny_modernbert, CheckpointKind.SENTENCE_ENCODER)


@pytest.fixture
def scores_of(long_reader: Path, tmp_path: Path) -> Callable[..., tuple[dict[str, float], Any]]:
    """Scores of the documents with these parameters, and the engine."""

    def found(**parameters: Any) -> tuple[dict[str, float], Any]:
        engine = created("dense", long_reader, **parameters)
        engine.build(iter(DOCUMENTS), Path(mkdtemp(dir=tmp_path)))
        return searched(engine, QUERIES)["q"], engine

    return found


def test_a_model_of_8192_positions_reads_behind_token_600(scores_of: Callable[..., Any]) -> None:
    scores, engine = scores_of()
    assert engine.facts()["maximum_length"] == 8192
    assert abs(scores["a"] - scores["b"]) > 1e-4


def test_a_submission_may_ask_for_less(scores_of: Callable[..., Any]) -> None:
    scores, engine = scores_of(maximum_length=512)
    assert engine.facts()["maximum_length"] == 512
    assert scores["a"] == scores["b"]


def test_long_texts_have_the_librarys_vectors(long_reader: Path, scores_of: Callable[..., Any]) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(long_reader / "model"), device="cpu")
    vectors = model.encode([document.text for document in DOCUMENTS], normalize_embeddings=True)
    expected = vectors @ model.encode(QUERIES[0].text, normalize_embeddings=True)
    scores, _ = scores_of()
    assert [scores[document.id] for document in DOCUMENTS] == pytest.approx(expected.tolist(), abs=1e-5)
    shortened = scores_of(maximum_length=512)[0]
    assert np.abs([shortened[each.id] for each in DOCUMENTS] - expected).max() > 1e-4


@pytest.mark.parametrize(("model_type", "length"), [("roberta", 65), ("bert", 66), ("bart", 66), ("longformer", 65)])
def test_texts_are_cut_at_the_positions_that_a_model_has(model_type: str, length: int, tmp_path: Path) -> None:
    """RoBERTa's table begins behind the row for padding, BART's has two rows more than it says."""

    def make(folder: Path) -> Path:
        words = byte_tokenizer(begin=True)
        return save_encoder(folder, model_type, "mean", words, max_position_embeddings=66)

    engine = created("dense", rebuilt(tmp_path, make, CheckpointKind.SENTENCE_ENCODER))
    assert engine._queries.maximum_length == length
    text = "stock market price fell " * 10
    found = np.zeros((3, engine._queries.dimension), np.float32)
    engine._queries.encode([text, text[: length - 2], text[: length - 3]], "", found)
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert np.abs(found[0] - found[2]).max() > 1e-4
