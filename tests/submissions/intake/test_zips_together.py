"""What one request may take of the disk while its zips are apart: as much as one zip, and never the reserve."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from leaderboard.models import Dataset, User
from submissions.intake import files
from submissions.models import Submission
from tests.submissions.clients import Api, upload
from tests.submissions.collections import run_text
from tests.submissions.intake.test_limits import zipped
from tests.submissions.uploads.test_uploads_taken import arrived

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

MEGABYTE = 1024 * 1024


class Apart:
    """How many bytes lay in folders of zips when they were removed, which is the most that ever did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        seen = self.sizes

        class Folder(tempfile.TemporaryDirectory[str]):
            def cleanup(self) -> None:
                seen.append(sum(path.stat().st_size for path in Path(self.name).rglob("*") if path.is_file()))
                super().cleanup()

        monkeypatch.setattr(files.tempfile, "TemporaryDirectory", Folder)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Apart:
    """What is expanded, where a zip of few bytes may become 2 MiB."""
    monkeypatch.setattr(files, "ZIP_POLICY", replace(files.ZIP_POLICY, ratio_floor_bytes=2 * MEGABYTE))
    return Apart(monkeypatch)


def bomb(name: str = "demo.txt", size: int = MEGABYTE) -> bytes:
    """A zip of a few kilobytes that expands to `size` bytes."""
    return zipped({name: "0" * size})


def ask(api: Api, way: str, **fields: Any) -> Any:
    """Check the files or submit them, without a dataset: the zips name their own."""
    return api.post("check/", **fields) if way == "check" else api.submit(**{"dataset": None, "file": None, **fields})


@pytest.mark.parametrize("way", ["check", "submit"])
def test_zips_of_one_request_share_what_one_may_expand_to(way: str, demo: Dataset, alice: User, apart: Apart) -> None:
    sent = [upload(bomb(f"demo.{number}.txt"), f"{number}.zip") for number in range(20)]
    answer = ask(Api(alice), way, file=sent)
    if way == "submit":
        assert answer.status == 400
    message = answer.problem("expansion")["message"]
    assert "the zips of the request expand together to more than 2 MiB at demo.2.txt" in message
    assert len(apart.sizes) == 1
    assert apart.sizes[0] <= 2 * MEGABYTE
    assert not Submission.objects.exists()


def test_zips_that_are_real_are_taken_together(demo: Dataset, secret: Dataset, api: Api, apart: Apart) -> None:
    sent = [upload(zipped({f"{name}.txt": run_text(tag=name)}), f"{name}.zip") for name in ("demo", "secret")]
    assert api.submit(dataset=None, file=sent).status == 201
    assert apart.sizes[0] > 0


@pytest.mark.parametrize("way", ["check", "submit", "page", "check on the page"])
def test_an_upload_that_is_named_often_is_refused_before_anything_is_expanded(
    way: str, demo: Dataset, alice: User, apart: Apart
) -> None:
    row = arrived(alice, bomb(), name="runs.zip")
    if way in ("check", "submit"):
        answer = ask(Api(alice), way, upload=[row.pk] * 70)
        assert answer.status == 400
        said = [problem["message"] for problem in answer.body["problems"]]
        assert {problem["code"] for problem in answer.body["problems"]} == {"upload_twice", "too_many_files"}
    else:
        client = Client()
        client.force_login(alice)
        action = "check" if way == "check on the page" else "submit"
        fields = {"new-name": "Mine", "new-architecture": "dense", "action": action}
        page = client.post("/submit/", {**fields, "upload:several": [row.pk] * 70})
        assert page.status_code == 400
        said = [page.content.decode()]
    assert any(f"The upload {row.pk} (runs.zip) is named 70 times." in each for each in said)
    assert any("There are 70 run files." in each for each in said)
    assert apart.sizes == []
    assert not Submission.objects.exists()


def test_runs_are_counted_over_all_zips_before_any_is_expanded(demo: Dataset, alice: User, apart: Apart) -> None:
    packed = [zipped({f"demo.{one}-{two}.txt": "x" for two in range(40)}) for one in range(2)]
    answer = Api(alice).submit(dataset=None, file=[upload(each, f"{n}.zip") for n, each in enumerate(packed)])
    assert answer.problem("too_many_files")["message"] == "There are 80 run files."
    assert apart.sizes == []


def test_all_zips_that_cannot_be_opened_are_named_at_once(demo: Dataset, api: Api, apart: Apart) -> None:
    damaged = zipped({"demo.txt": run_text()})[:-40]
    sent = [upload(damaged, "first.zip"), upload(bomb(), "whole.zip"), upload(damaged, "second.zip")]
    said = [problem["message"] for problem in api.submit(dataset=None, file=sent).body["problems"]]
    assert [message.split(":")[0] for message in said] == ["first.zip", "second.zip"]
    assert apart.sizes == []


def test_a_zip_leaves_the_reserve_to_the_database(
    demo: Dataset,
    api: Api,
    apart: Apart,
    monkeypatch: pytest.MonkeyPatch,
    stored_files: Callable[[], set[str]],
) -> None:
    before = stored_files()
    sent = upload(zipped({"demo.txt": run_text()}), "runs.zip")
    free = settings.DISK_RESERVE_BYTES - 1
    monkeypatch.setattr("evaluation.archives.zip.shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    monkeypatch.setattr("submissions.uploads.handler.require_free_space", lambda folder, size=0: None)
    api.client.raise_request_exception = False
    answer = api.submit(dataset=None, file=sent)
    assert (answer.status, answer.body["code"]) == (503, "disk_full")
    assert apart.sizes == [0]
    assert stored_files() == before
