"""Figures as data: they follow the board's view, agree with their tables, and say what is wrong with a question."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from urllib.parse import urlencode

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from leaderboard.core.staticfiles import PlotlyBundleFinder
from leaderboard.figures.model import Figure
from leaderboard.figures.registry import FIGURES
from tests.leaderboard.figure_checks import column, drawn, trace
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


@pytest.fixture
def beir() -> None:
    """The reported board of BEIR."""
    load_reported()


def test_wins_against_bm25_are_those_of_the_board(beir: None) -> None:
    plot = drawn("wins", "benchmark=beir")
    assert plot.table.rows[0] == ("BM25+CE", 16, 0, 2, "18/18")
    assert dict(zip(column(plot, "System"), column(plot, "Wins"), strict=True))["docT5query"] == 12
    assert trace(plot, "Wins")["x"] == column(plot, "Wins")
    assert trace(plot, "Losses")["x"] == [-lost for lost in column(plot, "Losses")]
    assert trace(plot, "Wins")["y"] == column(plot, "System")


def test_a_figure_follows_the_facets_of_its_board(beir: None) -> None:
    plot = drawn("wins", "benchmark=beir&architecture=dense")
    assert set(column(plot, "System")) == {"ANCE", "DPR", "GenQ", "TAS-B"}


def test_the_json_has_caption_table_and_traces(beir: None, client: Client) -> None:
    found = client.get("/figures/wins.json", {"benchmark": "beir"}).json()
    assert found["table"]["texts"][0] == ["BM25+CE", "16", "0", "2", "18/18"]
    assert found["table"]["rows"][0] == ["BM25+CE", 16, 0, 2, "18/18"]
    assert found["data"][0]["type"] == "bar"
    assert "BEIR" in found["caption"]


def test_a_wrong_question_is_answered_with_what_would_be_right(beir: None, client: Client) -> None:
    answer = client.get("/figures/wins.json", {"benchmark": "beir", "measure": "F1"})
    assert answer.status_code == 400
    assert "nDCG@10" in answer.json()["detail"]
    assert client.get("/figures/wins/", {"benchmark": "beir", "sort": "luck"}).status_code == 400
    assert client.get("/figures/wins.json", {"benchmark": "none"}).status_code == 404
    assert client.get("/figures/none.json").status_code == 404


def test_a_board_has_frames_and_no_script_of_the_bundle(beir: None, client: Client) -> None:
    page = client.get("/benchmarks/beir/", {"architecture": "dense"}).content.decode()
    assert 'data-figure-url="/figures/wins.json?benchmark=beir"' in page
    assert 'href="/figures/wins.json?benchmark=beir&amp;architecture=dense"' in page
    assert '<script src="/static/plotly' not in page


def test_every_figure_has_a_page_with_its_table(beir: None, client: Client) -> None:
    index = client.get("/figures/").content.decode()
    for slug, figure in FIGURES.items():
        assert f'href="/figures/{slug}/"' in index
        if "benchmark" in figure.subjects:
            page = client.get(f"/figures/{slug}/", {"benchmark": "beir"})
            assert page.status_code == 200
            assert "<tbody>" in page.content.decode()


def test_a_kept_figure_is_answered_by_one_query(beir: None, client: Client, django_assert_num_queries: object) -> None:
    client.get("/figures/wins.json", {"benchmark": "beir"})
    with django_assert_num_queries(1):  # type: ignore[operator]
        client.get("/figures/wins.json", {"benchmark": "beir"})


def test_the_bundle_is_found_in_the_installed_wheel() -> None:
    wheel = PlotlyBundleFinder().find("plotly/plotly.min.js")
    assert str(wheel).endswith("package_data/plotly.min.js")
    assert wheel in finders.find("plotly/plotly.min.js", find_all=True)
    assert finders.find("plotly/datasets/iris.csv.gz") is None


def test_every_figure_of_every_reported_board_is_drawn_or_says_why_not(beir: None) -> None:
    for slug, figure in FIGURES.items():
        for benchmark in ("beir", "msmarco-efficiency", "query-augmentation"):
            if "benchmark" in figure.subjects:
                drawn(slug, f"benchmark={benchmark}")


def test_a_page_has_no_figure_that_nothing_could_fill(beir: None, client: Client) -> None:
    for kind, slug in (
        ("dataset", "trec-covid"),
        ("dataset", "dbpedia-entity"),
        ("benchmark", "beir"),
    ):
        page = client.get(f"/{kind}s/{slug}/").content.decode()
        for name, figure in FIGURES.items():
            if kind in figure.subjects and f'id="figure-{name}"' not in page:
                assert not any(drawn(name, urlencode([(kind, slug), *choices])).data for choices in _choices(figure))
        assert ('id="figure-pareto"' in page) == (slug != "trec-covid")


def test_a_board_of_one_dataset_has_no_figure_over_several(beir: None, client: Client) -> None:
    page = client.get("/benchmarks/msmarco-efficiency/").content.decode()
    shown = [name for name in FIGURES if f'id="figure-{name}"' in page]
    assert shown == ["deltas", "pareto", "progress"]


def test_a_view_that_leaves_rows_out_keeps_every_figure(beir: None, client: Client) -> None:
    page = client.get("/datasets/trec-covid/?architecture=dense").content.decode()
    assert 'id="figure-pareto"' in page


def _choices(figure: Figure) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every combination of a figure's own parameters."""
    named = [[(name, choice.value) for choice in found] for name, (_, found) in figure.choices.items()]
    return product(*named)
