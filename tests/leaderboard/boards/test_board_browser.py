"""A reader at a board, in a real browser, with and without JavaScript."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, Page, Route, expect

from leaderboard.models import Dataset, Round
from tests.clicks import Clicks
from tests.factories import make_a_curator
from tests.leaderboard.entries import (
    cost,
    make_source,
    make_system,
    record_boards,
    report,
    score,
    scored_dataset,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _board() -> None:
    dataset = scored_dataset(slug="demo", name="Demo")
    for number in range(6):
        architecture = "dense" if number % 2 else "lexical"
        system = make_system(f"System {number}", architecture=architecture, year=2020 + number % 3)
        entry = score(dataset, system, ndcg=0.3, recall=number / 10, baseline=number == 0)
        cost(entry, 2.0 + number)


def systems(page: Page) -> list[str]:
    """The systems on the board, from the top."""
    return page.locator("#board-part tbody .name a").all_inner_texts()


def test_the_best_model_under_100_mb_is_found_with_two_clicks(page: Page) -> None:
    for number, name, size in ((1, "Small", 90e6), (2, "Smaller", 40e6), (3, "Large", 400e6)):
        entry = score(Dataset.objects.get(slug="demo"), make_system(name), ndcg=0.4 + number / 10)
        cost(entry, 5.0, model_bytes=size)
    record_boards()
    page.goto("/")
    clicks = Clicks()
    clicks.on(page.get_by_role("main").get_by_role("link", name="Demo", exact=True).first)
    assert systems(page)[0] == "Large"
    clicks.on(page.get_by_role("list", name="Filter presets").get_by_role("link", name="Under 100 MB"))
    expect(page.locator("#board-part tbody .name a").first).to_have_text("Smaller")
    assert systems(page)[1] == "Small"
    assert "Large" not in systems(page)
    assert clicks.count <= 2


def test_a_reader_filters_sorts_by_two_columns_pins_two_and_compares(page: Page) -> None:
    page.goto("/datasets/demo/")
    page.evaluate("window.notReloaded = true")
    page.locator("#board-filters").click()
    page.get_by_role("checkbox", name=re.compile("^dense")).check()
    expect(page.locator("#board-part tbody tr:not(.figure-row)")).to_have_count(3)
    expect(page.get_by_role("group", name="Architecture")).to_be_visible()  # what was open stays open
    assert page.url.endswith("/datasets/demo/?architecture=dense")

    page.get_by_role("columnheader", name=re.compile("^nDCG@10")).get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"sort=nDCG@10:asc"))
    page.get_by_label("Then sort by").select_option(label="R@100")
    expect(page).to_have_url(re.compile(r"sort=nDCG@10%3Aasc&sort=R@100|sort=nDCG%4010%3Aasc&sort=R%40100"))
    assert systems(page) == ["System 5", "System 3", "System 1"]
    expect(page.locator("[aria-sort]")).to_have_count(1)
    expect(page.locator("#board-status")).to_contain_text("then R@100 descending")

    page.get_by_role("button", name="Pin System 1").click()
    expect(page.get_by_role("link", name="Unpin System 1")).to_be_visible()
    page.get_by_role("button", name="Pin System 3").click()
    expect(page.get_by_role("link", name="Unpin System 3")).to_be_visible()
    assert systems(page) == ["System 1", "System 3", "System 5"]
    compare = page.get_by_role("link", name="Compare pinned")
    assert re.fullmatch(r"/compare/\?system=[\w-]+&system=[\w-]+", compare.get_attribute("href") or "")
    assert page.evaluate("window.notReloaded")

    page.go_back()
    expect(page.get_by_role("button", name="Pin System 3")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Pin System 3")).to_be_visible()
    assert systems(page) == ["System 1", "System 5", "System 3"]


def test_the_same_way_without_javascript(browser: Browser, live_server: object) -> None:
    context = browser.new_context(base_url=str(live_server), java_script_enabled=False)
    page = context.new_page()
    page.goto("/datasets/demo/")
    page.locator("#board-filters").click()
    page.get_by_role("checkbox", name=re.compile("^dense")).check()
    page.get_by_label("Then sort by").select_option(label="R@100")
    page.locator("#board-form").get_by_role("button", name="Apply").click()
    assert page.url.endswith("/datasets/demo/?sort=R@100&architecture=dense")
    page.get_by_role("button", name="Pin System 1").click()
    assert systems(page) == ["System 1", "System 5", "System 3"]
    page.get_by_role("link", name="Unpin System 1").click()
    page.get_by_role("link", name=re.compile("^Remove: Architecture")).click()
    assert len(systems(page)) == 6
    context.close()


@pytest.mark.parametrize(
    ("width", "height", "scheme"),
    [pytest.param(1440, 900, "light", marks=pytest.mark.long), (390, 844, "dark")],
)
def test_the_open_tools_have_no_serious_fault_of_accessibility(
    page: Page, width: int, height: int, scheme: Any
) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    page.goto("/datasets/demo/?columns=all")
    pin = page.get_by_role("button", name="Pin System 1", include_hidden=True).get_attribute("value")
    page.goto(f"/datasets/demo/?sort=nDCG@10&sort=R@100&architecture=dense&corpus=1000000&pin={pin}")
    expect(page.get_by_role("link", name="Unpin all")).to_be_visible()
    tools = ["#board-filters"] + (["#board-columns > summary"] if width > 640 else [])
    for tool in tools:
        page.locator(tool).click()
        found = Axe().run(page).response["violations"]
        assert [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_search_filters_as_one_types(page: Page) -> None:
    page.goto("/datasets/demo/")
    page.evaluate("window.notReloaded = true")
    page.get_by_role("searchbox", name="Search systems or teams").press_sequentially("System 3")
    expect(page.locator("#board-part tbody .name")).to_have_count(1)
    assert systems(page) == ["System 3"]
    assert page.url.endswith("/datasets/demo/?q=System%203")
    expect(page.get_by_role("searchbox", name="Search systems or teams")).to_be_focused()
    page.keyboard.type("0")
    expect(page.get_by_text("No rows match.")).to_be_visible()
    expect(page.locator("#figures, .board-foot > .notes")).to_have_count(1)
    expect(page.locator("#figures")).to_be_hidden()
    assert page.evaluate("window.notReloaded")


def test_enter_searches_without_pinning_the_first_row(page: Page) -> None:
    page.goto("/datasets/demo/")
    box = page.get_by_role("searchbox", name="Search systems or teams")
    box.fill("System 3")
    box.press("Enter")
    expect(page.locator("#board-part tbody tr:not(.figure-row)")).to_have_count(1)
    assert "pin=" not in page.url


def test_going_back_leaves_a_search_as_a_whole(page: Page) -> None:
    page.goto("/datasets/demo/")
    box = page.get_by_role("searchbox", name="Search systems or teams")
    box.press_sequentially("syst")
    expect(page).to_have_url(re.compile(r"q=syst$"))
    box.press_sequentially("em 3")
    expect(page).to_have_url(re.compile(r"q=system%203$"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"/datasets/demo/$"))
    expect(page.locator("#board-part tbody tr:not(.figure-row)")).to_have_count(6)


def test_what_is_typed_while_a_search_is_answered_is_not_lost(page: Page) -> None:
    page.goto("/datasets/demo/")
    held: list[Route] = []
    page.route("**/datasets/demo/?q=System", lambda route: held.append(route))
    search = page.get_by_role("searchbox", name="Search systems or teams")
    with page.expect_request("**/datasets/demo/?q=System"):
        search.press_sequentially("System")
    page.keyboard.type(" 3")
    held[0].continue_()
    expect(page.locator("#board-part tbody .name")).to_have_count(1)
    assert systems(page) == ["System 3"]
    expect(search).to_have_value("System 3")


def test_columns_are_picked_without_javascript(browser: Browser, live_server: object) -> None:
    context = browser.new_context(base_url=str(live_server), java_script_enabled=False)
    page = context.new_page()
    page.goto("/datasets/demo/?architecture=dense")
    page.locator("#board-columns > summary").click()
    chosen = page.locator("#board-columns [name=columns]:checked")
    while chosen.count():
        chosen.first.uncheck()
    page.get_by_role("checkbox", name="R@100").check()
    page.get_by_role("checkbox", name="Show all published decimals of scores").check()
    page.get_by_role("button", name="Show these columns").click()
    assert page.url.endswith("/datasets/demo/?architecture=dense&exact=1&columns=R%40100")
    heads = page.locator("#board-part thead th a").all_inner_texts()
    assert heads == ["System", "nDCG@10", "R@100"], "the order explains itself"
    expect(page.get_by_text("0.5000")).to_be_visible()
    page.get_by_role("navigation", name="Columns").get_by_role("link", name="All").click()
    assert len(page.locator("#board-part thead th a").all()) > 10
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_titles_of_boards_and_other_pages_have_one_size(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    sizes = set()
    size = "heading => parseFloat(getComputedStyle(heading).fontSize)"
    for path in ("/compare/", "/datasets/demo/", "/benchmarks/"):
        page.goto(path)
        sizes.add(page.locator("h1").evaluate(size))
    assert len(sizes) == 1
    assert page.locator("h2").first.evaluate(size) < sizes.pop()


def test_later_sections_of_reported_rows_show_five_rows_until_all_are_asked_for(page: Page) -> None:
    dataset = scored_dataset(slug="reports")
    for name, count in (("Many", 12), ("Fewer", 11)):
        source = make_source(name)
        for number in range(count):
            report(dataset, source, f"{name} {number}", ndcg=0.1 + number / 100)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/datasets/reports/")
    first, second = page.locator(".is-long").all()
    assert [one.locator("tr:visible").count() for one in (first, second)] == [10, 5]
    page.get_by_text("Show all 11").click()
    assert second.locator("tr:visible").count() == 11


def test_names_take_less_than_a_third_of_a_wide_table(page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/datasets/demo/")
    name = page.locator("#board-part thead th.name").last.bounding_box()
    assert name is not None
    assert name["width"] < 1322 / 3


@pytest.mark.parametrize(("width", "height", "most"), [(1440, 900, 380), (390, 844, 350)])
def test_the_first_row_is_on_the_first_screen_whatever_is_said_above_it(
    page: Page, live_server: Any, width: int, height: int, most: int
) -> None:
    """At most so many pixels below the site's header: under the longest name, in a round, for a curator."""
    dataset = Dataset.objects.get(slug="demo")
    dataset.name = ("A collection with a very long name, " * 4)[:120]
    dataset.save()
    now = timezone.now()
    Round.objects.create(
        dataset=dataset,
        slug="open",
        name="The first round of the year",
        opens_at=now - timedelta(days=1),
        closes_at=now + timedelta(days=7),
        reveals_at=now + timedelta(days=8),
    )
    client = Client()
    client.force_login(make_a_curator())
    session = client.cookies[settings.SESSION_COOKIE_NAME]
    page.context.add_cookies([{"name": session.key, "value": session.value, "url": live_server.url}])
    page.set_viewport_size({"width": width, "height": height})
    page.goto("/datasets/demo/")
    expect(page.get_by_text("The first round of the year")).to_have_count(1)
    row = page.locator("#board-part tbody tr:not(.figure-row)").first.bounding_box()
    header = page.locator(".site-head").bounding_box()
    assert row is not None
    assert header is not None
    assert row["y"] - (header["y"] + header["height"]) <= most
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
