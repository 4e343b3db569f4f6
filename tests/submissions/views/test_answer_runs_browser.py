"""Datasets of answers in a real browser: import by a curator, submission by a team, and the board."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Page, expect

from leaderboard.core.permissions import make_curator
from leaderboard.models import User
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user
from tests.submissions.answer_collections import SLUG, answer_run, write_capitals
from tests.submissions.clients import Api
from tests.submissions.views.test_browser import sign_in
from tests.submissions.workers import work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def import_in_browser(page: Page, folder: Path, judgments: str) -> None:
    """Import the collection as a curator would: choose a zip, confirm what it contains, and choose measures."""
    collection = folder / "capitals.zip"
    paths = write_capitals(folder / "collection")
    with zipfile.ZipFile(collection, "w") as archive:
        for path in paths:
            archive.write(path, path.relative_to(folder / "collection"))
    page.goto("/admin/leaderboard/dataset/import/")
    page.get_by_label("Zip").set_input_files(collection)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("answers.jsonl")).to_be_visible()
    page.get_by_label("Slug").fill(SLUG)
    page.locator("#id_judgements").select_option(judgments)
    page.get_by_label("Primary measure").fill("EM")
    page.get_by_label("Other measures").fill("CiteP CiteR")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text("The baseline is requested")).to_be_visible()
    create_requested_jobs()
    drain_queue("cpu", "test-worker")


@pytest.mark.parametrize("judgments", ["open", "hidden"])
def test_a_dataset_of_answers_from_import_to_board(
    judgments: str, page: Page, live_server: Any, alice: User, tmp_path: Path
) -> None:
    carol = make_user("Carol")
    make_curator(carol, read_qrels=True)
    sign_in(page.context, carol, live_server.url)
    import_in_browser(page, tmp_path, judgments)
    sign_in(page.context, alice, live_server.url)
    run = tmp_path / "agent.jsonl"
    run.write_bytes(answer_run({"q5": {"answer": "Quito"}}, confidence=0.9))
    page.goto(f"/submit/?dataset={SLUG}")
    page.get_by_label("Run files").set_input_files(run)
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    page.get_by_label("System name").fill("Agent in a browser")
    page.get_by_label("Architecture").select_option("dense")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))
    work()
    api = Api(alice)
    assert api.submit(answer_run(), dataset=SLUG, system="Agent of a script").status == 201
    work()
    page.goto(f"/datasets/{SLUG}/")
    for name, value in (("Agent in a browser", "0.833"), ("Agent of a script", "1.000")):
        expect(page.get_by_role("row", name=re.compile(name))).to_contain_text(value)
    rows = Client().get(f"/datasets/{SLUG}/board.json").json()["rows"]
    assert {row["system"] for row in rows if row["rank"] is not None} == {"Agent in a browser", "Agent of a script"}
    page.goto(f"/datasets/{SLUG}/queries/q5/")
    is_shown = judgments == "open"
    assert page.get_by_text("Quito").count() == is_shown
    assert page.get_by_text("Lima").count() == (2 if is_shown else 0)
