"""How sure the cells of a benchmark's board are: intervals and tests on hover, a mark where a difference is real."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from leaderboard.boards.benchmark.significance import store_tests
from leaderboard.boards.model import Board
from leaderboard.boards.pages import analyse_benchmarks
from leaderboard.models import Dataset
from leaderboard.results.board_rows.revisions import record_present
from leaderboard.results.significance.statements import read_certainty
from tests.leaderboard.boards.test_boards_benchmark import benchmark_of, board_of
from tests.leaderboard.boards.test_permalinks import pass_time, permalink_of
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import make_source, make_system, report, score_seeds, scored_dataset
from tests.leaderboard.entries_by_query import row_of, score_queries, spread

pytestmark = pytest.mark.django_db


@pytest.fixture(name="pair")
def _pair() -> tuple[Dataset, Dataset]:
    """Two datasets in a benchmark; on the first there is something to test, on the second nothing is found yet."""
    first, second = scored_dataset(measures=["nDCG@10"]), scored_dataset(measures=["nDCG@10"])
    bm25, better, same = make_system("BM25"), make_system("Better"), make_system("Same")
    for dataset in (first, second):
        score_queries(dataset, "BM25", spread(0.4, 1), baseline=True, system=bm25)
        score_queries(dataset, "Better", spread(0.6, 2), system=better)
        score_queries(dataset, "Same", spread(0.401, 3), system=same)
    benchmark_of(first, second)
    compute_certainty(first)
    return first, second


def cell(board: Board, system: str, dataset: Dataset) -> tuple[str, str]:
    """The mark and the title of a value."""
    found = row_of(board, system)[dataset.slug]
    return found.mark, found.title


def _spreads(board: Board) -> dict[str, str]:
    return {key: found.spread for key, found in row_of(board, "seeds").cells.items() if found.spread}


@pytest.mark.parametrize("view", ["", "delta", "relative"])
def test_a_value_says_its_interval_on_hover_and_a_mark_says_that_its_difference_is_real(
    pair: tuple[Dataset, Dataset], view: str
) -> None:
    board, (first, second) = board_of(view=view), pair
    found = read_certainty([first.pk])[first.pk].for_measure("nDCG@10")
    assert found is not None
    (low, high) = next((one.low, one.high) for one in found.entries.values() if one.rank_low == 1)
    mark, title = cell(board, "Better", first)
    assert mark == "*"
    assert title == (f"95% interval {low:.4f} to {high:.4f}; rank 1; p <0.001 vs BM25, <0.001 corrected (Holm)")
    mark, title = cell(board, "Same", first)
    assert mark == ""
    assert "; rank 2–3; p 0." in title
    assert cell(board, "BM25", first)[1].endswith("; rank 2–3")
    assert cell(board, "Better", second) == ("", "")
    assert any(note.startswith("* differs from BM25: p < 0.05") for note in board.notes)


def test_ranks_have_no_mark(pair: tuple[Dataset, Dataset]) -> None:
    board = board_of(view="rank")
    mark, title = cell(board, "Better", pair[0])
    assert (mark, title[:12]) == ("", "95% interval")
    assert not any(note.startswith("*") for note in board.notes)


def test_the_page_and_its_exports_carry_mark_and_figures(client: Client, pair: tuple[Dataset, Dataset]) -> None:
    page = client.get("/benchmarks/all/?view=delta").content.decode()
    assert "<sup>*</sup></td>" in page
    assert 'title="95% interval 0.' in page
    assert "not over datasets" in page
    data = client.get("/benchmarks/all/board.json").json()
    row = next(row for row in data["rows"] if row["system"] == "Better")
    assert row["marks"] == {pair[0].slug: "*"}
    assert row["certainty_by_dataset"][pair[0].slug]["rank_high"] == 1
    assert row["certainty_by_dataset"][pair[0].slug]["p_baseline_corrected"] < 0.05
    assert list(row["certainty_by_dataset"]) == [pair[0].slug]
    assert r"$^{*}$" in client.get("/benchmarks/all/board.tex").content.decode()
    assert r"\* differs from BM25: p \< 0.05" in client.get("/benchmarks/all/board.md").content.decode()


def test_a_permalink_carries_them_as_the_board_did(client: Client, pair: tuple[Dataset, Dataset]) -> None:
    record_present()
    store_tests(pair[0], analyse_benchmarks(pair[0]))
    pass_time()
    link = permalink_of(client, "/benchmarks/all/")
    before = client.get("/benchmarks/all/board.json").json()
    assert before["certainty"] is not None
    assert client.get(f"{link}board.json").json() == before
    score_queries(pair[0], "Newcomer", spread(0.9, 9))
    then = client.get(f"{link}board.json").json()
    assert then == before
    assert "<sup>*</sup></td>" in client.get(f"{link}?view=delta").content.decode()


def test_nothing_is_said_of_reported_figures_nor_over_hidden_judgements(
    pair: tuple[Dataset, Dataset],
) -> None:
    first, _ = pair
    report(first, make_source("paper"), "printed", ndcg=0.9)
    assert cell(board_of(), "printed", first) == ("", "")
    first.hidden = True
    first.save()
    assert cell(board_of(), "Better", first) == ("", "")


def test_where_the_board_has_changed_only_own_facts_are_said(pair: tuple[Dataset, Dataset]) -> None:
    score_queries(pair[0], "Newcomer", spread(0.5, 9))
    mark, title = cell(board_of(), "Better", pair[0])
    assert mark == ""
    assert title.startswith("95% interval")
    assert title.endswith("; p <0.001 vs BM25")


def test_it_takes_one_query_more_where_it_is_known(
    pair: tuple[Dataset, Dataset], django_assert_num_queries: Any
) -> None:
    board_of()
    with django_assert_num_queries(3):
        board_of()


def test_a_seed_set_shows_its_deviation_beside_the_score_alone(pair: tuple[Dataset, Dataset]) -> None:
    score_seeds(pair[1], "seeds", {"ndcg": 0.30}, {"ndcg": 0.34})
    board = board_of()
    assert _spreads(board) == {pair[1].slug: "± 0.0283 (2)"}
    assert any(note.startswith("±: sample standard deviation (n − 1) over seeds") for note in board.notes)
    assert _spreads(board_of(view="delta")) == {}
    assert "± 0.028 (2)" in Client().get("/benchmarks/all/").content.decode()
