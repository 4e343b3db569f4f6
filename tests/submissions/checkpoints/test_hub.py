"""Models fetched from the hub: off unless the operator says otherwise, and then only what a checkpoint is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluation.checkpoints import validate_folder
from evaluation.core.errors import InvalidContent
from submissions.checkpoints.hub import fetch
from submissions.core.errors import Refused
from tests.evaluation.small_checkpoint import files
from tests.submissions.fake_hub import COMMIT, NAME, FakeHub


def test_a_model_is_fetched_without_what_could_run_code(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["sparse_linear.pt"] = b"pickle"
    fetched, heads = fetch(NAME, COMMIT, tmp_path)

    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == set(files()) - {"README.md"}
    assert fetched == sum(len(hub.files[name]) for name in names)
    assert heads == ["sparse_linear.pt"]
    assert not [path for path in hub.asked if path.endswith((".bin", ".pt", ".py"))]
    assert validate_folder(tmp_path).valid


def test_nothing_is_fetched_unless_the_operator_says_so(hub: FakeHub, tmp_path: Path, settings: Any) -> None:
    settings.HUB_DOWNLOADS = False

    with pytest.raises(Refused, match="HUB_DOWNLOADS=off") as refused:
        fetch(NAME, COMMIT, tmp_path)
    assert refused.value.code == "hub_downloads_off"
    assert not hub.asked


@pytest.mark.parametrize(
    ("name", "commit", "code"),
    [
        ("../etc", COMMIT, "hub_name"),
        ("a/b/c", COMMIT, "hub_name"),
        ("a/b?x=", COMMIT, "hub_name"),
        (NAME, "main", "hub_commit"),
        (NAME, COMMIT + "\n", "hub_commit"),
    ],
)
def test_other_names_and_branches_are_refused(
    hub: FakeHub, tmp_path: Path, name: str, commit: str, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        fetch(name, commit, tmp_path)
    assert refused.value.code == code
    assert not hub.asked


def _code_of(tmp_path: Path, commit: str = COMMIT) -> str:
    with pytest.raises(InvalidContent) as refused:
        fetch(NAME, commit, tmp_path)
    return refused.value.report.errors[0].code


def test_size_is_known_before_anything_is_fetched(hub: FakeHub, tmp_path: Path, settings: Any) -> None:
    settings.CHECKPOINT_PIECES_LIMIT_BYTES = 1000

    assert _code_of(tmp_path) == "hub_too_large"
    assert len(hub.asked) == 1
    assert not list(tmp_path.iterdir())


def test_a_hub_that_lies_about_sizes_is_cut_off(hub: FakeHub, tmp_path: Path) -> None:
    hub.sizes["model.safetensors"] = 10

    assert _code_of(tmp_path) == "hub_too_large"


def test_a_commit_that_is_not_there_is_said(hub: FakeHub, tmp_path: Path) -> None:
    assert _code_of(tmp_path, "f" * 40) == "hub_missing"


def test_a_hub_in_trouble_is_said(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.status = 503
    assert _code_of(tmp_path) == "hub_unreachable"

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert _code_of(tmp_path) == "hub_unreachable"
