"""What a view leaves of a board: facets and their counts, ranges, order, pins, pages, columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext

from leaderboard.boards import filtering
from leaderboard.boards.model import Board
from leaderboard.boards.pages import benchmark_page, dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Team
from tests.leaderboard.entries import cost, machine, make_source, make_system, report, score, scored_dataset

pytestmark = pytest.mark.django_db


def board(dataset: Dataset, query: str = "") -> Board:
    """The dataset's board as its address asks for."""
    page = dataset_page(dataset.slug, BoardState.from_parameters(QueryDict(query)))
    assert page is not None
    return page.board


def names(found: Board) -> list[str]:
    """The systems, in order."""
    return [row.entry.system for row in found.rows]


def counts(found: Board, facet: str) -> dict[str, int]:
    """Option → count of one facet; KeyError where it is not offered."""
    by_name = {one.name: one for one in found.facets}
    return {option.value: option.count for option in by_name[facet].options}


@pytest.fixture
def dataset() -> Dataset:
    """Four systems of two teams and two architectures, two of them measured, one of these on a GPU."""
    dataset = scored_dataset()
    ours = Team.objects.create(slug="ours", name="Our team")
    theirs = Team.objects.create(slug="theirs", name="Their team")
    open_weights: dict[str, Any] = {
        "open_weights": True,
        "licence": "MIT",
        "commercial_use": True,
        "year": 2024,
    }
    closed: dict[str, Any] = {"closed_api": True, "open_weights": True, "year": 2022}
    score(dataset, make_system("a", team=ours, architecture="dense", **open_weights), ndcg=0.4, recall=0.9)
    quick = score(dataset, make_system("b", team=ours, architecture="lexical", year=2024), ndcg=0.3, recall=0.8)
    slow = score(dataset, make_system("c", team=theirs, architecture="dense", **closed), ndcg=0.3, recall=0.7)
    score(dataset, make_system("d", team=theirs, architecture="dense"), ndcg=0.1)
    cost(quick, 2.0, index_bytes=1_000_000, documents=1000)
    cost(slow, 20.0, hardware=machine(gpu="NVIDIA A100"), index_bytes=8_000_000, documents=1000)
    return dataset


def test_facets_count_what_choosing_would_show(dataset: Dataset) -> None:
    found = board(dataset)
    assert counts(found, "architecture") == {"lexical": 1, "dense": 3}
    assert counts(found, "weights") == {"open": 1, "closed": 1, "unknown": 2}
    assert list(counts(found, "year")) == ["2024", "2022", "unknown"]
    assert counts(found, "licence") == {"MIT": 1, "unknown": 3}
    assert counts(found, "commercial") == {"yes": 1, "unknown": 3}


def test_counts_follow_all_other_filters_but_not_the_facets_own(dataset: Dataset) -> None:
    found = board(dataset, "architecture=dense&q=their")
    assert names(found) == ["c", "d"]
    assert counts(found, "architecture") == {"lexical": 0, "dense": 2}
    assert counts(found, "weights") == {"open": 0, "closed": 1, "unknown": 1}
    assert counts(board(dataset, "architecture=dense&team=ours"), "team") == {"theirs": 2, "ours": 1}


def test_a_facet_of_one_value_is_not_offered_unless_it_is_chosen(dataset: Dataset) -> None:
    assert "provenance" not in {facet.name for facet in board(dataset).facets}
    assert counts(board(dataset, "provenance=scored"), "provenance") == {"scored": 4}
    assert counts(board(dataset, "provenance=reported"), "provenance") == {"reported": 0, "scored": 4}


def test_teams_and_publications_are_called_by_their_names() -> None:
    dataset = scored_dataset()
    score(dataset, make_system("a", team=Team.objects.create(slug="ours", name="Our team")), ndcg=0.4)
    report(dataset, make_source("ada2020"), "b", ndcg=0.3)
    team = next(facet for facet in board(dataset).facets if facet.name == "team")
    assert {option.value: option.label for option in team.options} == {
        "ours": "Our team",
        "ada2020": "Lovelace and Hopper 2020",
    }
    assert names(board(dataset, "year=2020")) == ["b"]


def test_several_values_of_a_facet_are_alternatives_several_facets_conditions(dataset: Dataset) -> None:
    assert names(board(dataset, "year=2024&year=2022")) == ["a", "b", "c"]
    assert names(board(dataset, "year=2024&year=2022&architecture=dense")) == ["a", "c"]


def test_ranges_include_their_bounds_and_leave_out_what_has_no_value(dataset: Dataset) -> None:
    assert names(board(dataset, "min-nDCG@10=0.3&max-nDCG@10=0.3")) == ["b", "c"]
    assert names(board(dataset, "max-R@100=0.8")) == ["b", "c"]
    assert names(board(dataset, "min-relative=-1")) == []
    with pytest.raises(UnknownChoice, match="Choose one of: min-nDCG@10"):
        board(dataset, "min-architecture=1")


def test_cpu_only_leaves_what_was_measured_without_a_gpu(dataset: Dataset) -> None:
    assert names(board(dataset, "cpu-only=1")) == ["b"]
    gpu = next(one.slug for one in board(dataset).machines if one.has_gpu)
    assert names(board(dataset, f"cpu-only=1&hardware={gpu}")) == []


def test_zero_shot_leaves_what_says_so() -> None:
    dataset = scored_dataset(slug="seen")
    score(dataset, make_system("says so", training_declared=True), ndcg=0.2)
    score(dataset, make_system("trained", training_declared=True, training_datasets=["seen"]), ndcg=0.3)
    score(dataset, make_system("adapted", training_declared=True, adapted_to=["seen"]), ndcg=0.1)
    score(dataset, make_system("silent"), ndcg=0.4)
    assert names(board(dataset, "zero-shot=1")) == ["says so", "adapted"]


def test_my_corpus_is_estimated_from_the_measured_bytes_for_each_document(dataset: Dataset) -> None:
    found = board(dataset, "corpus=5000&cpu-only=1&sort=corpus-index")
    place = [column.key for column in found.columns].index("corpus-index")
    assert found.rows[0].value("corpus-index") == pytest.approx(5.0)
    assert "estimated" in found.columns[place].unit
    assert found.columns[place].group == found.columns[place - 1].group
    with pytest.raises(UnknownChoice):
        board(dataset, "sort=corpus-index")


def test_further_columns_decide_among_equals_and_missing_is_last_both_ways(dataset: Dataset) -> None:
    assert names(board(dataset, "sort=nDCG@10&sort=R@100:asc")) == ["a", "c", "b", "d"]
    assert names(board(dataset, "sort=nDCG@10&sort=R@100:desc")) == ["a", "b", "c", "d"]
    assert names(board(dataset, "sort=architecture&sort=R@100:asc")) == ["c", "a", "d", "b"]
    assert names(board(dataset, "sort=R@100:asc")) == ["c", "b", "a", "d"]


def test_pins_stand_on_top_with_their_own_ranks_whatever_is_filtered(dataset: Dataset) -> None:
    slugs = {row.entry.system: row.entry.slug for row in board(dataset).rows}
    found = board(dataset, f"pin={slugs['d']}&pin={slugs['c']}&architecture=lexical")
    assert [(row.entry.system, row.rank) for row in found.rows] == [("d", 3), ("c", 1), ("b", 2)]
    assert (found.pinned, found.found) == (2, 1)
    assert names(board(dataset, "pin=nobody")) == ["a", "b", "c", "d"]


def test_neither_filter_nor_pin_moves_ranks_or_the_best(dataset: Dataset) -> None:
    everything, filtered = board(dataset), board(dataset, "architecture=lexical")
    of_all = {row.entry.system: row.rank for row in everything.rows}
    assert all(row.rank == of_all[row.entry.system] for row in filtered.rows)
    assert filtered.best["nDCG@10", "scored"] == 0.4


def test_pages_hold_so_many_rows_and_the_pins_again(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "ROWS_PER_PAGE", 2)
    assert names(board(dataset)) == ["a", "b"]
    last = board(dataset, "page=2")
    assert (names(last), last.page, last.pages, last.found) == (["c", "d"], 2, 2, 4)
    assert names(board(dataset, "page=9")) == ["c", "d"]
    assert names(board(dataset, "rows=all")) == ["a", "b", "c", "d"]
    pinned = board(dataset, f"page=2&pin={last.rows[1].entry.slug}")
    assert names(pinned) == ["d", "c"]


def test_hidden_groups_are_gone_but_still_decide_the_order(dataset: Dataset) -> None:
    found = board(dataset, "hide=efficiency&hide=about&sort=mean-latency:desc&cpu-only=1")
    assert not {"mean-latency", "architecture"} & {column.key for column in found.columns}
    assert found.sort == "mean-latency"
    assert {"efficiency", "about", "effectiveness"} <= {column.group_slug for column in found.unhidden}


def test_what_is_marked_stays_with_its_column_when_others_are_hidden(dataset: Dataset) -> None:
    found = board(dataset, "hide=delta&hide=efficiency")
    assert found.best["R@100", "scored"] == 0.9
    assert [row.value("R@100") for row in found.rows] == [0.9, 0.8, 0.7, None]


def test_a_benchmark_offers_facets_of_its_datasets_and_counts_them() -> None:
    benchmark = Benchmark.objects.create(slug="all", name="All")
    for number, language in enumerate(("en", "en", "de")):
        dataset = scored_dataset(language=language)
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=number)
        score(dataset, f"system {number}", ndcg=0.5)
    page = benchmark_page("all", BoardState.from_parameters(QueryDict("")))
    assert page is not None
    assert counts(page.board, "language") == {"en": 2, "de": 1}
    assert next(facet for facet in page.board.facets if facet.name == "language").counts == "datasets"


def test_queries_do_not_grow_with_what_is_chosen(
    dataset: Dataset, django_assert_num_queries: Callable[..., Any]
) -> None:
    board(dataset)
    with CaptureQueriesContext(connection) as plain:
        board(dataset)
    with django_assert_num_queries(len(plain)):
        board(dataset, "architecture=dense&sort=nDCG@10&sort=R@100&min-nDCG@10=0&corpus=10&hide=about")


def test_what_teams_declare_can_be_sorted_and_ranged_on_both_kinds_of_board() -> None:
    dataset = scored_dataset()
    benchmark = Benchmark.objects.create(slug="one", name="One")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=0)
    for name, count, length in (
        ("small", 22_700_000, 512),
        ("large", 7_000_000_000, 32_768),
        ("silent", None, None),
    ):
        score(dataset, make_system(name, parameter_count=count, maximum_length=length), ndcg=0.5)
    query = "sort=declared-parameters:desc&min-maximum-length=512"
    assert names(board(dataset, query)) == ["large", "small"]
    page = benchmark_page("one", BoardState.from_parameters(QueryDict(query)))
    assert page is not None
    assert names(page.board) == ["large", "small"]
    column = page.board.column("declared-parameters")
    assert [row.value("declared-parameters") for row in page.board.rows] == [7000.0, 22.7]
    assert column is not None
    assert "declared" in column.unit


@pytest.mark.parametrize("spelling", ["R@100", "Recall@100", "recall_100", "recall_at_100", "r@100"])
def test_an_address_takes_every_spelling_of_a_measure(client: Client, dataset: Dataset, spelling: str) -> None:
    wanted = board(dataset, "measure=R@100&sort=R@100:asc&min-R@100=0.75")
    found = board(dataset, f"measure={spelling}&sort={spelling}:asc&min-{spelling}=0.75")
    assert (found.measure, found.sorts, names(found)) == ("R@100", wanted.sorts, names(wanted))
    page = f"/datasets/{dataset.slug}/"
    for address in (page, f"/api/v1{page}board/"):
        same, other = (client.get(f"{address}?measure={name}&sort={name}") for name in ("R@100", spelling))
        assert other.status_code == 200
        assert other.content == same.content
    assert client.get(f"{page}?measure=recall_99").status_code == 400


def test_a_spelling_that_could_be_a_slug_is_looked_up_among_columns_first() -> None:
    dataset = scored_dataset(measures=["AP", "nDCG@10"], primary_measure="AP")
    score(dataset, make_system("a"), ndcg=0.4, AP=0.3)
    assert board(dataset, "sort=map").sorts[0].key == "AP"


def test_small_models_are_found_by_what_was_counted_or_declared_and_lexical_systems_have_none() -> None:
    dataset = scored_dataset()
    benchmark = Benchmark.objects.create(slug="sizes", name="Sizes")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=0)
    cost(score(dataset, make_system("counted"), ndcg=0.1), 5.0, parameters=22_700_000)
    over = score(dataset, make_system("understated", parameter_count=1_000), ndcg=0.2)
    cost(over, 5.0, parameters=7_000_000_000)
    score(dataset, make_system("declared", parameter_count=110_000_000), ndcg=0.3)
    score(dataset, make_system("BM25", architecture="lexical"), baseline=True, ndcg=0.4)
    score(dataset, make_system("large", parameter_count=8_000_000_000), ndcg=0.5)
    score(dataset, make_system("silent"), ndcg=0.6)
    query = "max-parameters=1000&sort=nDCG@10:asc"
    assert names(board(dataset, query)) == ["counted", "declared", "BM25"]
    page = benchmark_page("sizes", BoardState.from_parameters(QueryDict("max-parameters=1000")))
    assert page is not None
    assert sorted(names(page.board)) == ["BM25", "counted", "declared"]
    sizes = {row.entry.system: row.value("parameters") for row in board(dataset).rows}
    assert sizes == {
        "silent": None, "large": 8000.0, "BM25": 0.0, "declared": 110.0, "understated": 7000.0, "counted": 22.7,
    }  # fmt: skip


def test_the_quick_filter_for_small_models_follows_them(client: Client) -> None:
    dataset = scored_dataset()
    cost(score(dataset, make_system("counted"), ndcg=0.1), 5.0, parameters=22_700_000)
    score(dataset, make_system("BM25", architecture="lexical"), baseline=True, ndcg=0.4)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert f'href="/datasets/{dataset.slug}/?max-parameters=1000"' in page
    small = client.get(f"/datasets/{dataset.slug}/?max-parameters=1000").content.decode()
    assert "2 of 2" in small
