"""Archives store the choices given to `pack`, so that the site and `retrieve` do not need them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.__main__ import main
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import rebuild, validate_archive, validate_folder
from tests.evaluation.engines.test_rerankers import PROGRAMS
from tests.evaluation.tiny_families import byte_tokenizer, save_transformer
from tests.evaluation.tiny_models import (
    tiny_cross_encoder,
    tiny_dense,
    tiny_masked_language_model,
    tiny_splade,
    tiny_static,
    tiny_t5,
)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read_archive(path: Path, kind: CheckpointKind | None = None) -> CheckpointDescription:
    """The description of an archive that the site is sent without any choice."""
    validation = validate_archive(path, path.with_name("scratch"), kind)
    assert validation.valid, validation.report
    return rebuild(validation, path.with_name("from-archive"))


def plain_encoder(folder: Path) -> Path:
    """An encoder as transformers saves it, without a way of pooling."""
    tiny_dense(folder)
    for name in (
        "modules.json",
        "1_Pooling",
        "2_Normalize",
        "config_sentence_transformers.json",
        "checkpoint.json",
    ):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return folder


def language_model(folder: Path, chat_template: str = "") -> Path:
    """A causal language model that knows the words yes and no, with this chat template."""
    words = byte_tokenizer("left")
    words.chat_template = chat_template or None
    return save_transformer(folder, "qwen3", "AutoModelForCausalLM", words)


@pytest.mark.parametrize("pooling", ["sparta", "mean", "lasttoken"])
def test_the_pooling_of_a_plain_encoder(tmp_path: Path, pooling: str) -> None:
    plain_encoder(tmp_path / "encoder")
    assert main(["pack", "encoder", "--pooling", pooling, "--no-trial"]) == 0
    described = read_archive(tmp_path / "encoder.tar.zst")
    kind = CheckpointKind.SPARSE_ENCODER if pooling == "sparta" else CheckpointKind.SENTENCE_ENCODER
    assert (described.kind, described.pooling) == (kind, pooling)


def test_the_pooling_of_a_masked_language_model(tmp_path: Path) -> None:
    shutil.move(tiny_masked_language_model(tmp_path / "made"), tmp_path / "masked")
    (tmp_path / "masked/checkpoint.json").unlink(missing_ok=True)
    assert main(["pack", "masked", "--pooling", "sum", "--kind", "sparse-encoder", "--no-trial"]) == 0
    described = read_archive(tmp_path / "masked.tar.zst")
    assert (described.kind, described.pooling) == (CheckpointKind.SPARSE_ENCODER, "sum")


def test_the_template_of_a_language_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    language_model(tmp_path / "reranker", "{{ messages }}")
    assert main(["pack", "reranker"]) == 1
    told = capsys.readouterr().err
    assert "unknown chat template" in told
    assert "--template NAME" in told
    assert "Traceback" not in told
    assert main(["pack", "reranker", "--template", "qwen3-reranker"]) == 0
    described = read_archive(tmp_path / "reranker.tar.zst")
    assert (described.kind, described.template) == (CheckpointKind.CROSS_ENCODER, "qwen3-reranker")


@pytest.mark.parametrize(
    ("make", "kind"),
    [(tiny_dense, "sentence-encoder"), (tiny_static, "static-embeddings"), (tiny_splade, "sparse-encoder")],
)
def test_a_template_for_a_model_that_takes_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], Path], kind: str
) -> None:
    make(tmp_path / "model")
    assert main(["pack", "model", "--template", "monot5", "--no-trial"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: invalid_parameter: --template is for cross-encoder and seq2seq models, but this is a {kind}; pack it "
        "without --template"
    )
    assert not (tmp_path / "model.tar.zst").exists()


@pytest.mark.parametrize("make", [tiny_cross_encoder, tiny_t5])
def test_a_template_for_another_model_that_takes_one_is_stored(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    make(tmp_path / "model")
    assert main(["pack", "model", "--template", "mmonot5", "--no-trial"]) == 0
    assert read_archive(tmp_path / "model.tar.zst").template == "mmonot5"


def test_a_template_that_the_model_brings_stays_recognized(tmp_path: Path) -> None:
    language_model(tmp_path / "reranker", PROGRAMS["qwen3-reranker"])
    assert main(["pack", "reranker", "--no-trial"]) == 0
    assert read_archive(tmp_path / "reranker.tar.zst").template == "qwen3-reranker"


def test_retrieve_takes_the_archive_that_pack_writes(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "the heart"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "heart"}\n')
    tiny_dense(tmp_path / "encoder")
    assert main(["pack", "encoder", "--no-trial"]) == 0
    files = ["--corpus", "corpus.jsonl", "--queries", "queries.jsonl"]
    for checkpoint, out in (("encoder", "a.run"), ("encoder.tar.zst", "b.run")):
        words = ["retrieve", "--engine", "dense", "--checkpoint", checkpoint, *files, "--out", out]
        assert main(words) == 0
    assert (tmp_path / "a.run").read_text() == (tmp_path / "b.run").read_text() != ""


def test_an_archive_with_a_wrong_choice_is_refused(tmp_path: Path) -> None:
    language_model(tmp_path / "reranker", PROGRAMS["qwen3-reranker"])
    folder = tmp_path / "rebuilt"
    rebuild(validate_folder(tmp_path / "reranker"), folder)
    settings = folder / "model/config_sentence_transformers.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps({**content, "runboard_template": "{{ evil }}"}))
    (folder / "checkpoint.json").unlink()
    shutil.make_archive("wrong", "zip", folder)
    report = validate_archive(tmp_path / "wrong.zip", tmp_path / "scratch").report
    assert [problem.code for problem in report.errors] == ["value"]
    assert "runboard_template" in report.errors[0].message
