"""Each figure of a board against values worked out by hand, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from leaderboard.figures.drawing import shorten
from leaderboard.figures.pareto import REPORTED_NAMES, ModelSize, reported_figures
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry
from tests.leaderboard.entries import (
    cost,
    date_results,
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.figure_checks import column, drawn, trace
from tests.pages import clear_page_cache
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def benchmark_of(*datasets: Dataset) -> None:
    """A benchmark, `all`, of these datasets."""
    benchmark = Benchmark.objects.create(slug="all", name="All")
    for position, dataset in enumerate(datasets):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)


def points(plot: Any) -> dict[str, tuple[float, float]]:
    """Every marker's place by what hovering calls it."""
    return {
        told[0]: (x, y)
        for drawn_trace in plot.data
        for told, x, y in zip(drawn_trace.get("customdata", []), drawn_trace["x"], drawn_trace["y"], strict=False)
    }


def test_reported_costs_are_of_one_source_and_machine_and_the_rest_is_named() -> None:
    load_reported()
    plot = drawn("pareto", "benchmark=beir")
    assert points(plot)["TAS-B"] == (125.0, pytest.approx(0.415, abs=1e-3))
    assert "CPU" in plot.caption
    assert "Thakur et al. 2021" in plot.caption
    assert any("ColBERT" in note for note in plot.notes)
    on_frontier = {row[0] for row in plot.table.rows if row[3] == "yes"}
    assert on_frontier == {"BM25", "docT5query", "BM25+CE"}
    assert trace(plot, "Pareto frontier")["x"] == [20.0, 30.0, 6100.0]
    assert points(drawn("pareto", "benchmark=beir&device=gpu"))["ColBERT"][0] == 350.0
    assert points(drawn("pareto", "benchmark=beir&x=index"))["ColBERT"][0] == 20.0
    assert dict(zip(column(plot, "System"), column(plot, "Latency (ms)"), strict=True))["TAS-B"] == 125.0


def test_long_names_differ_and_large_models_are_in_gigabytes() -> None:
    models = [f"Snowflake/snowflake-arctic-embed-{size}-v2.0-long" for size in ("s", "m", "l")]
    assert len({shorten(name) for name in models}) == len(models)
    assert shorten("Snowflake/snowflake-arctic-embed-m-v1.5") == "snowflake-arctic-embed-m-v1.5"
    assert ModelSize(55_962.3, is_estimated=True).text == "≈ 56 GB"


def test_a_reported_board_draws_costs_of_the_publication_and_machine_that_most_points_are_known_of() -> None:
    load_reported()
    drew = 0
    for subject, slug, datasets, source in _subjects():
        scored = _scored(f"/api/v1/{subject}s/{slug}/board/")
        for axis in REPORTED_NAMES:
            settings = reported_figures(axis, datasets, source).values()
            most = max((len(scored & figures.keys()) for figures in settings), default=0)
            plot = drawn("pareto", f"{subject}={slug}&x={axis}")
            assert len(plot.table.rows) == most, f"{axis} of {slug}: {plot.caption}"
            drew += most > 0
    assert drew >= 8
    assert len(drawn("pareto", "benchmark=msmarco-efficiency").table.rows) >= 3


def _subjects() -> Iterator[tuple[str, str, list[int], int | None]]:
    """Every page with costs that publications state: its kind and slug, its datasets, and whose figures it takes."""
    with_figures = set(Entry.objects.exclude(figures=[]).values_list("dataset_id", flat=True))
    for dataset in Dataset.objects.filter(pk__in=with_figures):
        yield "dataset", dataset.slug, [dataset.pk], None
    for benchmark in Benchmark.objects.filter(members__dataset__in=with_figures).distinct():
        datasets = list(benchmark.members.values_list("dataset_id", flat=True))
        yield "benchmark", benchmark.slug, datasets, benchmark.source_id


def _scored(board_url: str) -> set[tuple[str, str]]:
    """The rows of a board, as the API gives it, that have what it ranks by: a mean, else its only dataset's value."""
    board = Client().get(board_url).json()
    keys = {column["key"] for column in board["columns"]}
    score = next(key for key in ("mean", board["measure"], "msmarco") if key in keys)
    return {(row["slug"], row["configuration"]) for row in board["rows"] if row["values"][score] is not None}


def test_doubtful_costs_are_never_drawn() -> None:
    load_reported()
    plot = drawn("pareto", "dataset=nq-open")
    assert "SEAL" not in column(plot, "System")


def test_what_was_measured_here_comes_from_the_machine_that_the_board_shows() -> None:
    dataset = scored_dataset()
    for name, value, latency in (("slow", 0.6, 40.0), ("quick", 0.5, 4.0), ("beaten", 0.4, 50.0)):
        cost(score(dataset, name, ndcg=value), latency)
    score(dataset, "unmeasured", ndcg=0.9)
    plot = drawn("pareto", f"dataset={dataset.slug}")
    assert points(plot) == {"slow": (40.0, 0.6), "quick": (4.0, 0.5), "beaten": (50.0, 0.4)}
    assert [row[3] for row in plot.table.rows] == ["yes", "yes", "no"]
    assert any("unmeasured" in note for note in plot.notes)
    assert "Measured by Runboard" in plot.caption


def test_differences_are_to_the_baseline_of_the_same_source() -> None:
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    benchmark_of(first, second)
    bm25, system, paper = make_system("BM25"), make_system("system"), make_source("paper")
    for dataset, base, value in ((first, 0.2, 0.5), (second, 0.4, 0.3)):
        score(dataset, bm25, baseline=True, ndcg=base)
        score(dataset, system, ndcg=value)
        report(dataset, paper, "paper's BM25", baseline=True, ndcg=0.01)
    plot = drawn("deltas", f"benchmark=all&system={system.slug}")
    assert [tuple(row) for row in plot.table.rows] == [
        ("First", pytest.approx(0.3), "not tested"),
        ("Second", pytest.approx(-0.1), "not tested"),
    ]
    assert plot.data[0]["x"] == column(plot, "system")
    assert plot.data[0]["text"] == ["+0.300", "−0.100"]
    assert column(drawn("deltas", f"dataset={first.slug}"), "System") == ["system"]
    means = drawn("deltas", "benchmark=all")
    assert [row[:2] for row in means.table.rows] == [("system", pytest.approx(0.1))]
    assert means.notes == ["Pin systems on the board to show their differences on each dataset."]


def test_stale_results_are_in_no_figure() -> None:
    dataset = scored_dataset()
    score(dataset, "stale", ndcg=0.9)
    renew_judgements(dataset)
    for name in ("present", "later", "last"):
        score(dataset, name, ndcg=0.5)
    date_results("2024-01-04", "2024-01-05", "2024-01-06", "2024-01-07")
    plot = drawn("progress", f"dataset={dataset.slug}")
    assert column(plot, "System") == ["present", "later", "last"]


def test_progress_is_on_no_page_until_results_came_on_three_dates(client: Client) -> None:
    dataset = scored_dataset()
    benchmark_of(dataset)
    for name in ("one", "two", "three", "four"):
        score(dataset, name, ndcg=0.5)
    for days, shown in (
        (("2024-01-05",), False),
        (("2024-01-05", "2024-02-05"), False),
        (
            ("2024-01-05", "2024-02-05", "2025-01-05"),
            True,
        ),
    ):
        date_results(*days)
        for page in (f"dataset={dataset.slug}", "benchmark=all"):
            kind, slug = page.split("=")
            clear_page_cache()
            assert ('id="figure-progress"' in client.get(f"/{kind}s/{slug}/").content.decode()) is shown
            plot = drawn("progress", page)
            assert bool(plot.data) is shown
            assert shown or f"have {len(days)}." in plot.caption


def test_what_stands_behind_a_closed_interface_has_a_date_too() -> None:
    dataset = scored_dataset()
    for name in ("open", "ours"):
        score(dataset, name, ndcg=0.5)
    score(dataset, make_system("paid", closed_api=True), ndcg=0.6)
    date_results("2024-01-05", "2024-02-05", "2025-01-05")
    assert column(drawn("progress", f"dataset={dataset.slug}"), "System") == ["open", "ours", "paid"]


def test_progress_tells_the_best_when_it_came_and_years_from_days() -> None:
    dataset = scored_dataset()
    for day, name, value in (
        ("2024-01-05", "first", 0.4),
        ("2024-02-05", "worse", 0.3),
        ("2025-01-05", "best", 0.5),
    ):
        entry = score(dataset, name, ndcg=value)
        Entry.objects.filter(pk=entry.pk).update(published_at=f"{day}T12:00:00Z")
    report(dataset, make_source("paper"), "printed", ndcg=0.9)
    plot = drawn("progress", f"dataset={dataset.slug}")
    assert [(row[0], row[1], row[3]) for row in plot.table.rows] == [
        ("first", "2024-01-05", "yes"),
        ("worse", "2024-02-05", "no"),
        ("best", "2025-01-05", "yes"),
        ("printed (r)", "2020", "yes"),
    ]
    line = trace(plot, "Best so far (scored by Runboard)")
    assert line["y"] == [0.4, 0.5, 0.5]
    assert line["line"]["shape"] == "hv"


def test_in_domain_is_against_the_mean_over_the_datasets_that_nobody_saw() -> None:
    load_reported()
    plot = drawn("in-domain", "benchmark=beir")
    assert points(plot)["ColBERT"] == (0.401, 0.431)
    trained = dict(zip(column(plot, "System"), column(plot, "Trained on MS MARCO"), strict=True))
    assert (trained["BM25"], trained["ColBERT"]) == ("no", "yes")
    assert any("Kendall" in note for note in plot.notes)
    assert not drawn("in-domain", "benchmark=beir&zero-shot=1").data


def test_head_to_head_counts_datasets_and_both_sides_agree() -> None:
    load_reported()
    plot = drawn("head-to-head", "benchmark=beir")
    won = {row[0]: dict(zip(plot.table.heads[1:], row[1:], strict=True)) for row in plot.table.rows}
    assert (won["docT5query"]["BM25"], won["BM25"]["docT5query"]) == ("12–6", "6–12")
    assert won["BM25"]["BM25"] is None
    cells = plot.data[0]
    shares = {tuple(told[:2]): share for told, share in zip(cells["customdata"], cells["marker"]["color"], strict=True)}
    assert shares["docT5query", "BM25"] + shares["BM25", "docT5query"] == pytest.approx(1)
    assert len(shares) == len(plot.table.rows) * (len(plot.table.rows) - 1)


def test_means_by_task_need_all_datasets_of_the_task() -> None:
    whole, part, other = (scored_dataset(task=task) for task in ("search", "search", "news"))
    benchmark_of(whole, part, other)
    complete, partial = make_system("complete"), make_system("partial")
    for dataset, value in ((whole, 0.2), (part, 0.4), (other, 0.6)):
        score(dataset, complete, ndcg=value)
    score(whole, partial, ndcg=0.9)
    score(other, partial, ndcg=0.5)
    plot = drawn("means-by-task", "benchmark=all")
    rows = {row[0]: dict(zip(plot.table.heads, row, strict=True)) for row in plot.table.rows}
    assert (rows["search"]["complete"], rows["search"]["partial"]) == (pytest.approx(0.3), None)
    assert (rows["news"]["complete"], rows["search"]["Datasets"]) == (0.6, 2)


def test_figures_of_hidden_judgements_have_three_decimals_and_published_means_only() -> None:
    hidden, other = scored_dataset(hidden=True), scored_dataset(hidden=True)
    benchmark_of(hidden, other)
    bm25, system = make_system("BM25"), make_system("system")
    for dataset in (hidden, other):
        score(dataset, bm25, baseline=True, ndcg=0.123456)
        score(dataset, system, ndcg=0.234567)
    for slug in ("deltas", "progress", "head-to-head", "means-by-task", "wins"):
        plot = drawn(slug, "benchmark=all")
        numbers = [cell for row in plot.table.rows for cell in row if isinstance(cell, float)]
        assert all(number == round(number, 3) for number in numbers), slug
        texts = [text for row in plot.table.texts() for text in row]
        assert not any(len(text.partition(".")[2]) > 3 for text in texts), slug


def test_a_figure_that_compares_fewer_than_three_systems_is_left_out_and_named(client: Client) -> None:
    dataset = scored_dataset(slug="few")
    for number, name in enumerate(("BM25", "First")):
        cost(score(dataset, name, baseline=not number, ndcg=0.4 + number / 10), 1.0 + number)
    page = " ".join(client.get("/datasets/few/").content.decode().split())
    assert 'id="figure-deltas"' in page
    assert 'id="figure-pareto"' not in page
    omitted = page.partition("omitted-figures")[2].partition("</details>")[0]
    assert "figures are left out: their data are missing, too few, or not public </summary>" in omitted
    assert 'href="/figures/pareto/?dataset=few"> Which systems are best for their cost?</a>: too few values' in omitted
    crumbs = " ".join(client.get("/figures/deltas/?dataset=few").content.decode().split())
    assert f'<a href="/datasets/few/">{dataset.name}</a> › <a href="/datasets/few/#figures">Figures</a>' in crumbs
    cost(score(dataset, "Second", ndcg=0.6), 3.0)
    clear_page_cache()
    page = client.get("/datasets/few/").content.decode()
    assert page.index('id="figure-deltas"') < page.index('id="figure-pareto"')


def test_pages_without_figures_give_the_reason_and_fold_the_list(client: Client) -> None:
    for hidden, reason in ((True, "the judgments are hidden, and"), (False, "the rows shown have too few values.")):
        dataset = scored_dataset(hidden=hidden)
        score(dataset, "First", ndcg=0.4)
        page = " ".join(client.get(dataset.get_absolute_url()).content.decode().split())
        assert f"No figure can be drawn: {reason}" in page
        assert 'omitted-figures"> <summary>' in page


def test_systems_with_a_single_dataset_are_not_compared_over_a_benchmark(client: Client) -> None:
    datasets = [scored_dataset(name=name, task=name) for name in ("First", "Second")]
    benchmark_of(*datasets)
    paper = make_source("paper")
    for number, dataset in enumerate(datasets):
        report(dataset, paper, "BM25", baseline=True, ndcg=0.4)
        report(dataset, paper, "Dense", ndcg=0.5)
        report(dataset, paper, "Sparse", ndcg=0.3 + number / 2)
    for name in ("BM25", "a", "b", "c", "d"):
        score(datasets[0], name, baseline=name == "BM25", ndcg=0.6)
    assert column(drawn("head-to-head", "benchmark=all"), "Won–lost against") == ["Sparse", "Dense", "BM25"]
    wins = drawn("wins", "benchmark=all")
    assert column(wins, "System") == ["Dense", "Sparse"]
    assert wins.notes == ["Not shown (fewer than two datasets): a, b, c, d."]
    assert set(drawn("means-by-task", "benchmark=all").table.heads[2:]) == {"Dense", "Sparse", "BM25"}
    page = client.get("/benchmarks/all/").content.decode()
    assert all(f'id="figure-{name}"' in page for name in ("wins", "head-to-head", "means-by-task"))
    assert 'id="figure-means-by-domain"' not in page, "the datasets have one domain"
