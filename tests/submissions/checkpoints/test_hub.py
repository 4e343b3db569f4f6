"""Models fetched from the hub: off unless the operator says otherwise, and then only what a checkpoint is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from evaluation.checkpoints.rebuilding import validate_folder
from evaluation.core.problems import InvalidContent
from leaderboard.models import AuditRecord
from submissions.checkpoints.hub import PinnedModel, fetch, fetches
from submissions.core.errors import Refused
from submissions.models import Switch, Upload
from submissions.uploads import service
from submissions.uploads.service import get_size_limit
from tests.curating import filled
from tests.evaluation.small_checkpoint import files
from tests.factories import make_a_curator, make_user
from tests.servers.hub import COMMIT, FakeHub
from tests.submissions.fake_hub import NAME


def test_a_model_is_fetched_without_what_could_run_code(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["sparse_linear.pt"] = b"pickle"
    heads = fetch(PinnedModel(NAME, COMMIT), tmp_path, lambda: None)

    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == set(files()) - {"README.md"}
    assert all((tmp_path / name).stat().st_size == len(hub.files[name]) for name in names)
    assert heads == ["sparse_linear.pt"]
    assert not [path for path in hub.asked if path.endswith((".bin", ".pt", ".py"))]
    assert validate_folder(tmp_path).valid


@pytest.mark.django_db
def test_nothing_is_fetched_unless_the_operator_says_so(hub: FakeHub, tmp_path: Path, settings: Any) -> None:
    settings.HUB_DOWNLOADS = False

    with pytest.raises(Refused, match="does not download models") as refused:
        fetch(PinnedModel(NAME, COMMIT), tmp_path, lambda: None)
    assert refused.value.code == "hub_downloads_off"
    assert not hub.asked


@pytest.mark.django_db
def test_the_switch_in_the_admin_turns_it_on_and_is_recorded(
    hub: FakeHub, tmp_path: Path, settings: Any, client: Client
) -> None:
    settings.HUB_DOWNLOADS = False
    operator = make_user("Root", is_staff=True, is_superuser=True)
    client.force_login(operator)
    page = client.get("/submit/model/").content.decode()
    assert "Imports from the Hugging Face Hub are disabled on this site" in page
    assert 'href="/admin/submissions/switch/"' in page
    # A migration makes the row; tests with transactions of their own empty the table.
    switch, _ = Switch.objects.get_or_create(name="hub_downloads")
    form = f"/admin/submissions/switch/{switch.pk}/change/"
    sent = {**filled(client, form), "is_on": "on", "why": "we have a way out now"}
    assert client.post(form, {**sent, "why": ""}).status_code == 200  # it asks for a reason
    assert not fetches()
    assert client.post(form, sent).status_code == 302
    fetch(PinnedModel(NAME, COMMIT), tmp_path, lambda: None)
    assert any(tmp_path.iterdir())
    (record,) = AuditRecord.objects.filter(
        subject__contains="workers download models from the Hugging Face Hub, and images"
    )
    assert (record.actor, record.reason) == (operator, sent["why"])
    assert record.after["is_on"] is True
    assert "You can import public models from the Hugging Face Hub" in client.get("/submit/model/").content.decode()
    client.force_login(make_a_curator())
    assert client.get("/admin/submissions/switch/").status_code == 403  # it is an operator's, not a curator's


@pytest.mark.parametrize("said", ["1", "on", "true", "True"])
def test_the_variable_may_be_spelt_in_any_of_the_usual_ways(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from leaderboard.settings.environment import env

    monkeypatch.setenv("HUB_DOWNLOADS", said)
    assert env.bool("HUB_DOWNLOADS", default=False)
    monkeypatch.setenv("HUB_DOWNLOADS", "0")
    assert not env.bool("HUB_DOWNLOADS", default=False)


def test_limits_follow_from_the_weights(settings: Any) -> None:
    """A checkpoint of the largest weights comes in pieces and from the hub, and a person has room for it."""
    assert settings.CHECKPOINT_WEIGHTS_BYTES == 32 * 2**30
    assert get_size_limit(Upload.Kind.MODEL) == settings.CHECKPOINT_WEIGHTS_BYTES + 2**30
    assert get_size_limit(Upload.Kind.MODEL) <= service.UPLOAD_BYTES_PER_PERSON


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
def test_other_names_and_branches_are_refused(hub: FakeHub, tmp_path: Path, name: str, commit: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        fetch(PinnedModel(name, commit), tmp_path, lambda: None)
    assert refused.value.code == code
    assert not hub.asked


def _code_of(tmp_path: Path, commit: str = COMMIT) -> str:
    with pytest.raises(InvalidContent) as refused:
        fetch(PinnedModel(NAME, commit), tmp_path, lambda: None)
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
