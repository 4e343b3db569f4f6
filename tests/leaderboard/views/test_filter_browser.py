"""The field that filters the rows of tables, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.leaderboard.entries import make_system, score, scored_dataset

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _boards() -> None:
    for name in ("Nuts", "Nut trees", "Owls"):
        score(scored_dataset(slug=name.replace(" ", "-").lower(), name=name), make_system(f"BM25 of {name}"), ndcg=0.3)


def shown_rows(page: Page) -> list[str]:
    """Return the names in the rows of filtered tables that are shown."""
    return page.locator("[data-filtered] tbody tr:not([hidden]) th a").all_inner_texts()


def test_boards_are_filtered_by_all_words_and_a_screen_reader_hears_that_none_matches(page: Page) -> None:
    page.goto("/benchmarks/")
    assert sorted(shown_rows(page)) == ["Nut trees", "Nuts", "Owls"]
    field, status = page.locator("[data-filter]"), page.locator("[data-filter-empty]")
    expect(status).to_have_attribute("role", "status")
    field.press_sequentially("tr NUT")
    assert shown_rows(page) == ["Nut trees"]
    expect(status).to_be_hidden()
    field.fill("nut owl")
    assert shown_rows(page) == []
    expect(status).to_have_text("No board contains these words.")
    field.fill("")
    assert sorted(shown_rows(page)) == ["Nut trees", "Nuts", "Owls"]
    expect(status).to_be_hidden()


def test_measures_are_filtered(page: Page) -> None:
    page.goto("/measures/")
    field, rows = page.get_by_label("Filter measures"), page.locator("[data-filtered] tbody tr")
    total = rows.count()
    assert total > 10
    expect(rows.filter(visible=True)).to_have_count(total)
    field.fill("reciprocal rank")
    expect(rows.filter(visible=True).first).to_contain_text("RR")
    assert 0 < rows.filter(visible=True).count() < total
    field.fill("xyzzy")
    expect(rows.filter(visible=True)).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text="No row contains these words.")).to_be_visible()


def test_a_match_in_a_fold_opens_it_and_no_match_closes_it(page: Page) -> None:
    page.goto("/formats/")
    fold, field = page.locator(".code-list").first, page.get_by_label("Filter codes")
    code = fold.locator("tbody code").first.text_content() or ""
    expect(fold).not_to_have_attribute("open", "")
    field.fill(code)
    expect(fold).to_have_attribute("open", "")
    field.fill("xyzzy")
    expect(fold).not_to_have_attribute("open", "")


def test_a_list_that_the_server_filtered_is_not_filtered_again(page: Page) -> None:
    page.goto("/benchmarks/?q=nut")
    assert sorted(shown_rows(page)) == ["Nut trees", "Nuts"]
    page.locator("[data-filter]").fill("owls")
    assert sorted(shown_rows(page)) == ["Nut trees", "Nuts"]
    page.keyboard.press("Enter")
    expect(page.locator("[data-filtered] tbody tr")).to_have_count(1)
    assert shown_rows(page) == ["Owls"]


def test_without_javascript_only_a_form_filters(browser: Browser, live_server: Any) -> None:
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/measures/")
    expect(page.locator("[data-filter]")).to_be_hidden()
    page.goto("/benchmarks/")
    field = page.locator("[data-filter]")
    field.fill("owls")
    field.press("Enter")
    assert shown_rows(page) == ["Owls"]
    context.close()
