"""Every hostile checkpoint is refused with its code, and leaves no trace outside of its own folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.findings import CODES
from evaluation.checkpoints.rebuilding import rebuild, validate_archive, validate_folder
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation.hostile_archives import CANARY
from tests.evaluation.hostile_checkpoints import HOSTILE
from tests.evaluation.small_checkpoint import files, safetensors, write


def test_there_are_many() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_checkpoint_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = HOSTILE[name]
    canary = tmp_path / CANARY
    canary.write_bytes(safetensors({}))
    sent, scratch = tmp_path / "sent", tmp_path / "scratch"
    sent.mkdir()
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    path = hostile.make(sent)
    before = {each for each in tmp_path.rglob("*") if scratch not in each.parents}

    validation = validate_archive(path, scratch, CheckpointKind(hostile.kind))

    problems = validation.report.errors
    assert validation.valid == hostile.deep, problems
    if hostile.deep:
        rebuild(validation, tmp_path / "rebuilt")
        problems = check_checkpoint(tmp_path / "rebuilt").errors
        shutil.rmtree(tmp_path / "rebuilt")
    assert hostile.code in {problem.code for problem in problems}, problems
    assert canary.read_bytes() == safetensors({})
    assert {each for each in tmp_path.rglob("*") if scratch not in each.parents} == before
    assert all(each.name.isdigit() and not each.is_symlink() for each in scratch.rglob("*"))
    for problem in problems:
        assert problem.hint == CODES[problem.code]
        assert len(problem.message) < 400
        assert str(tmp_path) not in problem.message


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_a_folder_is_refused(link: object, tmp_path: Path) -> None:
    content = files()
    canary = tmp_path / CANARY
    canary.write_bytes(content.pop("model.safetensors"))
    folder = write(content, tmp_path / "folder")
    link(canary, folder / "model.safetensors")  # type: ignore[operator]

    report = validate_folder(folder).report

    assert {"file_kind", "missing_weights"} == {problem.code for problem in report.errors}
    assert canary.exists()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    content = files()
    pooling = write({"config.json": content.pop("1_Pooling/config.json")}, tmp_path / "elsewhere")
    folder = write(content, tmp_path / "folder")
    (folder / "1_Pooling").symlink_to(pooling)

    assert "file_kind" in {problem.code for problem in validate_folder(folder).report.errors}


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    content = files()
    del content["config.json"]
    folder = write(content, tmp_path / "folder")
    os.mkfifo(folder / "config.json")

    assert "file_kind" in {problem.code for problem in validate_folder(folder).report.errors}


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    content = files() | {
        "pytorch_model.bin": b"x",
        "config.json": b'{"model_type": "bert", "vocab_size": 900, "code": "x"}',
    }
    del content["tokenizer.json"]

    report = validate_folder(write(content, tmp_path / "folder")).report

    codes = {problem.code for problem in report.errors}
    assert {"pickle_weights", "forbidden_key", "missing_tokenizer", "weights_shape"} <= codes
    (pickle,) = [problem for problem in report.errors if problem.code == "pickle_weights"]
    assert "python -m evaluation pack FOLDER" in pickle.hint
    assert pickle.message.startswith("pytorch_model.bin: ")


def test_remarks_on_many_files_hide_no_error(tmp_path: Path) -> None:
    content = files() | {f"{number}.model": b"x" for number in range(150)}
    content["config.json"] = json.dumps({**json.loads(content["config.json"]), "code": "x"}).encode()

    report = validate_folder(write(content, tmp_path / "folder")).report

    assert [problem.code for problem in report.errors] == ["forbidden_key"]
    assert len(report.warnings) == 100


def test_json_is_bounded_over_all_files(tmp_path: Path) -> None:
    content = files()
    modules = json.loads(content["modules.json"])
    for number in range(3, 12):
        path = f"{number}_Normalize"
        modules.append({"idx": number, "name": path, "path": path, "type": modules[2]["type"]})
        content[f"{path}/config.json"] = b" " * (4 << 20)
    content["modules.json"] = json.dumps(modules).encode()
    content["tokenizer.json"] = b"{}" + b" " * ((32 << 20) - 2)
    folder = write(content, tmp_path / "folder")
    other = write({**files(), "tokenizer.json": content["tokenizer.json"]}, tmp_path / "two" / "document")
    write(content, tmp_path / "two" / "query")

    assert "file_too_large" not in {problem.code for problem in validate_folder(folder).report.errors}
    problems = validate_folder(other.parent).report.errors
    assert "all JSON files together have over 80 MiB" in " ".join(problem.message for problem in problems)
