"""What a benchmark's board says: means over complete rows, coverage, and how systems compare with BM25."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from leaderboard.boards.model import Board
from leaderboard.boards.pages import benchmark_page
from leaderboard.boards.state import BoardState, Sort
from leaderboard.core.text import numbers
from leaderboard.importing.reported.tables import published_averages
from leaderboard.models import Benchmark, BenchmarkMember, Dataset
from tests.leaderboard.entries import (
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def benchmark_of(*datasets: Dataset, shown: tuple[Dataset, ...] = (), **fields: Any) -> Benchmark:
    """A benchmark; `shown` datasets do not count."""
    benchmark = Benchmark.objects.create(slug="all", name="All", **fields)
    for position, dataset in enumerate((*datasets, *shown)):
        BenchmarkMember.objects.create(
            benchmark=benchmark, dataset=dataset, position=position, counted=dataset not in shown
        )
    return benchmark


def board_of(slug: str = "all", **state: Any) -> Board:
    """The benchmark's board in a view."""
    page = benchmark_page(slug, BoardState(**state))
    assert page is not None
    return page.board


def values(board: Board, system: str) -> dict[str, Any]:
    """Column → value of one system."""
    return board.exported(next(row for row in board.rows if row.entry.system == system))


def test_a_mean_is_given_only_to_rows_with_every_counted_dataset(client: Client) -> None:
    first, second, third = scored_dataset(), scored_dataset(), scored_dataset()
    benchmark_of(first, second, shown=(third,))
    complete, partial = make_system("complete"), make_system("partial")
    for dataset in (first, second):
        score(dataset, complete, ndcg=0.4)
    score(first, partial, ndcg=0.9)
    score(third, partial, ndcg=0.9)
    board = board_of()
    assert (values(board, "complete")["mean"], values(board, "complete")["coverage"]) == (0.4, "2/2")
    assert (values(board, "partial")["mean"], values(board, "partial")["coverage"]) == (None, "1/2")
    assert [row.rank_label for row in board.rows] == ["1", ""]
    assert values(board, "partial")[third.slug] == 0.9
    page = client.get("/benchmarks/all/").content.decode()
    assert 'id="by-coverage"' not in page, "the overview has the coverage where it is incomplete"
    assert "1/2 datasets</span></small>" in page
    assert "2/2 datasets" not in page
    assert "css/whiskers.css" in page


@pytest.mark.parametrize(("count", "shows_datasets"), [(12, True), (13, False)])
def test_an_overview_shows_the_scores_of_up_to_twelve_datasets(
    client: Client, count: int, *, shows_datasets: bool
) -> None:
    datasets = [scored_dataset(name=f"All: topic {number}") for number in range(count)]
    benchmark_of(*datasets)
    for dataset in datasets:
        score(dataset, "BM25", baseline=True, ndcg=0.2)
        score(dataset, "system", ndcg=0.4)
    page = client.get("/benchmarks/all/").content.decode()
    keys = re.findall(r'id="by-([^"]+)"', page)
    assert [dataset.slug in keys for dataset in datasets] == [shows_datasets] * count
    assert ("borda" in keys) != shows_datasets, "there is no room for both"
    assert (">topic 0</a>" in page) == shows_datasets, "without the name of the benchmark"
    every_column = client.get("/benchmarks/all/?columns=all").content.decode()
    narrow = re.findall(r'<th scope="col" class="[^"]*is-dataset[^"]*"[^>]*>\s*<a [^>]*id="by-([^"]+)"', every_column)
    assert narrow == [dataset.slug for dataset in datasets]


def test_rows_below_the_name_of_their_source_do_not_repeat_it(client: Client) -> None:
    dataset = scored_dataset()
    for paper in ("Ada", "Bob"):
        report(dataset, make_source(paper), f"{paper}'s model", ndcg=0.5)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    heads = re.findall(r"Reported by ([^:<]+): ranked separately", page)
    assert len(heads) == 2
    details = re.findall(r'<th scope="row" class="name">.*?<small>(.*?)</small>', page)
    assert not [text for text in details if "reported" in text or any(head in text for head in heads)]
    pin = re.findall(r'name="pin" value="([^"]+)"', page)[0]
    pinned = client.get(f"/datasets/{dataset.slug}/?pin={pin}").content.decode()
    assert "Lovelace" in re.findall(r'<tr class="is-pinned.*?</tr>', pinned, re.DOTALL)[0]


def test_average_and_wins_are_against_the_baseline_of_the_same_group() -> None:
    first, second, third = scored_dataset(), scored_dataset(), scored_dataset()
    benchmark_of(first, second, third)
    bm25, system, paper = make_system("BM25"), make_system("system"), make_source("paper")
    for dataset, base, value in ((first, 0.2, 0.4), (second, 0.4, 0.4), (third, 0.6, 0.5)):
        score(dataset, bm25, baseline=True, ndcg=base)
        score(dataset, system, ndcg=value)
        report(dataset, paper, "paper's BM25", baseline=True, ndcg=0.01)
    board = board_of()
    assert values(board, "system")["wins"] == "1/1/1"
    assert values(board, "system")["average-relative"] == pytest.approx(1.3 / 1.2 - 1)
    assert values(board, "BM25")["average-relative"] == 0


def test_stale_results_are_not_part_of_a_benchmark() -> None:
    dataset, other = scored_dataset(), scored_dataset()
    benchmark_of(dataset, other)
    system = make_system("system")
    score(dataset, system, ndcg=0.9)
    renew_judgements(dataset)
    score(other, system, ndcg=0.5)
    assert values(board_of(), "system")["coverage"] == "1/2"


def test_a_later_result_of_the_same_system_and_configuration_replaces_the_earlier() -> None:
    dataset, other = scored_dataset(), scored_dataset()
    benchmark_of(dataset, other)
    system = make_system("system")
    for value in (0.2, 0.7):
        score(dataset, system, ndcg=value)
    board = board_of()
    assert len(board.rows) == 1
    assert values(board, "system")[dataset.slug] == 0.7


def test_a_stand_in_measure_is_used_and_named_in_the_cell(client: Client) -> None:
    usual, special = scored_dataset(), scored_dataset(measures=["nDCG@10", "R_cap@100"])
    benchmark = benchmark_of(usual, special)
    benchmark.members.filter(dataset=special).update(stand_ins={"R@100": "R_cap@100"})
    system = make_system("system")
    score(usual, system, recall=0.4)
    score(special, system, **{"R_cap@100": 0.8})
    board = board_of(measure="R@100")
    assert values(board, "system")["mean"] == pytest.approx(0.6)
    page = client.get("/benchmarks/all/", {"measure": "R@100"}).content.decode()
    assert "<i>R_cap@100</i>" in page


def test_reported_beir_has_the_papers_means_and_leaves_ms_marco_out() -> None:
    load_reported()
    board = board_of("beir")
    assert len(board.rows) == 10
    assert values(board, "BM25")["mean"] == pytest.approx(0.4234, abs=5e-5)
    assert values(board, "ColBERT")["coverage"] == "18/18"
    assert values(board, "BM25+CE")["wins"] == "16/0/2"
    assert values(board, "BM25+CE")["msmarco"] == 0.413
    recall = board_of("beir", measure="R@100")
    assert values(recall, "BM25")["trec-covid"] == 0.498


def test_the_average_relative_to_bm25_is_the_reading_closest_to_what_beir_prints() -> None:
    load_reported()
    board = board_of("beir")
    over_all = published_averages("beir-2021", "nDCG@10")
    printed = {system: each.average for system, each in over_all.items() if each.average is not None}
    ours, other = [], []
    bm25 = values(board, "BM25")
    counted = [key for key in bm25 if Dataset.objects.filter(slug=key).exists() and key != "msmarco"]
    for system, expected in printed.items():
        row = values(board, system)
        ours.append(abs(100 * row["average-relative"] - expected))
        relatives = [numbers.relative_difference(row[key], bm25[key]) or 0.0 for key in counted]
        other.append(abs(100 * sum(relatives) / len(relatives) - expected))
    assert max(ours) < 3.8
    assert sum(ours) / len(ours) < 1.2
    assert max(ours) < max(other)
    assert sum(ours) < sum(other)


def test_efficiency_comes_from_one_named_dataset() -> None:
    load_reported()
    board = board_of("beir", sorts=(Sort("latency-cpu"),))
    assert [row.entry.system for row in board.rows[:2]] == ["BM25", "SPARTA"]
    assert any(column.group == "Efficiency, DBPedia" for column in board.columns)
    assert board.rows[-1].value("latency-cpu") is None


def test_a_benchmark_of_one_counted_dataset_needs_no_mean() -> None:
    load_reported()
    board = board_of("msmarco-cost")
    assert "mean" not in [column.key for column in board.columns]
    assert board.measures == ["Success@10"]
    assert {row.rank_label for row in board.rows} >= {"r 1", "r 3"}
    dear = next(row for row in board.rows if row.entry.system == "ColBERTv2-L" and "p3.8x1" in row.entry.configuration)
    assert (dear.value("cost"), dear["cost"].text) == (0.18724, "0.187")
    assert dear["cost"].title == "printed as 187.24 USD per million queries"
    assert "cost" in [column.key for column in board.shown]
