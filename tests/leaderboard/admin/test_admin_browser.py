"""Importing in a real browser: the pages work under the site's Content-Security-Policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, expect

from tests.clicks import Clicks
from tests.factories import make_user
from tests.leaderboard.tiny_collection import good_files, write_zip

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def curator(page: Page, live_server: Any) -> Page:
    """A browser with a signed-in curator."""
    client = Client()
    client.force_login(make_user("Carol", is_staff=True, is_superuser=True))
    session = client.cookies[settings.SESSION_COOKIE_NAME]
    page.context.add_cookies([{"name": session.key, "value": session.value, "url": live_server.url}])
    return page


def test_a_dataset_is_imported_from_the_index_by_four_clicks(curator: Page, tmp_path: Path) -> None:
    page, clicks = curator, Clicks()
    page.goto("/admin/")
    clicks.on(page.get_by_role("link", name="Import dataset"))
    clicks.choose_file(page.get_by_label("Zip"), write_zip(tmp_path / "tiny.zip"))
    clicks.on(page.get_by_role("button", name="Continue"))
    expect(page.get_by_text("test: 4 judgments of 2 queries").first).to_be_visible()
    expect(page.get_by_label("Public share")).to_be_hidden()
    clicks.on(page.get_by_role("button", name="Import"))
    expect(page.get_by_text("Imported tiny version 1.")).to_be_visible()
    assert clicks.count <= 4
    expect(page.get_by_text("The baseline is requested.")).to_be_visible()
    page.wait_for_event("load")  # It refreshes itself.
    expect(page.get_by_text("Imported tiny version 1.")).to_be_visible()
    page.get_by_role("link", name="Open the board").click()
    expect(page).to_have_url(re.compile("/datasets/tiny/$"))


def test_a_zip_is_refused_and_problems_of_the_second_step_keep_it(curator: Page, tmp_path: Path) -> None:
    page = curator
    page.goto("/admin/leaderboard/dataset/")
    page.get_by_role("link", name="Import dataset").click()
    broken = {"queries.jsonl": None, "corpus.jsonl": good_files()["corpus.jsonl"] + "nonsense\n"}
    page.get_by_label("Zip").set_input_files(write_zip(tmp_path / "broken.zip", broken))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("Nothing was imported: 2 problems.")).to_be_visible()
    expect(page.get_by_role("row", name="corpus.jsonl: 1 line")).to_contain_text("6")
    page.get_by_label("Zip").set_input_files(write_zip(tmp_path / "tiny.zip"))
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("Name", exact=True).fill("Kept name")
    page.get_by_label("Primary measure", exact=True).fill("nDCG@nix")
    page.locator("summary", has_text="Scoring").click()
    page.get_by_label("Relevance level", exact=True).fill("2")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Nothing was imported: 1 problem.")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("Kept name")
    expect(page.get_by_label("Relevance level", exact=True)).to_be_visible()  # The group with input is open.
    page.get_by_label("Primary measure", exact=True).fill("")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Imported Kept name version 1.")).to_be_visible()
