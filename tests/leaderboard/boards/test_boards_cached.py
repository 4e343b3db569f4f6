"""The rows of boards are remembered between requests; nobody may notice by anything but the time it takes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from django.test.utils import CaptureQueriesContext

from leaderboard.boards.model import Board, Cell
from leaderboard.boards.pages import benchmark_page
from leaderboard.boards.state import BoardState, Sort
from leaderboard.models import Benchmark, Dataset
from leaderboard.results.board_rows.rows import board_cache
from leaderboard.results.publishing.visibility import name_baseline, set_visibility, withdraw_entries
from leaderboard.wsgi import application
from tests.leaderboard.entries import (
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)
from tests.pages import clear_page_cache

pytestmark = pytest.mark.django_db


def benchmark_of(*datasets: Dataset, slug: str = "all", **fields: Any) -> None:
    """A benchmark that counts all of them."""
    benchmark = Benchmark.objects.create(slug=slug, name=slug, **fields)
    for position, dataset in enumerate(datasets):
        benchmark.members.create(dataset=dataset, position=position)


def board_of(slug: str = "all", **state: Any) -> Board:
    """The benchmark's board in a view."""
    page = benchmark_page(slug, BoardState(**state))
    assert page is not None
    return page.board


def systems(board: Board) -> list[str]:
    """The rows' systems, in order."""
    return [row.entry.system for row in board.rows]


def reads_of_rows(captured: CaptureQueriesContext) -> list[str]:
    """The queries that read stored rows."""
    queries = (query["sql"] for query in captured.captured_queries)
    return [sql for sql in queries if 'FROM "leaderboard_entryversion"' in sql]


def test_whatever_changes_a_board_is_seen_at_once() -> None:
    first, second = scored_dataset(), scored_dataset()
    benchmark_of(first, second)
    score(first, "early", ndcg=0.5)
    assert systems(board_of()) == ["early"]
    later = score(second, "later", ndcg=0.6)
    assert systems(board_of()) == ["early", "later"]
    set_visibility(later.submission_reference, public=False)
    assert systems(board_of()) == ["early"]
    set_visibility(later.submission_reference, public=True)
    name_baseline(later)
    assert [row.entry.is_baseline for row in board_of().rows] == [False, True]
    withdraw_entries(later.submission_reference, "a mistake")
    assert systems(board_of()) == ["early"]
    renew_judgements(first)
    assert systems(board_of()) == []


def test_another_view_reads_no_row_again_and_a_publication_those_of_its_dataset_only() -> None:
    first, second = scored_dataset(), scored_dataset()
    benchmark_of(first, second)
    for dataset in (first, second):
        score(dataset, "system", ndcg=0.5, recall=0.7)
    board_of()
    with CaptureQueriesContext(connection) as captured:
        assert board_of(measure="R@100", sorts=(Sort(first.slug),)).rows[0].value(first.slug) == 0.7
    assert reads_of_rows(captured) == []
    score(second, "another", ndcg=0.6)
    with CaptureQueriesContext(connection) as captured:
        assert len(board_of().rows) == 3
    (read,) = reads_of_rows(captured)
    assert f'"dataset_id" = {second.pk} ' in read
    assert f'"dataset_id" = {first.pk} ' not in read


def test_pages_without_rounds_agreements_or_twins_take_few_queries(client: Client) -> None:
    dataset = scored_dataset()
    benchmark_of(dataset)
    score(dataset, "system", ndcg=0.5)
    for path, most_queries in ((f"/datasets/{dataset.slug}/", 8), ("/benchmarks/all/", 6)):
        client.get(path)
        clear_page_cache()
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path).status_code == 200
        assert len(captured) <= most_queries


def test_benchmarks_of_different_papers_share_datasets_and_no_figures() -> None:
    dataset = scored_dataset()
    one, other = make_source("one"), make_source("other")
    for paper in (one, other):
        benchmark_of(dataset, slug=paper.key, source=paper)
    figure = {"name": "latency", "unit": "ms", "value": 3.0}
    report(dataset, one, "of one", ndcg=0.5)
    report(dataset, other, "of other", ndcg=0.5, figures=[figure], **{"AP": 0.1})
    score(dataset, "scored", ndcg=0.5)
    assert systems(board_of("one")) == ["scored", "of one"]
    assert systems(board_of("other")) == ["scored", "of other"]
    assert [board_of(slug).measures for slug in ("one", "other")] == [["nDCG@10"], ["nDCG@10", "AP"]]
    latencies = ["latency" in [column.key for column in board_of(slug).columns] for slug in ("one", "other")]
    assert latencies == [False, True]


def test_among_equals_the_earlier_published_is_first_whichever_dataset_it_was_on() -> None:
    first, second = scored_dataset(), scored_dataset()
    benchmark_of(first, second)
    early, late = make_system("early"), make_system("late")
    score(second, early, ndcg=0.5)
    score(first, late, ndcg=0.5)
    score(first, early, ndcg=0.5)
    score(second, late, ndcg=0.5)
    assert systems(board_of()) == ["early", "late"]


def test_other_cells_in_a_row_of_one_view_change_no_other_view() -> None:
    dataset = scored_dataset()
    benchmark_of(dataset)
    score(dataset, "system", ndcg=0.5)
    (given,) = board_of().rows
    given[dataset.slug], given.rank = Cell(0.9, mark="‡"), 7
    (again,) = board_of().rows
    assert (again.value(dataset.slug), again[dataset.slug].mark, again.rank) == (0.5, "", 1)


@pytest.mark.django_db(transaction=True)
def test_a_server_that_has_warmed_up_reads_no_row_for_its_first_visitors(client: Client) -> None:
    dataset = scored_dataset()
    benchmark_of(dataset)
    score(dataset, "system", ndcg=0.5)
    board_cache.clear()
    application.warm_up()
    clear_page_cache()
    for page in ("/benchmarks/all/", f"/datasets/{dataset.slug}/"):
        with CaptureQueriesContext(connection) as captured:
            assert "system" in client.get(page).content.decode()
        assert reads_of_rows(captured) == []


@pytest.mark.django_db(transaction=True)
def test_a_server_starts_while_its_database_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise OperationalError("away")

    monkeypatch.setattr(BaseDatabaseWrapper, "cursor", fail)
    application.warm_up()
    assert "cannot preload pages" in caplog.text


def test_views_with_free_numbers_leave_the_cache_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader could otherwise fill the memory of a process, and evict the boards that others read."""
    dataset = scored_dataset()
    score(dataset, "First", ndcg=0.4)
    benchmark_of(dataset)
    client.get(f"/datasets/{dataset.slug}/")
    client.get("/benchmarks/all/")
    stored: list[str] = []
    monkeypatch.setattr(board_cache, "put", lambda key, *values: stored.append(key))
    for view in ("corpus=12345", "weight-effectiveness=3&weight-latency=2"):
        assert client.get(f"/datasets/{dataset.slug}/?{view}").status_code == 200
    assert client.get("/benchmarks/all/?corpus=12345").status_code == 200
    assert stored == []
    score(dataset, "Second", ndcg=0.5)
    client.get(f"/datasets/{dataset.slug}/")
    assert stored
