"""The pages of figures: whichever a link of the index leads to, there is something to look at, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from leaderboard.figures.registry import FIGURES
from tests.leaderboard.open_runs import open_dataset, run_for
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

OF_DATASETS = [slug for slug, figure in FIGURES.items() if not {"benchmark", "site"} & set(figure.subjects)]


def links(page: str) -> list[str]:
    """Where its links within the site lead."""
    return sorted({href for href in re.findall(r'href="(/[^"#]*)', page) if not href.startswith("/static/")})


def chosen(page: str, field: str) -> str:
    """The value that a select of the page stands at."""
    found = re.search(rf'<select id="figure-{field}".*?</select>', page, re.DOTALL)
    assert found
    selected = re.findall(r'value="([^"]*)" selected', found[0])
    return selected[0] if selected else ""


def test_no_link_of_the_figures_leads_nowhere(client: Client, tmp_path: Path) -> None:
    load_reported()
    dataset = open_dataset(tmp_path)
    run_for(dataset, "first", {"q1": ["d1"]}, baseline=True)
    run_for(dataset, "second", {"q1": ["d2", "d1"], "q2": ["d3"]})
    to_read, read = ["/figures/"], set[str]()
    while to_read:
        address = to_read.pop()
        read.add(address)
        answer = client.get(address.replace("&amp;", "&"), follow=True)
        assert answer.status_code == 200, address
        if address.startswith("/figures/") and ".json" not in address:
            to_read += [link for link in links(answer.content.decode()) if link not in read | set(to_read)]
    assert {f"/figures/{slug}/" for slug in FIGURES} <= read


def test_a_figure_without_a_subject_is_of_the_dataset_with_most_results_that_has_what_it_needs(
    client: Client, tmp_path: Path
) -> None:
    load_reported()
    for slug, number in (("few", 1), ("many", 2)):
        dataset = open_dataset(tmp_path, slug=slug)
        for name in ("first", "second")[:number]:
            run_for(dataset, name, {"q1": ["d1"]}, baseline=name == "first")
    hidden = open_dataset(tmp_path, slug="hidden", hidden=True)
    for name in ("first", "second", "third"):
        run_for(hidden, name, {"q1": ["d1"]}, baseline=name == "first")
    for slug in ("difficulty", "query-heatmap", "relevance-by-length", "query-differences"):
        page = client.get(f"/figures/{slug}/").content.decode()
        assert chosen(page, "dataset") == "many", slug
        assert 'value="nq"' not in page, "a dataset without documents or judgements is not offered"
        assert client.get(f"/figures/{slug}.json").json()["data"] or slug == "relevance-by-length"
    assert chosen(client.get("/figures/wins/").content.decode(), "benchmark") == "beir"


def test_a_site_without_anything_says_that_there_is_nothing_to_draw(client: Client) -> None:
    for slug in FIGURES:
        answer = client.get(f"/figures/{slug}/")
        assert answer.status_code == 200, slug
        assert client.get(f"/figures/{slug}.json").json()["data"] == []
    assert "No page on this site has the data for this figure yet." in client.get("/figures/wins/").content.decode()
    assert client.get("/figures/difficulty.json?dataset=none").status_code == 404
