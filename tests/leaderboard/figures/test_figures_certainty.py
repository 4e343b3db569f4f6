"""Intervals in figures: which differences have a colour, what the baseline is called, and where points lead."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from leaderboard.figures.drawing import BETTER, GREY, WORSE
from leaderboard.models import Dataset, Entry
from leaderboard.results.significance.statements import statements
from leaderboard.results.significance.types import EntryCertainty
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import (
    cost,
    make_source,
    make_system,
    record_boards,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.entries_by_query import found_of, make_board, score_queries, spread
from tests.leaderboard.figure_checks import column, drawn, trace

pytestmark = pytest.mark.django_db


@pytest.fixture
def board() -> Dataset:
    """Two systems above BM25, one as good as it, one below; all of them timed."""
    dataset = make_board()
    score_queries(dataset, "Same", spread(0.4005, 5))
    for number, entry in enumerate(Entry.objects.filter(dataset=dataset).order_by("pk")):
        cost(entry, 1.0 + number)
    compute_certainty(dataset)
    return dataset


def test_a_difference_has_a_colour_where_its_own_interval_excludes_zero(board: Dataset) -> None:
    plot = drawn("deltas", f"dataset={board.slug}")
    *points, values = plot.data
    marks = [(one["name"], one["y"], one["marker"]["color"], one["marker"]["symbol"]) for one in points]
    assert marks == [
        ("significantly better", ["First", "Second"], BETTER, "circle"),
        ("not significant", ["Same"], GREY, "circle-open"),
        ("significantly worse", ["Last"], WORSE, "circle"),
    ], "never by color alone"
    assert values["y"] == column(plot, "System") == ["First", "Second", "Same", "Last"]
    assert column(plot, "Test") == ["significantly better"] * 2 + ["not significant", "significantly worse"]
    mean, above = points[2]["x"][0], points[2]["error_x"]["array"][0]
    assert column(plot, "95% from")[3] <= mean <= column(plot, "to")[3]
    assert above == pytest.approx(column(plot, "to")[3] - mean, abs=1e-5)
    assert plot.finding == "2 of 4 tested systems are significantly better than BM25"
    assert "Filled points are significantly better (green) or worse (orange) than BM25." in plot.caption


def test_a_difference_that_is_significant_without_correction_only_has_its_own_mark(
    board: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    certainty = EntryCertainty(0.4, 0.6, p_baseline=0.02)
    assert [certainty._replace(p_baseline_corrected=p).is_lost_by_correction for p in (None, 0.03, 0.08)] == [
        False, False, True
    ]  # fmt: skip
    assert not certainty._replace(p_baseline=0.07, p_baseline_corrected=0.2).is_lost_by_correction
    separable = certainty._replace(p_baseline_corrected=0.08, rank_low=1, rank_high=1)
    assert not separable.is_lost_by_correction, "the tests of all pairs are corrected too"
    assert separable._replace(rank_high=2).is_lost_by_correction
    lost = property(lambda self: bool(self.delta and -0.3 < self.delta < 0.2005))
    monkeypatch.setattr(EntryCertainty, "is_lost_by_correction", lost)
    plot = drawn("deltas", f"dataset={board.slug}")
    marks = {one["name"]: (one["marker"]["color"], one["marker"]["symbol"]) for one in plot.data[:-1]}
    assert marks["significant only before correction"] == (GREY, "circle-open"), "green and orange are significant"
    assert marks["not significant"] == (GREY, "circle-open")
    lost, other = (trace(plot, name) for name in ("significant only before correction", "not significant"))
    assert (lost["mode"], lost["line"]["dash"]) == ("lines+markers", "4px,3px")
    assert not lost.get("error_x")
    assert (lost["y"][::4], lost["marker"]["size"]) == (["Second", "Last"], [0, 11, 0, 0] * 2)
    low, high = (column(plot, head)[1] for head in ("95% from", "to"))
    assert lost["x"][:4] == [pytest.approx(low, abs=1e-4), 0.2, pytest.approx(high, abs=1e-4), None]
    assert (other["mode"], other["y"]) == ("markers", ["Same"])
    assert "Dashed lines are significant only before correction." in plot.caption
    assert plot.finding == (
        "1 of 4 tested systems is significantly better than BM25 after correction, and 1 only before it"
    )
    monkeypatch.setattr(EntryCertainty, "is_lost_by_correction", property(lambda self: True))
    finding = drawn("deltas", f"dataset={board.slug}").finding
    assert finding == "No tested system is significantly better than BM25 after correction, and 2 only before it"


def test_over_hidden_judgments_a_difference_has_the_color_of_the_board_and_no_interval() -> None:
    hidden = scored_dataset(hidden=True)
    score(hidden, "BM25", baseline=True, ndcg=0.2)
    score(hidden, "better", ndcg=0.9)
    score(hidden, "worse", ndcg=0.1)
    plot = drawn("deltas", f"dataset={hidden.slug}")
    assert list(plot.table.heads) == ["System", "Δ nDCG@10", "Test"]
    assert column(plot, "Test") == ["significantly better", "not tested"], "worse scores are not tested"
    assert plot.finding == ""
    assert "interval" not in plot.caption
    least = statements([hidden.pk])[hidden.pk].least_difference("nDCG@10")
    assert least is not None
    [band] = plot.layout["shapes"]
    assert (band["x0"], band["x1"]) == (0.0, least)
    assert "In the band, differences are not significant." in plot.caption
    assert "Crosses are not tested: with hidden judgments, only better systems are." in plot.caption
    assert "Reported results" not in plot.caption
    paper = make_source("paper")
    report(hidden, paper, "BM25", baseline=True, ndcg=0.2)
    report(hidden, paper, "printed", ndcg=0.4)
    caption = drawn("deltas", f"dataset={hidden.slug}").caption
    assert "only better systems are. Reported results are not tested." in caption


def test_the_axis_includes_the_least_significant_difference() -> None:
    hidden = scored_dataset(hidden=True)
    for name, value in (("BM25", 0.2), ("little", 0.201)):
        score(hidden, name, baseline=name == "BM25", ndcg=value)
    plot = drawn("deltas", f"dataset={hidden.slug}")
    assert plot.layout["xaxis"]["range"][1] > plot.layout["shapes"][0]["x1"] > 0.001
    assert plot.layout["meta"]["narrow"]["xaxis"]["range"][1] > plot.layout["shapes"][0]["x1"]


def test_reported_differences_have_a_mark_of_their_own(board: Dataset) -> None:
    paper = make_source("paper")
    report(board, paper, "BM25", baseline=True, ndcg=0.4)
    report(board, paper, "Printed", ndcg=0.45)
    compute_certainty(board)
    plot = drawn("deltas", f"dataset={board.slug}")
    printed = trace(plot, "not tested")
    assert (printed["y"], printed["marker"]["symbol"]) == (["Printed (r)"], "x-thin")
    axis = plot.layout["yaxis"]
    assert list(axis["categoryarray"]) == ["First", "Second", "Same", "Last", "Reported:", "Printed (r)"], (
        "tested systems are first"
    )
    assert list(axis["range"]) == [5.5, -0.5], "no empty rows above and below"
    assert trace(plot, "not significant")["marker"]["symbol"] == "circle-open"
    assert dict(zip(column(plot, "System"), column(plot, "Test"), strict=True))["Printed (r)"] == printed["name"]
    assert "Crosses are not tested." in plot.caption
    assert plot.finding.startswith("2 of 4 tested systems")
    reported = scored_dataset()
    for name, score_value in (("BM25", 0.4), ("Printed", 0.5)):
        report(reported, paper, name, baseline=name == "BM25", ndcg=score_value)
    assert drawn("deltas", f"dataset={reported.slug}").finding == "", "nothing was tested"


def test_the_picture_of_costs_has_intervals_the_baseline_and_links(board: Dataset, client: Client) -> None:
    plot = drawn("pareto", f"dataset={board.slug}")
    found = found_of(board).for_measure("nDCG@10")
    assert found
    first = Entry.objects.get(dataset=board, system__name="First")
    sure = found.entries.get(first.pk)
    assert sure
    points = next(one for one in plot.data if "customdata" in one)
    place = [told[0] for told in points["customdata"]].index("First")
    assert points["y"][place] + points["error_y"]["array"][place] == pytest.approx(sure.high, abs=1e-4)
    assert points["y"][place] - points["error_y"]["arrayminus"][place] == pytest.approx(sure.low, abs=1e-4)
    assert client.get(points["meta"]["links"][place]).status_code == 200
    assert first.system.slug in points["meta"]["links"][place]
    line = trace(plot, "BM25 (baseline)")
    assert line["y"] == pytest.approx([0.4, 0.4])
    assert plot.layout["yaxis"]["range"][1] > sure.high
    shade = trace(plot, "dominated")
    assert min(shade["y"]) == plot.layout["yaxis"]["range"][0]


def test_systems_on_the_frontier_and_pinned_ones_have_names_and_no_two_meet() -> None:
    dataset = scored_dataset()
    cost(score(dataset, "far from the others", ndcg=0.9), 1e4)
    for number in range(3):
        cost(score(dataset, f"system with a name {number}", ndcg=0.5 + number / 1e4), 10.0 + number / 100)
    dominated = score(dataset, "dominated", ndcg=0.4)
    cost(dominated, 20.0)
    for query, number in (("", 4), (f"&pin={dominated.system.slug}", 5)):
        plot = drawn("pareto", f"dataset={dataset.slug}{query}")
        beside = [text for one in plot.data for text in one.get("text", []) if text]
        off = [each["text"] for each in plot.layout["annotations"]]
        assert off, "not all of them have a place beside their points"
        assert len({*beside, *off}) == len(beside) + len(off) == number
        assert ("dominated" in beside + off) is bool(query)
    assert "Only systems on the line and pinned ones have names." in plot.caption


def test_an_axis_without_points_gives_way_to_one_with_them_but_not_where_it_is_asked_for(client: Client) -> None:
    dataset, paper = scored_dataset(), make_source("paper")
    sized = {"name": "index size", "value": 7.0, "unit": "GiB"}
    report(dataset, paper, "theirs", ndcg=0.4, figures=[sized])
    report(dataset, paper, "unsized", ndcg=0.4)
    record_boards()
    assert drawn("pareto", f"dataset={dataset.slug}").chosen == {"x": "index"}
    assert '<option value="index" selected>' in client.get(f"/figures/pareto/?dataset={dataset.slug}").content.decode()
    assert not drawn("pareto", f"dataset={dataset.slug}&x=latency").data


def test_titles_name_the_baseline_of_the_board(board: Dataset, client: Client) -> None:
    assert ">Which systems are better than BM25?<" in client.get(f"/datasets/{board.slug}/").content.decode()
    found = client.get(f"/figures/deltas.json?dataset={board.slug}").json()
    finding = "2 of 4 tested systems are significantly better than BM25"
    assert found["title"] == finding, "of a downloaded picture"
    assert found["caption"].startswith(f"{finding}. Difference in nDCG@10 ")
    own_page = client.get(f"/figures/deltas/?dataset={board.slug}").content.decode()
    assert finding + ". Difference in" in own_page
    assert "Which systems are better than BM25?" in own_page
    assert "Which systems are better than the baseline?" in client.get("/figures/").content.decode()


def test_a_system_with_results_on_two_datasets_has_its_differences_drawn(client: Client) -> None:
    system, bm25 = make_system("ours"), make_system("BM25")
    slug = f"/systems/{system.slug}/"
    for number, name in enumerate(("First", "Second")):
        dataset = scored_dataset(name=name)
        score(dataset, bm25, baseline=True, ndcg=0.4)
        score(dataset, system, ndcg=0.3 + number / 2)
        page = client.get(slug).content.decode()
        assert ('class="forest"' in page) is (number == 1)
    assert page.count('class="forest-name"') == 2
    assert re.findall(r">([+−][\d.]+)</text>", page) == ["+0.400", "−0.100"], "the largest difference first"


def test_approximate_indexes_are_drawn_by_recall_and_throughput(client: Client) -> None:
    dataset = scored_dataset()
    for number, recall in enumerate((0.8, 0.95, None)):
        entry = score(dataset, make_system(f"hnsw {number}", architecture="dense"), ndcg=0.5)
        cost(entry, 2.0, queries_per_second=1000.0 / (number + 1))
        if recall:
            Entry.objects.filter(pk=entry.pk).update(facts={"index_kind": "hnsw", "recall_against_exact": recall})
        record_boards()
        shown = 'id="figure-approximate-search"' in client.get(f"/datasets/{dataset.slug}/").content.decode()
        assert shown is (number >= 1)
    plot = drawn("approximate-search", f"dataset={dataset.slug}")
    assert [tuple(row) for row in plot.table.rows] == [("hnsw 0", 0.8, 1000.0), ("hnsw 1", 0.95, 500.0)]
