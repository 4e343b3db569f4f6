"""Checks of runs by visitors without an account, on the page and through the API."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from leaderboard.models import Dataset
from submissions.accounts import throttling
from submissions.models import Submission, Upload
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.collections import make_collection, run_text

pytestmark = pytest.mark.django_db

CHECK = {"action": "check"}


@pytest.fixture(autouse=True)
def no_judgments_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check may not open judgments, hidden or not."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError("a check opened judgments")

    monkeypatch.setattr("leaderboard.datasets.qrels._judgements", refuse)


def packed(content: str) -> bytes:
    """A zip with one run."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("demo.txt", content)
    return buffer.getvalue()


def test_the_dataset_of_a_file_is_optional(demo: Dataset, client: Client, alice: Any) -> None:
    label = '<label for="dataset">%s<span class="muted small">(optional)</span></label>'
    assert label % "Dataset" in one_line(client.get("/submit/").content.decode())
    client.force_login(alice)
    assert label % "Dataset of the files" in one_line(client.get("/submit/").content.decode())


@pytest.mark.parametrize("dataset", ["demo", "secret"])
def test_a_visitor_checks_a_run_and_nothing_is_stored(
    demo: Dataset, secret: Dataset, nobody: Api, alice: Any, client: Client, dataset: str,
    stored_files: Callable[[], set[str]],
) -> None:  # fmt: skip
    before = stored_files()
    broken = run_text() + "a line\n"
    page = one_line(client.post("/submit/", {**CHECK, "several": upload(broken, f"{dataset}.txt")}).content.decode())
    assert "The run cannot be scored." in page
    assert "Line 241" in page or "line 241" in page
    good = one_line(
        client.post("/submit/", {**CHECK, "several": upload(run_text(), f"{dataset}.txt")}).content.decode()
    )
    assert "The run can be scored" in good
    assert "240 lines" in good
    assert f'href="/datasets/{dataset}/"' in good.partition("panel-facts")[2]
    assert ("Sign in to see how many submissions you have left." in good) == (dataset == "secret")
    answer = nobody.check(run_text(), dataset)
    assert (answer.status, answer.body["valid"]) == (200, True)
    # An account gets the same report.
    assert answer.body == Api(alice).check(run_text(), dataset).body
    assert not Submission.objects.exists()
    assert not Upload.objects.exists()
    assert stored_files() == before
    assert not list(Path(settings.FILE_UPLOAD_TEMP_DIR).glob("*.upload*"))


def test_the_page_of_a_visitor_leads_to_an_account(demo: Dataset, client: Client) -> None:
    page = one_line(client.get("/submit/?dataset=demo").content.decode())
    assert 'href="/account/login/?next=/submit/%3Fdataset%3Ddemo" data-keeps-file>Sign in to submit</a>' in page
    assert 'value="submit"' not in page
    assert '<button class="button is-primary" type="submit" name="action" value="check">' in page
    for text in ('name="public"', 'name="new-name"', "your quota"):
        assert text not in page
    assert "/formats/" in page
    response = client.post("/submit/", {"action": "submit", "several": upload(run_text(), "demo.txt")})
    assert response.status_code == 302
    assert response["Location"].startswith("/account/login/")
    assert client.post("/submit/").status_code == 302


@pytest.mark.parametrize("name", ["queries_visibility", "documents_visibility"])
def test_datasets_with_restricted_texts_are_not_compared(
    nobody: Api, alice: Any, client: Client, tmp_path: Path, name: str
) -> None:
    make_collection(tmp_path, "closed", **{name: "participants"})
    for fields in ({"dataset": "closed"}, {}):
        answer = nobody.post("check/", file=upload(run_text(), "whatever.txt"), **fields)
        assert (answer.status, answer.body["code"]) == (400, "unknown_dataset")
        assert "closed" not in answer.problem("unknown_dataset")["hint"]
    assert nobody.post("check/", file=upload(run_text(), "closed.txt")).body["code"] == "unknown_dataset"
    assert client.post("/submit/", {**CHECK, "several": upload(run_text(), "closed.txt")}).status_code == 400
    assert Api(alice).check(run_text(), "closed").status == 200


def test_the_dataset_is_asked_for_if_it_is_unclear(demo: Dataset, client: Client, tmp_path: Path) -> None:
    make_collection(tmp_path, "twin")
    page = one_line(client.post("/submit/", {**CHECK, "several": upload(run_text(), "whatever.txt")}).content.decode())
    assert "equally well" in page
    assert page.count('name="dataset"') == 1
    assert page.index('name="dataset"') < page.index('id="check-result"')
    sent = {**CHECK, "several": upload(run_text(), "whatever.txt"), "dataset": "twin"}
    assert "The run can be scored" in client.post("/submit/", sent).content.decode()


def test_zips_several_files_uploads_and_checkpoints_need_an_account(demo: Dataset, nobody: Api, client: Client) -> None:
    assert nobody.check(packed(run_text()), name="runs.zip").body["code"] == "one_file"
    two = [upload(run_text(), "demo.txt"), upload(run_text(), "demo.2.txt")]
    for files in (upload(packed(run_text()), "runs.zip"), two):
        response = client.post("/submit/", {**CHECK, "several": files})
        assert response.status_code == 400
        assert "sign in to check several" in response.content.decode()
    assert nobody.post("check/", upload="a" * 12).status == 401
    assert nobody.post("check/", kind="model", file=upload(b"x")).status == 401
    assert client.post("/submit/", {**CHECK, "upload:several": "a" * 12}).status_code == 403


def test_a_large_file_is_refused_before_it_is_written(
    demo: Dataset, nobody: Api, client: Client, alice: Any, settings: Any
) -> None:
    settings.VALIDATE_AT_ONCE_BYTES = 100_000
    content = "q1 Q0 d1 1 1.0 t\n" * 100_000
    response = client.post("/submit/", {**CHECK, "several": upload(content, "demo.txt")})
    assert response.status_code == 413
    assert "sign in to send a larger one" in response.content.decode()
    answer = nobody.check(content)
    assert (answer.status, answer.body["code"]) == (413, "request_too_large")
    # The limit of accounts does not change, and small compressed files are read up to the limit only.
    assert Api(alice).check(content).body["code"] == "too_large_to_check_at_once"
    expanding = gzip.compress(content.encode())
    assert nobody.check(expanding, name="run.txt.gz").body["code"] == "too_large_to_check_at_once"


def test_checks_without_an_account_are_limited_by_address(
    demo: Dataset, nobody: Api, alice: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "VISITOR_CHECKS", 2)
    sent = {**CHECK, "several": upload(run_text(), "demo.txt")}
    assert client.post("/submit/", sent).status_code == 200
    assert nobody.check(run_text()).status == 200
    limited = nobody.check(run_text())
    assert (limited.status, limited.body["code"]) == (429, "throttled")
    response = client.post("/submit/", {**CHECK, "several": upload(run_text(), "demo.txt")})
    assert response.status_code == 429
    assert int(response["Retry-After"]) > 0
    assert "You sent too many files" in response.content.decode()
    # Other addresses and accounts have their own limits. An IPv6 network has one in common.
    assert [Api(alice).check(run_text()).status for _ in range(3)] == [200] * 3
    network = [Client(REMOTE_ADDR=f"2001:db8::{number}") for number in range(3)]
    sent_by = [each.post("/submit/", {**CHECK, "several": upload(run_text(), "demo.txt")}) for each in network]
    assert [each.status_code for each in sent_by] == [200, 200, 429]


def test_a_check_of_a_bad_file_does_not_mention_a_submission(demo: Dataset, signed_in: Client) -> None:
    answer = signed_in.post("/submit/", {**CHECK, "several": upload("PK\x03\x04 junk", "broken.zip")})
    page = one_line(answer.content.decode())
    assert "Check results" in page
    assert "broken.zip cannot be scored. Fix the problems below and choose the file again." in page
    assert "was submitted" not in page


def test_a_file_with_the_name_of_a_zip_must_be_a_zip(demo: Dataset, signed_in: Client) -> None:
    for content in (run_text(), ""):
        page = one_line(signed_in.post("/submit/", {**CHECK, "several": upload(content, "demo.zip")}).content.decode())
        assert "the file is not a zip, although its name ends in .zip" in page


def test_the_closest_dataset_can_be_chosen_with_a_button(demo: Dataset, signed_in: Client) -> None:
    lines = [f"q1 Q0 x{number} {number} {20 - number} tag\n" for number in range(1, 10)]
    sent = {**CHECK, "several": upload("".join(lines), "mine.txt")}
    answer = signed_in.post("/submit/", sent)
    page = one_line(answer.content.decode())
    assert f'name="use" value="demo">Use {demo.name}' in page
    stored = next(row["upload"] for row in answer.context["kept"] if row["chosen"])
    assert "<b>mine.txt</b>" in page
    chosen = signed_in.post("/submit/", {"use": "demo", "upload:several": stored.pk, f"dataset:{stored.pk}": ""})
    page = one_line(chosen.content.decode())
    assert "Check results" in page
    assert f"for {demo.name}" in page
    assert Submission.objects.count() == 0
    visitor = Client().post("/submit/", {"use": "demo", "several": upload("".join(lines), "mine.txt")})
    assert "Check results" in visitor.content.decode()
