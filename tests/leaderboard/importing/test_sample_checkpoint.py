"""The model that a first start makes: from the collection's own words, the same every time, and of some use."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.rebuilding import rebuild, validate_archive
from leaderboard.importing.demo.sample_checkpoint import (
    archive_checkpoint,
    archive_with_pickle,
    embed_words,
    make_sample_checkpoint,
)

TOPICS = {
    "fruit": "apple pear plum cherry peach orchard ripe sweet",
    "ships": "harbour sail mast anchor captain deck rope tide",
    "music": "violin sonata chord melody rhythm tempo choir verse",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of three topics, each of some of its topic's words."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rng = np.random.default_rng(1)
    with path.open("w") as file:
        for number in range(90):
            topic = list(TOPICS)[number % 3]
            words = rng.choice(TOPICS[topic].split(), 4, replace=False)
            record = {"_id": str(number), "title": "The_" + words[0], "text": " ".join(words[1:]).upper()}
            file.write(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def checkpoint(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of that corpus."""
    return make_sample_checkpoint(tmp_path_factory.mktemp("checkpoint"), corpus, dimension=4)


def weights(checkpoint: Path) -> NDArray[np.float32]:
    """The tensor, read as the format says."""
    raw = (checkpoint / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    assert length % 8 == 0
    entry: dict[str, Any] = json.loads(raw[8 : 8 + length])["embedding.weight"]
    assert entry["dtype"] == "F32"
    assert entry["data_offsets"] == [0, len(raw) - 8 - length]
    return np.frombuffer(raw, "<f4", offset=8 + length).reshape(entry["shape"])


def test_words_of_one_topic_lie_closer_than_words_of_two(checkpoint: Path) -> None:
    vocabulary = json.loads((checkpoint / "tokenizer.json").read_text())["model"]["vocab"]
    vectors = weights(checkpoint)
    assert vectors.shape[0] == len(vocabulary)

    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    places = [[vocabulary[word] for word in words.split()] for words in TOPICS.values()]

    def likeness(one: int, other: int) -> float:
        return float((unit[places[one]] @ unit[places[other]].T).mean())

    assert min(likeness(0, 0), likeness(1, 1), likeness(2, 2)) > 0.4
    assert max(likeness(0, 1), likeness(0, 2), likeness(1, 2)) < 0.1


def test_an_unknown_word_has_no_direction(checkpoint: Path) -> None:
    assert not weights(checkpoint)[0].any()


def test_the_tokenizer_splits_names_as_the_vocabulary_was_counted(checkpoint: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    assert tokenizer.encode("The_Apple, unheard-of").tokens == ["the", "[UNK]", "apple", *["[UNK]"] * 4]


def test_the_same_corpus_gives_the_same_archive(corpus: Path, checkpoint: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    make_sample_checkpoint(again, corpus, dimension=4)
    one = archive_checkpoint(checkpoint, tmp_path / "one.zip").read_bytes()
    assert one == archive_checkpoint(again, tmp_path / "other.zip").read_bytes()


def test_the_refused_archive_has_a_pickle_instead_of_weights(checkpoint: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive_with_pickle(checkpoint, tmp_path / "refused.zip")) as archive:
        assert "pytorch_model.bin" in archive.namelist()
        assert "model.safetensors" not in archive.namelist()


def test_the_sites_own_validation_takes_the_one_and_refuses_the_other(checkpoint: Path, tmp_path: Path) -> None:
    taken = validate_archive(archive_checkpoint(checkpoint, tmp_path / "sample.zip"), tmp_path / "one")
    assert not taken.report.errors
    description = rebuild(taken, tmp_path / "rebuilt")
    assert (description.kind, description.dimension) == (CheckpointKind.STATIC_EMBEDDINGS, 4)
    refused = validate_archive(archive_with_pickle(checkpoint, tmp_path / "refused.zip"), tmp_path / "other")
    assert "pickle_weights" in {problem.code for problem in refused.report.errors}


def test_a_few_documents_are_enough() -> None:
    vocabulary, vectors = embed_words(["one two", "two one", "", "three"])
    assert vocabulary == ["[UNK]", "one", "two"]
    assert np.isfinite(vectors).all()
