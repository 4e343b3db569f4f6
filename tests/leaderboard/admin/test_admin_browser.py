"""Importing in a real browser: the pages work under the site's Content-Security-Policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, expect

from tests.factories import make_user
from tests.leaderboard.tiny_collection import good_files, write_zip

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_zip_is_refused_and_then_imported(page: Page, live_server: Any, tmp_path: Path) -> None:
    client = Client()
    client.force_login(make_user("Carol", is_staff=True, is_superuser=True))
    session = client.cookies[settings.SESSION_COOKIE_NAME]
    page.context.add_cookies([{"name": session.key, "value": session.value, "url": live_server.url}])
    page.goto("/admin/leaderboard/dataset/")
    page.get_by_role("link", name="Import dataset").click()
    broken = {"queries.jsonl": None, "corpus.jsonl": good_files()["corpus.jsonl"] + "nonsense\n"}
    page.get_by_label("Zip").set_input_files(write_zip(tmp_path / "broken.zip", broken))
    page.get_by_label("Slug").fill("tiny")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Nothing was imported: 2 problems.")).to_be_visible()
    expect(page.get_by_role("row", name="corpus.jsonl: 1 line")).to_contain_text("6")
    page.get_by_label("Zip").set_input_files(write_zip(tmp_path / "tiny.zip"))
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Imported tiny version 1.")).to_be_visible()
