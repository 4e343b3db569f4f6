"""What a dataset's board says: order, ranks, differences, and what may not be compared."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from evaluation.engines.index.term_search import K1, B
from leaderboard.boards.model import Board
from leaderboard.boards.pages import dataset_page
from leaderboard.boards.state import BoardState, Sort
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Benchmark, Dataset, Entry
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.visibility import withdraw_entries
from leaderboard.results.values import datasets_without_shares, judged_shares
from leaderboard.systems.baselines import BM25, configuration_system
from tests.leaderboard.entries import (
    evaluate,
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)

pytestmark = pytest.mark.django_db


def board_of(dataset: Dataset, **state: Any) -> Board:
    """The dataset's board in a view."""
    page = dataset_page(dataset.slug, BoardState(**state))
    assert page is not None
    return page.board


def names(board: Board) -> list[str]:
    """The systems, in order."""
    return [row.entry.system for row in board.rows]


def cell(board: Board, system: str, column: str) -> Any:
    """One value."""
    row = next(row for row in board.rows if row.entry.system == system)
    return row.value(column)


def ranks(board: Board) -> dict[str, str]:
    """System → rank as written."""
    return {row.entry.system: row.rank_label for row in board.rows}


def test_the_best_is_first_and_ties_share_a_rank_earlier_published_first() -> None:
    dataset = scored_dataset()
    for name, value in (("low", 0.1), ("first tie", 0.5), ("second tie", 0.5), ("best", 0.9)):
        score(dataset, name, ndcg=value)
    board = board_of(dataset)
    assert names(board) == ["best", "first tie", "second tie", "low"]
    assert ranks(board) == {"best": "1", "first tie": "2", "second tie": "2", "low": "4"}


def test_ties_keep_the_earlier_first_in_ascending_order_too() -> None:
    dataset = scored_dataset()
    for name, value in (("first tie", 0.5), ("second tie", 0.5), ("best", 0.9)):
        score(dataset, name, ndcg=value)
    board = board_of(dataset, sorts=(Sort("nDCG@10", "asc"),))
    assert names(board) == ["first tie", "second tie", "best"]
    assert ranks(board)["best"] == "1", "ranks do not turn around with the order"


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_missing_values_are_last_both_ways_and_unranked(order: str) -> None:
    dataset = scored_dataset()
    score(dataset, "without", ndcg=0.9)
    score(dataset, "zero", ndcg=0.1, recall=0.0)
    score(dataset, "some", ndcg=0.2, recall=0.4)
    board = board_of(dataset, sorts=(Sort("R@100", order),))
    assert names(board)[-1] == "without"
    assert ranks(board) == {"some": "1", "zero": "2", "without": ""}


def test_a_measure_that_is_better_when_lower_sorts_and_ranks_the_lowest_first() -> None:
    dataset = scored_dataset(measures=["nDCG@10", "Hole@10"])
    score(dataset, "judged", baseline=True, **{"nDCG@10": 0.1, "Hole@10": 0.0})
    score(dataset, "holes", **{"nDCG@10": 0.9, "Hole@10": 0.8})
    board = board_of(dataset, sorts=(Sort("Hole@10"),))
    assert names(board) == ["judged", "holes"]
    assert ranks(board) == {"judged": "1", "holes": "2"}


def test_deltas_are_absolute_and_relative_to_the_baseline_for_the_measure_in_focus() -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.4, recall=0.8)
    score(dataset, "other", ndcg=0.5, recall=0.6)
    board = board_of(dataset)
    assert (cell(board, "other", "delta"), cell(board, "other", "relative")) == (0.1, 0.25)
    assert cell(board, "BM25", "delta") == 0
    board = board_of(dataset, sorts=(Sort("R@100"),))
    assert (cell(board, "other", "delta"), cell(board, "other", "relative")) == (-0.2, -0.25)
    board = board_of(dataset, sorts=(Sort("delta"),), measure="R@100")
    assert names(board) == ["BM25", "other"]


def test_deltas_never_cross_comparison_groups() -> None:
    dataset = scored_dataset()
    paper, other = make_source("paper"), make_source("other")
    report(dataset, paper, "BM25 of the paper", baseline=True, ndcg=0.3)
    report(dataset, paper, "paper's system", ndcg=0.6)
    report(dataset, other, "system without baseline", ndcg=0.9)
    score(dataset, "BM25 scored by Runboard", baseline=True, ndcg=0.4)
    score(dataset, "scored by Runboard", ndcg=0.5)
    board = board_of(dataset)
    assert cell(board, "paper's system", "delta") == 0.3
    assert cell(board, "scored by Runboard", "delta") == 0.1
    assert cell(board, "system without baseline", "delta") is None


def test_reported_figures_are_ranked_apart_and_the_board_says_so() -> None:
    dataset = scored_dataset()
    paper = make_source("paper")
    report(dataset, paper, "reported best", ndcg=0.9)
    report(dataset, paper, "reported second", ndcg=0.3)
    score(dataset, "scored best", ndcg=0.5)
    score(dataset, "scored second", ndcg=0.4)
    board = board_of(dataset)
    assert names(board) == ["scored best", "scored second", "reported best", "reported second"]
    assert list(ranks(board).values()) == ["1", "2", "r 1", "r 2"]
    assert any("ranked separately" in note for note in board.notes)


def test_results_on_superseded_judgements_are_stale_not_ranked_and_not_compared_with_newer_ones() -> None:
    dataset = scored_dataset()
    score(dataset, "old BM25", baseline=True, ndcg=0.1)
    score(dataset, "old", ndcg=0.9)
    renew_judgements(dataset)
    score(dataset, "new BM25", baseline=True, ndcg=0.3)
    score(dataset, "new", ndcg=0.6)
    board = board_of(dataset)
    assert ranks(board) == {"old": "", "new": "1", "new BM25": "2", "old BM25": ""}
    assert cell(board, "old", "delta") == 0.8, "within its own group"
    assert cell(board, "new", "delta") == 0.3
    assert any(note.startswith("Stale") for note in board.notes)


def test_hidden_datasets_compute_everything_from_three_decimals() -> None:
    dataset = scored_dataset(hidden=True)
    score(dataset, "BM25", baseline=True, ndcg=0.28441)
    score(dataset, "a little better", ndcg=0.28449)
    board = board_of(dataset)
    assert cell(board, "a little better", "nDCG@10") == 0.284
    assert cell(board, "a little better", "delta") == 0
    assert set(ranks(board).values()) == {"1"}


def test_filters_hide_rows_and_leave_ranks_alone() -> None:
    dataset = scored_dataset()
    score(dataset, make_system("lexical one", architecture="lexical"), ndcg=0.2)
    score(dataset, "dense one", ndcg=0.9)
    board = board_of(dataset, facets=(("architecture", ("lexical",)),))
    assert ranks(board) == {"lexical one": "2"}
    assert (len(board.rows), board.total) == (1, 2)
    assert names(board_of(dataset, text="DENSE")) == ["dense one"]
    assert names(board_of(dataset, facets=(("provenance", ("reported",)),))) == []


@pytest.mark.parametrize("state", [{"sorts": (Sort("colour"),)}, {"measure": "colour"}])
def test_unknown_columns_are_refused_with_what_there_is(state: dict[str, str]) -> None:
    dataset = scored_dataset()
    score(dataset, "one", ndcg=0.2)
    with pytest.raises(UnknownChoice, match="nDCG@10"):
        board_of(dataset, **state)


def test_private_entries_are_not_shown_and_withdrawn_ones_leave_a_tombstone() -> None:
    dataset = scored_dataset()
    score(dataset, "private", ndcg=0.9, public=False)
    withdrawn = score(dataset, "withdrawn", ndcg=0.8)
    withdraw_entries(withdrawn.submission_reference, "wrong file")
    page = dataset_page(dataset.slug, BoardState())
    assert page is not None
    assert page.board.rows == []
    assert [(stone.system, stone.reason) for stone in page.tombstones] == [("withdrawn", "wrong file")]


def figure(name: str, value: float, **fields: Any) -> dict[str, Any]:
    """A figure as an entry holds it."""
    return {"name": name, "value": value, "unit": "ms", "hardware": "", "as_printed": f"{value:g}", **fields}


def test_efficiency_figures_are_columns_and_doubtful_ones_are_shown_and_never_sorted() -> None:
    dataset = scored_dataset()
    paper = make_source("paper")
    report(dataset, paper, "slow", ndcg=0.5, figures=[figure("latency", 300)])
    report(dataset, paper, "fast", ndcg=0.4, figures=[figure("latency", 20)])
    report(
        dataset,
        paper,
        "doubtful",
        ndcg=0.3,
        figures=[figure("latency", 1, doubtful=True, as_printed="0.001?")],
    )
    report(dataset, paper, "seconds", ndcg=0.2, figures=[figure("latency", 0.1, unit="s")])
    board = board_of(dataset, sorts=(Sort("latency"),))
    assert names(board) == ["fast", "seconds", "slow", "doubtful"]
    assert cell(board, "seconds", "latency") == 100
    doubtful = board.rows[-1]
    assert doubtful["latency"].text == "0.001?"
    assert cell(board, "doubtful", "latency") is None
    assert names(board_of(dataset, sorts=(Sort("latency", "desc"),)))[-1] == "doubtful"


def test_in_domain_systems_are_marked(client: Client) -> None:
    dataset = scored_dataset()
    report(dataset, make_source("paper"), "trained on it", ndcg=0.5, training=Entry.Training.IN_DOMAIN)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert "trained on it</a><sup>‡</sup>" in page
    assert "<dt>‡</dt><dd>in-domain" in page.partition('class="board-foot"')[2].partition("<details")[0], (
        "the table's own legend"
    )


def test_values_that_look_equal_are_marked_equally(client: Client) -> None:
    dataset = scored_dataset()
    for name, ndcg in {"First": 0.50001, "Equal": 0.50002, "Second": 0.4}.items():
        score(dataset, name, ndcg=ndcg)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert (page.count("<b>0.500</b>"), page.count("<u>0.500</u>")) == (2, 0)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "k1 = 0.9, b = 0.4, Porter stemming, English stop words, title and text in one field."),
        (
            "de",
            "k1 = 0.9, b = 0.4, Snowball stemming for German, 231 stop words, title and text in one field.",
        ),
    ],
)
def test_how_bm25_was_made_stands_beside_the_differences_to_it(client: Client, language: str, said: str) -> None:
    dataset = scored_dataset(language=language)
    score(dataset, configuration_system(BM25), baseline=True, ndcg=0.3)
    score(dataset, "other", ndcg=0.4)
    benchmark = Benchmark.objects.create(slug="one", name="One", measure="nDCG@10")
    benchmark.members.create(dataset=dataset, position=0)
    for address in (f"/datasets/{dataset.slug}/", "/benchmarks/one/"):
        assert f"BM25: {said}" in client.get(address).content.decode()
    assert (K1.default, B.default) == (0.9, 0.4)


def test_the_sites_own_rows_are_by_this_site(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, configuration_system(BM25), baseline=True, ndcg=0.3)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert '<small><span class="by">this site</span>' in page
    assert "1 row," in page
    page = client.get(f"/datasets/{dataset.slug}/?columns=by").content.decode()
    assert ">this site</td>" in page
    assert '<span class="by">' not in page, "what a column shows is not said twice"


def test_how_much_is_judged_stands_on_open_boards_and_on_no_hidden_one() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score(dataset, "BM25", baseline=True, ndcg=0.5, **{"Hole@10": 0.25})
    score(dataset, "Dense", ndcg=0.6, **{"Hole@10": 0.5, "Judged@10": 0.375})  # an eighth of its places is empty
    board = board_of(dataset)
    last = [column for column in board.columns if column.group == "Judged"]
    assert [column.key for column in last] == ["Judged@10", "Hole@10"]
    assert {row.entry.system: [row.value(column.key) for column in last] for row in board.rows} == {
        "BM25": [0.75, 0.25],
        "Dense": [0.375, 0.5],
    }
    assert board.measures == ["nDCG@10", "Judged@10", "Hole@10"]
    assert board_of(dataset, measure="Judged@10").columns[1].key == "Judged@10"

    hidden = scored_dataset(measures=["nDCG@10"], hidden=True)
    entry = score(hidden, "BM25", baseline=True, ndcg=0.5, **{"Hole@10": 0.25})
    assert entry.scores == {"nDCG@10": 0.5}
    assert board_of(hidden).measures == ["nDCG@10"]


def test_a_query_that_a_run_misses_is_neither_judged_nor_a_hole() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    evaluation = evaluate(dataset, make_system("Dense"), ndcg=0.5, **{"Hole@10": 0.125})
    evaluation.judged_queries, evaluation.missing_queries = 4, 1
    assert judged_shares(evaluation) == {"Judged@10": 0.625, "Hole@10": 0.125}


def test_results_published_before_these_measures_come_to_have_them() -> None:
    dataset, hidden = (scored_dataset(measures=["nDCG@10"], hidden=each) for each in (False, True))
    for each in (dataset, hidden):
        score(each, "BM25", baseline=True, ndcg=0.5, **{"Hole@10": 0.25})
    Entry.objects.update(scores={"nDCG@10": 0.5})
    assert datasets_without_shares() == [dataset]
    refresh_scores(dataset)
    assert Entry.objects.get(dataset=dataset).scores == {"nDCG@10": 0.5, "Judged@10": 0.75, "Hole@10": 0.25}
    assert datasets_without_shares() == []
