"""Pages on a phone: everything is legible, and touch targets are large enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Locator, Page, expect

from leaderboard.models import Dataset, System, Team
from tests.factories import make_user
from tests.leaderboard.entries import make_system, record_boards, score, scored_dataset

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: The links, buttons and labels in the first 2,000 pixels that are shown and smaller than 24 pixels either way.
SMALL = """() => [...document.querySelectorAll("a[href], button, select, summary, label:has(input), input")]
  .filter((element) => element.checkVisibility() && !element.closest("details:not([open]) > :not(summary)"))
  .filter((element) => !element.closest(".visually-hidden, .skip") && !element.matches("label input"))
  .map((element) => [element.getBoundingClientRect(), element.outerHTML.slice(0, 80)])
  .filter(([box]) => box.width && box.height && box.top < 2000 && (box.width < 23.9 || box.height < 23.9))
  .map(([box, html]) => `${Math.round(box.width)} × ${Math.round(box.height)} ${html}`)"""


@pytest.fixture
def _board() -> None:
    dataset = scored_dataset(slug="demo", name="Demo")
    score(dataset, make_system("BM25", architecture="lexical"), ndcg=0.3, baseline=True)
    team = Team.objects.create(slug="short", name="Team 3")
    entry = score(dataset, make_system("Dense", team=team), ndcg=0.4)
    entry.configuration, entry.evaluation.missing_queries = "exact search over all documents", 15
    entry.save()
    entry.evaluation.save()
    record_boards()
    long = Team.objects.create(slug="long", name="A university department with a very long name")
    score(dataset, make_system("Sparse", team=long), ndcg=0.5)


@pytest.fixture
def phone(browser: Browser, live_server: Any) -> Iterator[Page]:
    context = browser.new_context(
        base_url=live_server.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    yield context.new_page()
    context.close()


#: Whether the arrow at the end of a board's tabs has an opacity.
ARROW = "opacity => getComputedStyle(document.querySelector('.presets ul'), '::after').opacity == opacity"


@pytest.mark.usefixtures("_board")
def test_an_arrow_shows_that_more_tabs_follow(phone: Page) -> None:
    phone.goto("/datasets/demo/")
    tabs = phone.locator(".presets ul")
    tabs.evaluate("tabs => { tabs.parentElement.style.flex = '0 0 8rem'; }")
    phone.wait_for_function(ARROW, arg=1)
    tabs.evaluate("tabs => { tabs.scrollLeft = tabs.scrollWidth; }")
    phone.wait_for_function(ARROW, arg=0)


@pytest.mark.usefixtures("_board")
def test_the_team_is_legible_on_every_row(phone: Page) -> None:
    phone.goto("/datasets/demo/")
    teams = phone.locator(".board .by")
    assert teams.all_inner_texts() == [
        "A university department with a very long name",
        "Team 3",
        teams.last.inner_text(),
    ]
    for team in teams.all():
        shown, whole, line = team.evaluate(
            "element => [element.clientWidth, element.scrollWidth, element.parentElement.clientWidth]"
        )
        assert shown >= min(whole, line - 2)


def test_a_long_name_of_the_baseline_is_followed_by_its_team(phone: Page) -> None:
    dataset, name = (
        scored_dataset(slug="demo"),
        "Okapi BM25 with Porter stemming, k1 = 0.9, b = 0.4, over titles and abstracts",
    )
    score(dataset, make_system(name), ndcg=0.3, baseline=True)
    phone.goto("/datasets/demo/")
    gap = phone.locator(".board tbody .name").evaluate(
        """cell => cell.querySelector("small").getBoundingClientRect().top
          - cell.querySelector("a").getBoundingClientRect().bottom"""
    )
    assert gap < 4


def opacity(pin: Locator) -> float:
    return float(pin.evaluate("element => getComputedStyle(element, '::before').opacity"))


@pytest.mark.usefixtures("_board")
def test_pins_are_visible_on_a_wide_screen_and_stronger_on_the_row_under_the_pointer(page: Page) -> None:
    page.goto("/datasets/demo/")
    pins = page.get_by_role("button", name="Pin ")
    assert [opacity(pin) for pin in pins.all()] == [0.65, 0.65, 0.65]
    page.locator(".board tbody tr").first.hover()
    assert [opacity(pin) for pin in pins.all()] == [1, 0.65, 0.65]


@pytest.mark.usefixtures("_board")
def test_rows_are_pinned_and_compared_with_a_finger(phone: Page) -> None:
    phone.goto("/datasets/demo/")
    for name in ("Sparse", "Dense"):
        pin = phone.get_by_role("button", name=f"Pin {name}")
        box = pin.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 24
        assert opacity(pin) == 0.65
        pin.tap()
        pinned = phone.get_by_role("link", name=f"Unpin {name}")
        expect(pinned).to_be_visible()
        assert opacity(pinned) == 1
    phone.get_by_role("link", name="Compare pinned").tap()
    expect(phone).to_have_url(re.compile(r"/compare/\?system="))


@pytest.mark.usefixtures("_board")
@pytest.mark.parametrize(
    "address",
    ["/", "/benchmarks/", "/datasets/demo/", "/compare/", "/news/", "/status/", "/measures/", "/?view=x"],
)
def test_no_target_is_smaller_than_a_finger(phone: Page, address: str) -> None:
    phone.goto(address)
    assert phone.evaluate(SMALL) == []


def test_code_has_the_whole_width(phone: Page) -> None:
    phone.context.grant_permissions(["clipboard-read", "clipboard-write"])
    phone.goto("/docs/tutorial/")
    frame = phone.locator(".copy-frame").first
    code, button = frame.locator(".code-block").bounding_box(), frame.locator(".copy").bounding_box()
    assert code
    assert button
    assert code["width"] > 340
    assert button["y"] >= code["y"] + code["height"]


@pytest.mark.parametrize("width", [320, 390])
def test_brand_and_search_fit_when_signed_in(phone: Page, width: int, client: Client) -> None:
    phone.set_viewport_size({"width": width, "height": 844})
    client.force_login(make_user())
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    phone.goto("/news/")
    phone.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": phone.url}])
    phone.goto("/news/")
    shown, whole = phone.locator(".brand span").evaluate("element => [element.clientWidth, element.scrollWidth]")
    assert shown >= whole
    search = phone.get_by_role("searchbox").first
    box = search.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 40
    assert search.evaluate("element => getComputedStyle(element, '::placeholder').color") == "rgba(0, 0, 0, 0)"
    search.tap()
    box = search.bounding_box()
    assert box is not None
    assert box["width"] > 250
    assert phone.evaluate("document.documentElement.scrollWidth") <= width


def test_a_browser_knows_every_feature_of_the_policy(page: Page) -> None:
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto("/news/")
    assert messages == []


@pytest.mark.parametrize(("systems", "width", "scrolls"), [(40, 1024, False), (41, 1024, True), (41, 1440, False)])
def test_a_long_board_scrolls_by_itself_only_in_small_windows(
    page: Page, systems: int, width: int, scrolls: bool
) -> None:
    dataset = scored_dataset(slug="demo", name="Demo")
    for number in range(systems):
        score(dataset, f"System {number}", ndcg=number / 100)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/datasets/demo/")
    inner, whole = page.locator("#board-table").evaluate("element => [element.clientHeight, element.scrollHeight]")
    assert (inner < whole) == scrolls
    if systems > 40:
        page.locator("#board-table tbody tr").nth(30).scroll_into_view_if_needed()
        expect(page.locator("#board-table thead th").last).to_be_in_viewport(ratio=1)


def test_rows_of_a_comparison_are_blocks_with_the_names_of_the_systems(phone: Page) -> None:
    dataset = scored_dataset(slug="demo", name="Demo", hidden=True)
    first, second = (score(dataset, name, ndcg=0.4).system.slug for name in ("Dense", "Sparse"))
    phone.goto(f"/compare/?system={first}&system={second}")
    table = phone.get_by_role("region", name="Scores of 2 systems")
    assert table.evaluate("element => element.scrollWidth <= element.clientWidth")
    expect(table.get_by_role("link", name="Sparse").first).to_be_in_viewport(ratio=1)
    expect(table.get_by_role("rowheader", name="Demo")).to_be_visible()
    assert "columnheader" in table.aria_snapshot()


@pytest.mark.usefixtures("_board")
def test_results_of_a_system_are_labelled_and_fit_the_width(phone: Page) -> None:
    phone.goto(f"/systems/{System.objects.get(name='Dense').slug}/")
    table = phone.get_by_role("region", name="Results of Dense")
    assert table.evaluate("element => element.scrollWidth <= element.clientWidth")
    labels = (
        table.locator("tbody tr")
        .first.locator("td")
        .evaluate_all("cells => cells.map((cell) => getComputedStyle(cell, '::before').content.split('\"')[1])")
    )
    assert labels[:3] == ["Score", "Δ vs BM25", "Rank"]


@pytest.mark.usefixtures("_board")
def test_measures_and_leaderboards_fit_the_width(phone: Page) -> None:
    dense = System.objects.get(name="Dense")
    entry = dense.entries.get()
    measures = [f"P@{number}" for number in range(1, 13)]
    Dataset.objects.update(measures=["nDCG@10", *measures])
    entry.scores |= dict.fromkeys(measures, 0.25)
    entry.save()
    record_boards()
    phone.goto(f"/systems/{dense.slug}/")
    for address, name in (("", "All measures"), ("/benchmarks/", "Datasets")):
        if address:
            phone.goto(address)
        table = phone.get_by_role("region", name=name)
        expect(table.get_by_role("link", name="Demo")).to_be_visible()
        assert table.evaluate("element => element.scrollWidth <= element.clientWidth")


#: The look of each fold's chevron, and whether it points down exactly if the fold is open.
CHEVRONS = """folds => folds.map((fold) => {
  const style = getComputedStyle(fold, "::before");
  const turned = fold.parentElement.open || fold.closest(".menu") !== null;
  return [style.content, style.borderStyle, style.rotate === (turned ? "45deg" : "-45deg")];
})"""


@pytest.mark.usefixtures("_board")
def test_all_folds_have_the_same_chevron(phone: Page) -> None:
    for address in ("/docs/read-a-board/", "/benchmarks/", "/datasets/demo/"):
        phone.goto(address)
        # Folds that look like buttons have none.
        folds = phone.locator("summary:not(.board-bar > details > summary, .board-panel > summary)")
        assert {tuple(look) for look in folds.evaluate_all(CHEVRONS)} == {('""', "solid", True)}, address
        folds.evaluate_all("folds => folds.forEach((fold) => { fold.parentElement.open = true; })")
        assert {tuple(look) for look in folds.evaluate_all(CHEVRONS)} == {('""', "solid", True)}, address


def test_fields_of_a_comparison_have_the_whole_width(phone: Page) -> None:
    phone.goto("/compare/")
    form = phone.locator("form.comparing").bounding_box()
    fields = [field.bounding_box() for field in phone.locator("form.comparing input[list]").all()]
    assert form is not None
    assert [field and field["width"] for field in fields] == [form["width"]] * 2


@pytest.mark.usefixtures("_board")
def test_placeholders_and_the_row_of_the_baseline_have_contrast_in_dark_mode(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto("/datasets/demo/")
    placeholder = page.locator(".site-search input").evaluate("field => getComputedStyle(field, '::placeholder').color")
    assert placeholder == page.locator(".site-foot").evaluate("foot => getComputedStyle(foot).color")
    colors = page.locator(".board tbody tr .name").evaluate_all(
        "cells => cells.map((cell) => getComputedStyle(cell).backgroundColor.match(/\\d+/g).map(Number))"
    )
    row, other = (sum(color) for color in (colors[-1], colors[0]))
    assert row - other >= 48
