"""Choice of a slice in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.leaderboard.boards.test_slices import make_sliced_dataset

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_reader_chooses_short_queries_and_returns_to_all(page: Page, tmp_path: Path) -> None:
    make_sliced_dataset(tmp_path)
    page.goto("/datasets/tiny/")
    page.locator("#board-filters").click()
    page.get_by_label("Queries", exact=True).select_option("length:short")
    expect(page.locator("#verdict .headline")).to_contain_text("on 12 short queries")
    expect(page).to_have_url(re.compile("slice=length(:|%3A)short"))
    expect(page.locator("#board-part tbody .name a").first).to_have_text("Short")
    page.get_by_role("link", name="Remove: 12 short queries (of 15)").click()
    expect(page.locator("#verdict .headline")).not_to_contain_text("short queries")
    expect(page).to_have_url(re.compile("/datasets/tiny/$"))
