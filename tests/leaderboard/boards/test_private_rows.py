"""A team's private results on boards: for its own people alone, and moving nothing."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from leaderboard.boards.exports import FORMATS
from leaderboard.boards.pages import dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, System
from tests.factories import make_user, team_of
from tests.leaderboard.entries import make_system, renew_judgements, score, scored_dataset

pytestmark = pytest.mark.django_db


def people(dataset: Dataset) -> tuple[Client, Client]:
    """Somebody with a private result that is the best, and somebody else who is signed in."""
    alice, bob = make_user("Alice"), make_user("Bob")
    score(dataset, "BM25", ndcg=0.2, baseline=True)
    score(dataset, "public", ndcg=0.5)
    score(dataset, make_system("secret plan", team=team_of(alice)), ndcg=0.9, public=False)
    clients = Client(), Client()
    for client, user in zip(clients, (alice, bob), strict=True):
        client.force_login(user)
    return clients


def rows_of(page: str) -> list[str]:
    """The rows of a page's board in all of its blocks, without markup."""
    body = page.partition("</thead>")[2].partition("</table>")[0]
    return [re.sub("<[^>]+>", " ", row) for row in body.split("</tr>") if "<td" in row and "figure-row" not in row]


def test_only_the_team_sees_its_private_row_which_has_no_rank_and_moves_none() -> None:
    dataset = scored_dataset()
    alice, bob = people(dataset)
    address = f"/datasets/{dataset.slug}/"
    mine = alice.get(address).content.decode()
    assert "secret plan" in mine
    assert "only your team sees these rows" in mine
    private, public, _ = rows_of(mine)
    assert private.split()[0] == "—"
    assert "private" in private
    assert public.split()[0] == "1", "the rank that everyone else sees"
    for other in (bob, Client()):
        theirs = other.get(address).content.decode()
        assert "secret plan" not in theirs
        assert len(rows_of(theirs)) == 2


def test_the_best_value_and_differences_of_others_stay_as_they_are() -> None:
    dataset = scored_dataset()
    alice, _ = people(dataset)
    teams = list(make_user("Eve").memberships.values_list("team_id", flat=True))
    nobodys = dataset_page(dataset.slug, BoardState(), teams)
    assert nobodys is not None
    assert len(nobodys.board.rows) == 2
    page = alice.get(f"/datasets/{dataset.slug}/?exact=1").content.decode()
    assert "<b>0.5000</b>" in page
    assert "<b>0.9000</b>" not in page
    assert "+0.7000" in page, "its own difference to the baseline"


def test_a_private_row_never_meets_the_pages_that_are_kept() -> None:
    dataset = scored_dataset()
    alice, _ = people(dataset)
    address = f"/datasets/{dataset.slug}/"
    assert "secret plan" in alice.get(address).content.decode()
    first = Client().get(address)
    assert "secret plan" not in first.content.decode()
    again = alice.get(address)
    assert "secret plan" in again.content.decode()
    assert "ETag" not in again.headers
    assert "private" in again.headers["Cache-Control"] or "no-store" in again.headers["Cache-Control"]


@pytest.mark.parametrize("ending", FORMATS)
def test_no_export_has_a_private_row(ending: str) -> None:
    dataset = scored_dataset()
    alice, _ = people(dataset)
    answer = alice.get(f"/datasets/{dataset.slug}/board.{ending}")
    assert answer.status_code == 200
    assert "secret plan" not in answer.content.decode()


def test_the_api_the_news_and_the_systems_page_say_nothing_of_it() -> None:
    dataset = scored_dataset()
    alice, bob = people(dataset)
    for client in (alice, bob):
        assert "secret plan" not in client.get(f"/api/v1/datasets/{dataset.slug}/board/").content.decode()
        assert "secret plan" not in client.get("/news/").content.decode()


def test_a_stale_private_row_says_both() -> None:
    dataset = scored_dataset()
    alice, _ = people(dataset)
    renew_judgements(dataset)
    rows = [row for row in rows_of(alice.get(f"/datasets/{dataset.slug}/").content.decode()) if "secret" in row]
    assert "stale" in rows[0]
    assert "private" in rows[0]


def benchmark_of(*datasets: Dataset) -> str:
    """The address of a benchmark of these datasets."""
    benchmark = Benchmark.objects.create(slug="both", name="Both", measure="nDCG@10")
    for position, dataset in enumerate(datasets):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
    return "/benchmarks/both/"


@pytest.mark.parametrize("view", ["", "?view=delta", "?view=rank", "?sort=borda", "?sort=common-mean"])
def test_a_benchmarks_board_shows_private_rows_to_their_team_and_moves_nothing(view: str) -> None:
    first, second = scored_dataset(), scored_dataset()
    alice, bob = people(first)
    score(second, System.objects.get(name="BM25"), ndcg=0.3, baseline=True)
    score(second, System.objects.get(name="public"), ndcg=0.4)
    address = benchmark_of(first, second) + view
    everyones = rows_of(Client().get(address).content.decode())
    assert not any("secret plan" in row for row in everyones)
    mine = rows_of(alice.get(address).content.decode())
    private = [row for row in mine if "secret plan" in row]
    assert [row.split() for row in mine if "secret plan" not in row] == [row.split() for row in everyones]
    assert len(private) == 1
    assert private[0].split()[0] == "—"
    assert "private" in private[0]
    assert rows_of(bob.get(address).content.decode()) == everyones
    assert rows_of(Client().get(address).content.decode()) == everyones


def test_a_private_row_of_a_benchmark_is_compared_with_everyones_bm25() -> None:
    first, second = scored_dataset(), scored_dataset()
    alice, _ = people(first)
    score(second, System.objects.get(name="BM25"), ndcg=0.3, baseline=True)
    page = alice.get(benchmark_of(first, second) + "?view=delta&columns=all&exact=1").content.decode()
    (private,) = [row for row in rows_of(page) if "secret plan" in row]
    assert "+0.7000" in private
    assert "only your team sees these rows" in page
