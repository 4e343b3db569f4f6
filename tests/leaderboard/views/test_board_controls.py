"""What a reader finds around a board: chips, order, pins, pages, and the part of a page that htmx gets."""

from __future__ import annotations

import gzip
import re
from html import unescape

import pytest
from django.test import Client

from leaderboard.boards import filtering
from leaderboard.models import Dataset
from tests.leaderboard.entries import cost, make_system, score, scored_dataset
from tests.pages import clear_page_cache

pytestmark = pytest.mark.django_db
PART = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    clear_page_cache()


@pytest.fixture
def dataset() -> Dataset:
    """Three systems, one of them measured."""
    dataset = scored_dataset(slug="demo")
    for number, (name, architecture) in enumerate((("a & b", "dense"), ("b", "lexical"), ("c", "dense"))):
        system = make_system(name, architecture=architecture)
        system.slug = name[0] * 2
        system.save()
        entry = score(dataset, system, ndcg=0.5 - number / 10, recall=0.5)
        if name == "b":
            cost(entry, 2.0)
    return dataset


def page(client: Client, query: str = "", **headers: str) -> str:
    """The page, or the part."""
    answer = client.get(f"/datasets/demo/{query}", headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def links(html: str) -> dict[str, str]:
    """Accessible name (or text) → address."""
    found = {}
    for attributes, text in re.findall(r"<a ([^>]*)>(.*?)</a>", html, re.DOTALL):
        href = re.search(r'href="([^"]*)"', attributes)
        label = re.search(r'aria-label="([^"]*)"', attributes)
        if href:
            found[unescape(label[1] if label else re.sub("<[^>]*>", "", text)).strip()] = unescape(href[1])
    return found


@pytest.mark.usefixtures("dataset")
def test_every_choice_in_force_has_a_link_that_removes_it_alone(client: Client) -> None:
    found = links(page(client, "?architecture=dense&min-nDCG@10=0.1&max-nDCG@10=0.45&hide=about&corpus=1000"))
    everything = "architecture=dense&min-nDCG@10=0.1&max-nDCG@10=0.45&corpus=1000&hide=about"
    assert found["Remove: Architecture: dense"] == "/datasets/demo/?" + everything.removeprefix("architecture=dense&")
    assert found["Remove: nDCG@10 0.1 to 0.45"] == "/datasets/demo/?architecture=dense&corpus=1000&hide=about"
    assert found["Remove: without About"] == "/datasets/demo/?" + everything.removesuffix("&hide=about")
    assert found["Remove: my corpus: 1,000 documents"].endswith("max-nDCG@10=0.45&hide=about")
    assert found["Reset"] == "/datasets/demo/"


@pytest.mark.usefixtures("dataset")
def test_the_chip_of_cpu_only_says_that_the_unmeasured_are_left_out(client: Client) -> None:
    html = page(client, "?cpu-only=1")
    assert "measured without a GPU; unmeasured systems are hidden" in html
    assert "1 of 3" in html


@pytest.mark.usefixtures("dataset")
def test_the_order_is_said_and_each_of_its_columns_can_be_turned_or_left_out(client: Client) -> None:
    html = page(client, "?sort=R@100&sort=nDCG@10:asc")
    found = links(html)
    assert found["R@100, descending. Reverse the order"] == "/datasets/demo/?sort=R@100:asc&sort=nDCG@10:asc"
    assert found["nDCG@10, ascending. Reverse the order"] == "/datasets/demo/?sort=R@100:desc&sort=nDCG@10:desc"
    assert found["Remove R@100"] == "/datasets/demo/?sort=nDCG@10:asc"
    assert html.count("aria-sort=") == 1
    assert '<option value="mean-latency">' in html.split('id="then-by"')[1]


def test_two_pinned_systems_can_be_compared_and_unpinned(client: Client, dataset: Dataset) -> None:
    assert 'name="pin" value="bb" aria-label="Pin b"' in page(client)
    assert "Compare pinned" not in page(client, "?pin=bb")
    html = page(client, "?pin=bb&pin=aa")
    found = links(html)
    assert found["Compare pinned"] == "/compare/?system=bb&system=aa"
    assert found["Unpin a & b"] == "/datasets/demo/?pin=bb"
    assert found["Unpin all"] == "/datasets/demo/"
    bm25 = score(dataset, make_system("BM25"), baseline=True, ndcg=0.2).system.slug
    found = links(page(client, f"?pin=bb&pin={bm25}"))
    assert found["Compare pinned"] == f"/compare/?system={bm25}&system=bb", "the baseline is the reference"
    assert html.count('class="is-pinned"') == 2


@pytest.mark.usefixtures("dataset")
def test_a_form_carries_on_what_none_of_its_fields_says(client: Client) -> None:
    html = page(client, "?sort=R@100:asc&pin=bb&rows=all")
    for name, value in (("sort", "R@100:asc"), ("pin", "bb"), ("rows", "all")):
        assert f'<input type="hidden" name="{name}" value="{value}">' in html


@pytest.mark.usefixtures("dataset")
def test_an_address_with_empty_fields_leads_to_the_one_without(client: Client) -> None:
    answer = client.get("/datasets/demo/?measure=&q=&architecture=dense&min-nDCG@10=&sort=R@100&sort=")
    assert (answer.status_code, answer["Location"]) == (302, "/datasets/demo/?sort=R@100&architecture=dense")


@pytest.mark.usefixtures("dataset")
def test_htmx_gets_the_board_alone_and_is_never_given_a_page_that_was_kept(client: Client) -> None:
    whole, part = page(client, "?sort=R@100"), page(client, "?sort=R@100", **PART)
    assert whole.startswith("<!DOCTYPE html>")
    assert "<html" not in part
    assert part.lstrip().startswith('<div hx-swap-oob="innerHTML:#board-status">3 rows, by R@100 descending.')
    assert page(client, "?sort=R@100") == whole
    assert page(client, "?sort=R@100", **PART) == part
    answer = client.get("/datasets/demo/?sort=R@100", headers=PART)
    assert "HX-Request" in answer["Vary"]
    assert page(client, "?sort=R@100", **PART, **{"HX-History-Restore-Request": "true"}) == whole


@pytest.mark.usefixtures("dataset")
def test_long_boards_have_links_to_their_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "ROWS_PER_PAGE", 2)
    found = links(page(client, "?sort=R@100"))
    assert found["Page 2"] == "/datasets/demo/?sort=R@100&page=2"
    assert found["All 3 rows"] == "/datasets/demo/?sort=R@100&rows=all"
    assert links(page(client, "?rows=all"))["Show in pages"] == "/datasets/demo/"


def test_a_page_of_a_long_board_is_small(client: Client) -> None:
    dataset = scored_dataset(slug="demo")
    for number in range(60):
        score(dataset, f"System {number}", ndcg=number / 97, recall=number / 89)
    answer = client.get("/datasets/demo/", headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert len(answer.content) < 150_000
    part = client.get("/datasets/demo/", headers={"Accept-Encoding": "gzip", **PART})
    assert len(part.content) < 60_000
    assert gzip.decompress(part.content).count(b"<tr") == 62
