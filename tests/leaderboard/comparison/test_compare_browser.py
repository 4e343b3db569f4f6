"""A reader who compares systems and follows a difference down to a query, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from leaderboard.models import Entry, System
from tests.clicks import Clicks
from tests.leaderboard.comparison.test_queries import GOOD, POOR
from tests.leaderboard.entries import make_system
from tests.leaderboard.open_runs import open_dataset, run_for
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    """A result better than BM25's, on a tiny dataset whose texts are open."""
    load_reported()
    dataset = open_dataset(tmp_path, name="Tiny")
    run_for(dataset, make_system("Plain BM25"), POOR, baseline=True)
    parent = make_system("Parent", authors="Ada Lovelace and Grace Hopper")
    run_for(dataset, parent, POOR | {"q1": ["d4"]})
    return run_for(dataset, make_system("Newcomer", variant_of=parent, authors="Ada Lovelace"), GOOD)


def test_a_reader_compares_by_name_and_follows_a_query(entry: Entry, page: Page) -> None:
    page.goto("/compare/")
    page.get_by_label("System", exact=True).fill("Plain BM25")
    page.get_by_label("Second system").fill("newcomer")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="Tiny")).to_contain_text("2/0/0")
    expect(page.locator("#figure-query-differences .main-svg").first).to_be_visible(timeout=120_000)
    page.get_by_role("link", name="query number 2").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("query number 2")
    expect(page.get_by_role("columnheader", name="Newcomer")).to_be_visible()
    page.get_by_role("link", name="d3").first.click()
    expect(page.locator("tr:target")).to_contain_text("Title 3")


def test_systems_are_compared_from_a_system_page_with_three_clicks(entry: Entry, page: Page, tmp_path: Path) -> None:
    other = open_dataset(tmp_path, slug="other", name="Other")
    run_for(other, System.objects.get(name="Plain BM25"), POOR, baseline=True)
    run_for(other, entry.system, GOOD)
    page.goto(f"/systems/{entry.system.slug}/")
    clicks = Clicks()
    clicks.on(page.get_by_role("link", name="Compare with Plain BM25", exact=True))
    expect(page.get_by_role("heading", level=1)).to_have_text("Newcomer compared with Plain BM25")
    expect(page.get_by_role("row", name="Tiny")).to_contain_text("2/0/0")
    clicks.on(page.get_by_label("Add a system"))
    page.keyboard.type("Parent")
    page.keyboard.press("Enter")
    expect(page.locator("[data-compared]")).to_have_text(["Plain BM25 ×", "Newcomer ×", "Parent ×"])
    assert clicks.count <= 3


def test_the_browser_lists_recent_comparisons_until_they_are_removed(entry: Entry, page: Page) -> None:
    page.goto("/compare/")
    expect(page.get_by_role("heading", name="Your recent comparisons")).to_be_hidden()
    baseline = System.objects.get(name="Plain BM25")
    page.goto(f"/compare/?system={entry.system.slug}&system={baseline.slug}")
    page.goto("/compare/")
    page.get_by_role("link", name="Newcomer, Plain BM25", exact=True).click()
    expect(page.get_by_role("row", name="Tiny")).to_contain_text("0/0/2")
    page.goto("/compare/")
    page.get_by_role("button", name="Remove the list").click()
    page.reload()
    expect(page.get_by_role("heading", name="Your recent comparisons")).to_be_hidden()


def test_it_all_works_without_javascript(entry: Entry, browser: Browser, live_server: Any) -> None:
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/compare/?system={entry.system.slug}")
    page.get_by_label("Add a system").fill("Plain BM25")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="Tiny")).to_contain_text("2/0/0")
    page.locator("#figure-query-differences .figure-data summary").click()
    page.get_by_role("link", name="Table of “On which queries do the two systems differ?”").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("On which queries do the two systems differ?")
    context.close()


def test_a_cell_of_the_heat_map_leads_to_its_query_and_the_table_has_links(entry: Entry, page: Page) -> None:
    page.goto("/figures/query-heatmap/?dataset=tiny")
    expect(page.get_by_role("heading", level=1)).to_have_text("Are the same queries hard for every system?")
    figure = page.locator("#figure-query-heatmap[data-ready]")
    expect(figure.locator(".main-svg").first).to_be_visible(timeout=120_000)
    figure.locator("summary").click()
    expect(figure.get_by_role("link", name="query number 1")).to_have_attribute("href", "/datasets/tiny/queries/q1/")
    box = figure.locator(".bars .point").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(f"**/datasets/tiny/queries/*/?system={entry.system.slug}")


def test_the_open_table_of_a_figure_does_not_widen_its_plot_on_phones(page: Page, tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    for letter in "ABC":
        run_for(dataset, make_system(f"{letter}, whose name takes a whole line"), GOOD, baseline=letter == "A")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/figures/query-heatmap/?dataset=tiny")
    figure = page.locator("#figure-query-heatmap")
    figure.locator("summary").click()
    expect(figure.get_by_role("link", name="query number 1")).to_be_visible()
    assert max(figure.evaluate("figure => [...figure.children].map(part => part.clientWidth)")) <= 390


@pytest.mark.long  # test_every_page has a comparison in `make test`
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_pages_are_accessible_and_fit_the_screen(
    entry: Entry, browser: Browser, live_server: Any, scheme: Any, width: int
) -> None:
    parent = System.objects.get(name="Parent")
    assert entry.system.team is not None
    context = browser.new_context(
        base_url=live_server.url, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    for address in (
        "/compare/",
        "/compare/?system=nobody",
        f"/compare/?system={parent.slug}&system={entry.system.slug}&system=bm25-beir-2021",
        "/datasets/tiny/queries/",
        "/datasets/tiny/queries/q1/",
        f"/systems/{entry.system.slug}/",
        f"/teams/{entry.system.team.slug}/",
        "/authors/ada-lovelace/",
    ):
        page.goto(address)
        found = Axe().run(page).response["violations"]
        assert not [(one["id"], one["nodes"][0]["html"]) for one in found], address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
    context.close()
