"""Models known for inner products get dot where their files say cosine by default, and their sender is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.kinds import find_dot_model
from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from tests.evaluation.neural import DOCUMENTS, QUERIES, created, searched
from tests.evaluation.tiny_families import byte_tokenizer, save_encoder


def described(folder: Path, behind: tuple[str, ...] = (), **config: object) -> tuple[CheckpointDescription, list[str]]:
    """The model in `folder`, rebuilt beside it with these values in config.json; and the codes of remarks."""
    save_encoder(folder, "roberta", "cls", byte_tokenizer(begin=True), behind)
    values = {**json.loads((folder / "config.json").read_bytes()), **config}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    validation = validate_folder(folder, CheckpointKind.SENTENCE_ENCODER)
    found = rebuild(validation, folder.parent / "rebuilt")
    return found, [problem.code for problem in validation.report.problems]


@pytest.mark.parametrize(
    ("name", "behind", "config"),
    [
        ("model", ("Dense", "LayerNorm"), {}),  # ANCE
        ("model", (), {"architectures": ["Contriever"]}),
        ("model", (), {"_name_or_path": "sentence-transformers/msmarco-distilbert-base-tas-b"}),
        ("facebook_dpr-ctx_encoder-single-nq-base", (), {}),
    ],
)
def test_a_known_model_gets_dot_and_its_sender_is_told(
    tmp_path: Path, name: str, behind: tuple[str, ...], config: dict[str, object]
) -> None:
    found, codes = described(tmp_path / name, behind, **config)
    written = json.loads((tmp_path / name / "config_sentence_transformers.json").read_bytes())
    assert written["similarity_fn_name"] == "cosine"  # which nobody chose
    assert (found.similarity, codes.count("known_for_dot")) == ("dot", 1)


def test_the_similarity_of_a_known_model_decides_its_scores(tmp_path: Path) -> None:
    described(tmp_path / "ance-firstp")
    scores = []
    for number, asked in enumerate(({}, {"similarity": "dot"}, {"similarity": "cosine"})):
        engine = created("dense", tmp_path / "rebuilt", **asked)
        (tmp_path / str(number)).mkdir()
        engine.build(DOCUMENTS, tmp_path / str(number))
        scores.append(searched(engine, QUERIES))
    own, dot, cosine = scores
    assert own == dot != cosine


@pytest.mark.parametrize(("name", "behind"), [("distance-performance", ()), ("contriever", ("Normalize",))])
def test_another_model_or_unit_vectors_stay_as_the_files_say(
    tmp_path: Path, name: str, behind: tuple[str, ...]
) -> None:
    found, codes = described(tmp_path / name, behind)
    assert (found.similarity, "known_for_dot" in codes) == ("cosine", False)


def test_names_are_whole_words() -> None:
    names = ("msmarco-roberta-base-ance-firstp", "TAS_B", "balance", "nq-dpr", "contrievers")
    assert [find_dot_model((), (), [name]) for name in names] == ["ANCE", "TAS-B", "", "DPR", ""]
