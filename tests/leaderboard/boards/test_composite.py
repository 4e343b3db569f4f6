"""Datasets that are the mean of their parts (CQADupStack's forums), on benchmarks and on their own page."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from leaderboard.boards.model import Board
from leaderboard.boards.pages import benchmark_page, dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.models import BoardChange, Dataset, System
from leaderboard.results.board_rows.rows import board_cache
from tests.curating import save
from tests.factories import make_dataset, make_user
from tests.leaderboard.boards.test_boards_benchmark import benchmark_of, board_of, values
from tests.leaderboard.entries import (
    cost,
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(name="forums")
def _forums() -> list[Dataset]:
    """Three forums and the whole, which is in a benchmark with another dataset."""
    whole = make_dataset(name="Forums", slug="forums", state="reported", hidden=False, measures=["nDCG@10"])
    forums = [scored_dataset(name=name, slug=name.lower(), part_of=whole) for name in ("Cats", "Dogs", "Owls")]
    benchmark_of(whole, scored_dataset(name="Other", slug="other"))
    return forums


def _fill(forums: list[Dataset]) -> tuple[System, System, System]:
    bm25, complete, partial = (make_system(name) for name in ("BM25", "complete", "partial"))
    for number, forum in enumerate(forums):
        score(forum, bm25, baseline=True, ndcg=0.1 * (number + 1), recall=0.5)
        score(forum, complete, ndcg=0.2 * (number + 1))
    for forum in forums[:2]:
        score(forum, partial, ndcg=0.9)
    return bm25, complete, partial


def _whole() -> Board:
    page = dataset_page("forums", BoardState())
    assert page is not None
    return page.board


def test_a_benchmark_shows_the_mean_of_the_parts_to_systems_that_have_them_all(forums: list[Dataset]) -> None:
    _fill(forums)
    board = board_of()
    found = {row.entry.system: row.value("forums") for row in board.rows}
    assert found == {"BM25": pytest.approx(0.2), "complete": pytest.approx(0.4)}
    column = board.column("forums")
    assert column.unit == "mean of 3"
    row = next(row for row in board.rows if row.entry.system == "complete")
    assert row["forums"].title == "mean of 3 parts"
    assert any("Forums: scored results are means over its 3 parts" in note for note in board.notes)


def test_the_whole_is_compared_with_the_mean_of_its_parts_baselines(forums: list[Dataset]) -> None:
    _fill(forums)
    assert values(board_of(view="delta"), "complete")["forums"] == pytest.approx(0.2)
    board = _whole()
    assert values(board, "complete")["delta"] == pytest.approx(0.2)
    assert values(board, "complete")["nDCG@10"] == pytest.approx(0.4)
    assert [(row.entry.system, row.rank_label) for row in board.rows] == [("complete", "1"), ("BM25", "2")]


def test_reported_figures_of_the_whole_stay_beside_it(forums: list[Dataset]) -> None:
    _fill(forums)
    report(Dataset.objects.get(slug="forums"), make_source("paper"), "printed", ndcg=0.35)
    board = _whole()
    assert {row.entry.system: row.rank_label for row in board.rows} == {
        "complete": "1",
        "BM25": "2",
        "printed": "r 1",
    }
    assert values(board_of(), "printed")["forums"] == 0.35


def test_a_part_with_new_judgements_takes_the_mean_away_until_it_is_rescored(forums: list[Dataset]) -> None:
    _, complete, _ = _fill(forums)
    renew_judgements(forums[2])
    assert _whole().rows == []
    score(forums[2], complete, ndcg=0.3)
    assert values(_whole(), "complete")["nDCG@10"] == pytest.approx((0.2 + 0.4 + 0.3) / 3)
    assert "delta" not in [column.key for column in _whole().columns]


def test_no_mean_while_a_part_is_being_prepared(forums: list[Dataset]) -> None:
    _fill(forums)
    Dataset.objects.filter(pk=forums[0].pk).update(state="preparing")
    assert _whole().rows == []


def test_hidden_parts_give_a_mean_of_three_decimals(forums: list[Dataset]) -> None:
    system = make_system("system")
    for forum, value in zip(forums, (0.101, 0.102, 0.102), strict=True):
        score(forum, system, ndcg=value)
    Dataset.objects.filter(pk=forums[0].pk).update(hidden=True)
    assert values(board_of(), "system")["forums"] == 0.102


def test_a_result_on_a_part_is_news_on_the_whole(forums: list[Dataset]) -> None:
    whole = Dataset.objects.get(slug="forums")
    before = whole.board_revision
    score(forums[0], "system", ndcg=0.4)
    whole.refresh_from_db()
    assert whole.board_revision == before + 1
    assert BoardChange.objects.filter(dataset=whole, kind="published").count() == 1


def test_the_page_of_the_whole_links_its_parts(client: Client, forums: list[Dataset]) -> None:
    _, complete, _ = _fill(forums)
    page = client.get("/datasets/forums/").content.decode()
    assert page.count('<a href="/datasets/cats/">Cats</a>') == 1
    assert 'part of <a href="/datasets/forums/">Forums</a>' in client.get("/datasets/cats/").content.decode()
    assert complete.slug in page
    cost(score(forums[0], complete, ndcg=0.3), 5.0)
    assert client.get("/datasets/forums/board.csv").status_code == 200


def test_more_parts_need_no_more_queries(forums: list[Dataset]) -> None:
    _, complete, _ = _fill(forums)
    counts = []
    for _ in range(2):
        for read in (
            lambda: benchmark_page("all", BoardState()),
            lambda: dataset_page("forums", BoardState()),
        ):
            board_cache.clear()
            with CaptureQueriesContext(connection) as captured:
                read()
            counts.append(len(captured))
        whole = Dataset.objects.get(slug="forums")
        score(scored_dataset(name="Bats", part_of=whole), complete, ndcg=0.1)
    assert counts[:2] == counts[2:]
    assert counts[0] <= 8


def test_a_curator_says_what_a_dataset_is_part_of_and_both_boards_follow(client: Client, forums: list[Dataset]) -> None:
    client.force_login(make_user("Carol", is_staff=True, is_superuser=True))
    system = make_system("system")
    for forum in forums[:2]:
        score(forum, system, ndcg=0.4)
    assert _whole().rows == []
    address = f"/admin/leaderboard/dataset/{forums[2].pk}/change/"
    form = client.get(address).context["adminform"].form
    offered = set(form.fields["part_of"].queryset.values_list("name", flat=True))
    assert offered == {"Forums"}
    assert save(client, address, part_of="").status_code == 302
    assert values(board_of(), "system")["forums"] == pytest.approx(0.4)
