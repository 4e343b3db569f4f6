"""Figures in a real browser, under the site's own Content-Security-Policy."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from tests.leaderboard.entries import date_results, score, scored_dataset
from tests.leaderboard.open_runs import run_for
from tests.leaderboard.results.test_profile_pages import collection, look
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

READY = re.compile("light|dark")
DRAWN = 120_000
#: The texts of a figure's drawing that reach out of it.
OUTSIDE = """figure => {
  const plot = figure.querySelector(".figure-plot").getBoundingClientRect();
  return [...figure.querySelectorAll(".figure-plot text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < plot.left - 1 || box.right > plot.right + 1 || box.top < plot.top - 1);
  }).map(text => text.textContent);
}"""


@pytest.fixture
def beir(transactional_db: None) -> None:
    """The reported board of BEIR."""
    load_reported()


def shown(page: Page, slug: str) -> Locator:
    """The figure, scrolled to and drawn."""
    figure = page.locator(f"#figure-{slug}")
    figure.scroll_into_view_if_needed()
    expect(figure).to_have_attribute("data-ready", READY, timeout=DRAWN)
    return figure


def bar_color(figure: Locator) -> str:
    """The fill of the first bar, as it is computed."""
    return figure.locator(".bars path").first.evaluate("bar => getComputedStyle(bar).fill")


def test_a_figure_is_drawn_in_view_follows_scheme_and_facets_and_can_be_taken_away(
    beir: None, page: Page, tmp_path: Path
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 400})  # the figures are below it
    page.goto("/benchmarks/beir/")
    page.wait_for_timeout(300)
    assert not any("plotly" in url or "/figures/" in url for url in asked)

    page.set_viewport_size({"width": 1280, "height": 720})
    figure = shown(page, "wins")
    assert any("plotly.min" in url for url in asked)
    expect(figure.get_by_role("heading")).to_have_text("On how many datasets is each system better than BM25?")
    expect(figure.locator(".figure-caption")).to_contain_text("of the 18 that count")
    figure.get_by_text("Data and download", exact=True).click()
    expect(figure.get_by_role("row", name="docT5query")).to_contain_text("12")
    in_light = bar_color(figure)
    page.emulate_media(color_scheme="dark")
    expect(figure).to_have_attribute("data-ready", "dark")
    assert bar_color(figure) != in_light

    for format_name, start in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download(timeout=DRAWN) as saved:
            figure.get_by_role("button", name=format_name).click()
        path = tmp_path / format_name
        saved.value.save_as(path)
        assert saved.value.suggested_filename == f"wins.{format_name.lower()}"
        assert path.read_bytes().startswith(start)
    assert "BM25+CE scores better than BM25 on 16 of 18 datasets" in "".join(
        ElementTree.parse(tmp_path / "SVG").getroot().itertext()
    )

    violations = Axe().run(page, context="#figure-wins").response["violations"]  # the page: test_every_page
    serious = [each["id"] for each in violations if each["impact"] in ("serious", "critical")]
    assert not serious, [(each["id"], each["nodes"][0]["html"]) for each in violations]

    page.locator("#board-measure").select_option("R@100")
    expect(figure.locator(".figure-caption")).to_contain_text("in R@100")
    expect(figure.get_by_role("link", name="JSON")).to_have_attribute("href", re.compile("measure=R"))
    page.go_back()
    figure = shown(page, "wins")
    expect(figure.locator(".figure-caption")).to_contain_text("in nDCG@10")


def test_names_in_a_figure_are_text_and_no_colours(page: Page, tmp_path: Path) -> None:
    link, color = '<a href="http://e.io">B</a>', "var(--paper)"
    dataset = scored_dataset(name="<b>Set</b>", hidden=True)
    score(dataset, "BM25", baseline=True, ndcg=0.2)
    for number, name in enumerate((link, color, "&amp; %{x}")):
        score(dataset, name, ndcg=0.4 + number / 10)
    date_results("2024-01-05", "2024-02-05", "2025-01-05", "2025-02-05")
    page.goto(f"/datasets/{dataset.slug}/")
    for slug in ("deltas", "progress"):
        figure = shown(page, slug)
        drawn = figure.locator(".figure-plot")
        assert drawn.locator("a").count() == 0
        for name in (link, color, "&amp; %{x}"):
            expect(drawn.get_by_text(name, exact=True).first).to_be_attached()
    figure = shown(page, "deltas")
    figure.locator(".points path").last.hover(force=True)
    expect(figure.locator(".hoverlayer")).to_contain_text(link)
    figure.get_by_text("Data and download", exact=True).click()
    with page.expect_download(timeout=DRAWN) as saved:
        figure.get_by_role("button", name="SVG").click()
    saved.value.save_as(tmp_path / "deltas.svg")
    words = "".join(ElementTree.parse(tmp_path / "deltas.svg").getroot().itertext())
    assert "<b>Set</b>, nDCG@10" in words
    assert link in words
    figure.locator(".points path").last.click(force=True)
    expect(page).to_have_url(re.compile(r"/systems/"))


def test_folded_figures_are_drawn_once_they_are_opened_and_the_console_stays_empty(page: Page, tmp_path: Path) -> None:
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    dataset = collection(tmp_path)
    for name in ("one", "two"):
        run_for(dataset, name, {"q1": ["d5", "d1"], "q2": ["d3"]})
    look(dataset)
    page.goto("/datasets/tiny/")
    shown(page, "query-heatmap")
    page.get_by_text("Document lengths", exact=True).scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    assert page.locator("#figure-document-lengths").get_attribute("data-ready") is None
    page.get_by_text("Document lengths", exact=True).click()
    shown(page, "document-lengths")
    assert told == []


@pytest.mark.parametrize(
    ("width", "height", "number"),
    [
        (390, 844, 1),
        pytest.param(390, 844, 7, marks=pytest.mark.long),
        pytest.param(1440, 900, 4, marks=pytest.mark.long),
    ],
)
def test_no_text_of_a_figure_is_cut_off_and_a_choice_redraws_it(
    beir: None, page: Page, width: int, height: int, number: int
) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.goto("/benchmarks/beir/")
    expect(page.locator("#figure-pareto")).to_be_visible(visible=width > 1024)
    if width < 1024:
        page.get_by_text("More figures", exact=True).click()
    # A phone is where text is cut off, and long names stand in these first.
    figures = ("pareto", "in-domain", "head-to-head", "wins", "deltas", "means-by-task")
    for slug in figures[:number]:
        assert shown(page, slug).evaluate(OUTSIDE) == [], slug
    figure = shown(page, "pareto")
    figure.locator("select[name=x]").select_option("index")
    expect(figure.locator(".figure-caption")).to_contain_text("index size")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_javascript_a_figure_has_a_caption_and_its_table(
    beir: None, browser: Browser, live_server: object
) -> None:
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto("/benchmarks/beir/?architecture=dense")
    page.locator("#figure-wins").get_by_role(
        "link", name="On how many datasets is each system better than BM25?"
    ).first.click()
    expect(page).to_have_url(re.compile(r"/figures/wins/\?benchmark=beir&architecture=dense$"))
    page.get_by_text("Data and download", exact=True).click()
    expect(page.get_by_role("row", name="TAS-B")).to_contain_text("8")
    context.close()
