"""Findings in titles, sizes of marks, ranks, dates, and folded figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.figures.drawing import BEST, GREY, TIED
from leaderboard.figures.pareto import MAX_MARK, MIN_MARK, SMALL_MARK
from leaderboard.figures.registry import FIGURES
from leaderboard.models import Entry
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import (
    cost,
    date_results,
    make_source,
    make_system,
    record_boards,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.entries_by_query import make_board, score_queries, spread
from tests.leaderboard.figure_checks import column, drawn, trace
from tests.leaderboard.figures.test_figures_boards import benchmark_of
from tests.leaderboard.results.test_profile_pages import collection, look
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def timed(*systems: tuple[str, float, float]) -> str:
    """Create a dataset with systems of these names, scores, and latencies, and return its slug."""
    dataset = scored_dataset()
    for name, value, latency in systems:
        cost(score(dataset, name, ndcg=value), latency)
    return dataset.slug


def test_every_title_is_a_question_and_the_figure_of_sizes_is_gone(client: Client) -> None:
    load_reported()
    assert all(figure.title.endswith("?") for figure in FIGURES.values())
    assert client.get("/figures/tasks/").status_code == client.get("/figures/tasks.json").status_code == 404
    assert "figure-tasks" not in client.get("/benchmarks/beir/").content.decode()


@pytest.mark.parametrize(
    ("systems", "finding"),
    [
        (
            (("slow", 0.6, 40.0), ("quick", 0.5, 4.0), ("beaten", 0.4, 5.0)),
            "quick scores best under 20 ms among these 3 systems",
        ),
        (
            (("best", 0.6, 1.0), ("b", 0.5, 4.0), ("c", 0.4, 5.0)),
            "None of these 3 systems is better or faster than best",
        ),
        ((("best", 0.6, 40.0), ("b", 0.5, 4.0), ("c", 0.5, 5.0)), ""),
        ((("best", 0.6, 40.0), ("b", 0.5, 39.0), ("c", 0.4, 38.0)), ""),
        ((("best", 0.6, 40.0), ("b", 0.5, 4.0)), ""),
        ((("alone", 0.6, 40.0),), ""),
    ],
    ids=["limit", "dominant", "tie", "no limit", "two", "one"],
)
def test_the_title_of_costs_says_which_system_is_best_below_a_limit(
    client: Client, systems: tuple[tuple[str, float, float], ...], finding: str
) -> None:
    slug = timed(*systems)
    assert drawn("pareto", f"dataset={slug}").finding == finding
    title = client.get(f"/figures/pareto.json?dataset={slug}").json()["title"]
    assert title == finding or (title == "Which systems are best for their cost?" and not finding)
    assert title in client.get(f"/figures/pareto/?dataset={slug}").content.decode()
    assert drawn("pareto", f"dataset={slug}&x=index").finding == "", "only latencies"


def marks(plot: Any) -> dict[str, tuple[float, str]]:
    """Return the size and symbol of each point by name."""
    return {
        told[0]: (size, symbol)
        for one in plot.data
        if "customdata" in one
        for told, size, symbol in zip(one["customdata"], one["marker"]["size"], one["marker"]["symbol"], strict=True)
    }


def test_the_area_of_a_mark_is_the_size_of_the_model() -> None:
    dataset = scored_dataset()
    for number, (name, fields, figures) in enumerate(
        (
            ("large", {}, {"model_bytes": 400e6}),
            ("quarter", {}, {"model_bytes": 100e6}),
            ("estimated", {"parameter_count": 50_000_000}, {"parameters": None}),
            ("unknown", {}, {"parameters": None}),
            ("BM25", {"architecture": "lexical"}, {"parameters": None}),
        )
    ):
        cost(score(dataset, make_system(name, **fields), ndcg=0.5 + number / 100), 10.0 + number, **figures)
    plot = drawn("pareto", f"dataset={dataset.slug}")
    found = marks(plot)
    assert found["large"] == (MAX_MARK, "diamond")
    assert found["quarter"] == (MAX_MARK / 2, "diamond")
    assert found["estimated"] == (pytest.approx(MAX_MARK * math.sqrt(0.5), abs=0.1), "diamond-open-dot")
    assert found["unknown"] == (SMALL_MARK, "diamond-open")
    assert found["BM25"] == (MIN_MARK, "circle")
    assert dict(zip(column(plot, "System"), column(plot, "Model size"), strict=True)) == {
        "large": "400 MB",
        "quarter": "100 MB",
        "estimated": "≈ 200 MB",
        "unknown": None,
        "BM25": "0 MB",
    }
    assert "the largest has 400 MB" in plot.caption
    narrow = [one["meta"]["narrow"]["marker"]["size"] for one in plot.data if "customdata" in one]
    assert max(max(sizes) for sizes in narrow) < MAX_MARK
    assert set(column(plot, "Provenance")) == {"scored"}


def test_without_model_sizes_all_marks_are_usual_ones() -> None:
    load_reported()
    plot = drawn("pareto", "benchmark=beir")
    assert {size for size, _symbol in marks(plot).values()} == {11.0, 15.0}, "15: the baseline"
    assert "area of a mark" not in plot.caption
    assert plot.finding == "docT5query scores best under 5,000 ms among these 9 systems"


def test_ranks_are_marks_on_lines_over_the_ranks_that_tests_leave_open(client: Client) -> None:
    dataset = make_board()
    assert drawn("rank-ranges", f"dataset={dataset.slug}").data == []
    assert 'id="figure-rank-ranges"' not in client.get(f"/datasets/{dataset.slug}/").content.decode()
    compute_certainty(dataset)
    plot = drawn("rank-ranges", f"dataset={dataset.slug}&sort=nDCG@10:asc")
    assert [tuple(row[:2]) + tuple(row[3:]) for row in plot.table.rows] == [
        ("First", 1, "1–2", None),
        ("Second", 2, "1–2", "no"),
        ("BM25", 3, "3", "yes"),
        ("Last", 4, "4", "yes"),
    ]
    lines = plot.data[0]
    assert lines["opacity"] == 0.7, "the legend has the opacity of a trace, and not that of its marks"
    assert plot.layout["yaxis"]["dtick"] == 1, "no name is left out"
    assert lines["x"] == [1, 2, None, 1, 2, None, 3, 3, None, 4, 4, None]
    assert lines["y"][::3] == column(plot, "System")
    roles = {"best": "First", "not separable from best": "Second", "baseline": "BM25", "other": "Last"}
    assert {role: trace(plot, role)["y"] for role in roles} == {role: [name] for role, name in roles.items()}
    marks = {role: (trace(plot, role)["marker"]["color"], trace(plot, role)["marker"]["symbol"]) for role in roles}
    assert marks == {
        "best": (BEST, "circle"),
        "not separable from best": (TIED, "diamond"),
        "baseline": (GREY, "square"),
        "other": (GREY, "circle"),
    }, "as on the first screen of the board; green and orange are for significant differences"
    assert plot.finding == "1 system cannot be separated from First"
    assert drawn("rank-ranges", f"dataset={dataset.slug}&architecture=dense").finding == ""
    assert 'id="figure-rank-ranges"' in client.get(f"/datasets/{dataset.slug}/?columns=ranks").content.decode()


def test_ranks_say_that_a_best_system_is_alone() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "BM25", spread(0.3, 1), baseline=True)
    score_queries(dataset, "Best", spread(0.7, 2))
    compute_certainty(dataset)
    plot = drawn("rank-ranges", f"dataset={dataset.slug}")
    assert plot.finding == "Every other system can be separated from Best"


def test_ranks_over_hidden_judgments_have_no_ranges() -> None:
    hidden = scored_dataset(hidden=True)
    for name, value in (("BM25", 0.2), ("best", 0.9), ("near", 0.899)):
        score(hidden, name, baseline=name == "BM25", ndcg=value)
    plot = drawn("rank-ranges", f"dataset={hidden.slug}")
    assert "Possible ranks" not in plot.table.heads
    assert {one["mode"] for one in plot.data} == {"markers"}, "no lines"
    assert column(plot, "Separable from the best") == [None, "no", "yes"]
    assert "not published" in plot.caption


def test_reported_systems_of_beir_are_placed_in_their_own_years(client: Client) -> None:
    load_reported()
    plot = drawn("progress", "benchmark=beir")
    dates = dict(zip(column(plot, "System"), column(plot, "Date"), strict=True))
    assert (dates["BM25"], dates["docT5query"], dates["ColBERT"], dates["BM25+CE"]) == ("2009", "2019", "2020", "2021")
    assert trace(plot, "Best so far (reported)")["x"] == ["2009-07-01", "2019-07-01", "2021-07-01", "2021-07-01"]
    assert plot.finding == "BM25+CE has led since 2021"
    for page in ("/benchmarks/beir/", "/datasets/nfcorpus/", "/datasets/msmarco/"):
        assert 'id="figure-progress"' in client.get(page).content.decode(), page


def test_kinds_that_are_ranked_separately_are_not_joined_over_time() -> None:
    dataset = scored_dataset()
    for number, name in enumerate(("one", "two", "three")):
        score(dataset, name, ndcg=0.5 + number / 10)
    date_results("2024-01-05", "2024-02-05", "2025-01-05")
    assert drawn("progress", f"dataset={dataset.slug}").finding == "three has led since 2025-01-05"
    for value in (0.8, 0.9):
        score(dataset, make_system(f"paid {value}", closed_api=True), ndcg=value)
    date_results("2024-01-05", "2024-02-05", "2025-01-05")
    report(dataset, make_source("paper"), "printed", ndcg=0.99)
    plot = drawn("progress", f"dataset={dataset.slug}")
    assert max(trace(plot, "Best so far (scored by Runboard)")["y"]) == pytest.approx(0.7)
    assert trace(plot, "Best so far (closed APIs)")["y"][0] == pytest.approx(0.8)
    assert trace(plot, "Reported, by year")["y"] == [0.99]
    assert plot.finding == "", "kinds are not compared"


def test_no_finding_for_systems_with_equal_scores_or_wins() -> None:
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    benchmark_of(first, second)
    systems = {name: make_system(name) for name in ("BM25", "a", "b")}
    for dataset in (first, second):
        for name, system in systems.items():
            score(dataset, system, baseline=name == "BM25", ndcg=0.2 if name == "BM25" else 0.5)
    date_results("2024-01-05", "2024-02-05", "2025-01-05")
    assert drawn("progress", f"dataset={first.slug}").finding == ""
    assert drawn("wins", "benchmark=all").finding == ""
    Entry.objects.filter(system__name="b", dataset=second).update(visibility=Entry.Visibility.WITHDRAWN)
    record_boards()
    assert drawn("wins", "benchmark=all").finding == "a scores better than BM25 on 2 of 2 datasets"


def test_figures_of_lengths_and_overlap_are_folded(client: Client, tmp_path: Path) -> None:
    for slug in ("one", "two"):
        dataset = collection(tmp_path, slug)
        look(dataset)
        score(dataset, "BM25", baseline=True, ndcg=0.3)
        for number in range(3):
            score(dataset, f"system {number} on {slug}", ndcg=0.5 + number / 10)
    page = client.get("/datasets/one/").content.decode()
    shown, _, rest = page.partition('<details class="more-figures is-open-if-wide">')
    wide, _, folded = rest.partition('id="about"')[0].partition('<details class="more-figures">')
    for slug in ("document-lengths", "relevance-by-length"):
        assert page.count(f'id="figure-{slug}"') == folded.count(f'id="figure-{slug}"') == 1
    assert "<details open" not in wide + folded
    assert [part.count('class="figure"') for part in (shown, folded)] == [2, 2], "phones show the first two"
    assert wide.count('class="figure"') > 0
    boards = client.get("/datasets/").content.decode()
    assert boards.index('<details class="section more-figures">') < boards.index('id="figure-overlap"')
