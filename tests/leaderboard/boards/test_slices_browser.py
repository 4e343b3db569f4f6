"""Choice of a slice in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.leaderboard.boards.test_slices import make_sliced_dataset

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "height", "limit"), [(1440, 900, 420), (390, 844, 480)])
def test_the_first_row_of_a_slice_is_on_the_first_screen(
    page: Page, tmp_path: Path, width: int, height: int, limit: int
) -> None:
    make_sliced_dataset(tmp_path)
    page.set_viewport_size({"width": width, "height": height})
    page.goto("/datasets/tiny/?slice=length:short")
    row = page.locator("#board-part tbody tr:not(.figure-row)").first.bounding_box()
    assert row is not None
    assert row["y"] <= limit
    expect(page.get_by_role("link", name="Remove: 12 short queries (of 15)")).to_be_in_viewport(ratio=1)


def test_a_reader_chooses_short_queries_and_returns_to_all(page: Page, tmp_path: Path) -> None:
    make_sliced_dataset(tmp_path)
    page.goto("/datasets/tiny/")
    page.locator("#board-filters").click()
    page.get_by_label("Queries", exact=True).select_option("length:short")
    expect(page.locator("#verdict .headline")).to_contain_text("On 12 short queries")
    expect(page).to_have_url(re.compile("slice=length(:|%3A)short"))
    expect(page.locator("#board-part tbody .name a").first).to_have_text("Short")
    page.get_by_role("link", name="Remove: 12 short queries (of 15)").click()
    expect(page.locator("#verdict .headline")).not_to_contain_text("short queries")
    expect(page).to_have_url(re.compile("/datasets/tiny/$"))
