"""What a permalink says, and what it no longer says, after parts, results or the judgements' openness changed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.boards import news
from leaderboard.boards.benchmark.columns import build_rows
from leaderboard.boards.pages import benchmark_page
from leaderboard.boards.state import BoardState
from leaderboard.models import Dataset
from leaderboard.results.board_rows import past, rows
from leaderboard.results.board_rows.revisions import Kind, boards_changed
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from tests.factories import make_dataset
from tests.generated.board import generate_board
from tests.leaderboard.boards.test_permalinks import (
    body_of,
    make_benchmark,
    pass_time,
    permalink_of,
    table_of,
)
from tests.leaderboard.entries import make_source, make_system, report, score, score_seeds, scored_dataset
from tests.pages import clear_page_cache

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def make_whole() -> tuple[Dataset, list[Dataset]]:
    """A dataset that is the mean of two others."""
    whole = make_dataset(name="Forums", slug="forums", hidden=False, measures=["nDCG@10"])
    return whole, [scored_dataset(name=name, part_of=whole) for name in ("Cats", "Dogs")]


def values_of(client: Client, path: str, key: str = "nDCG@10") -> dict[str, float]:
    """What the board at `path` has in a column, by system."""
    return {row["system"]: row["values"][key] for row in table_of(client, path)}


def test_parts_that_come_or_go_later_change_no_board_of_before(client: Client) -> None:
    whole, parts = make_whole()
    complete = make_system("complete")
    for part in parts:
        score(part, complete, ndcg=0.4)
    score(parts[0], "partial", ndcg=0.9)
    make_benchmark(whole)
    pass_time()
    paths = ("/datasets/forums/", "/benchmarks/two/")
    before = {path: (permalink_of(client, path), table_of(client, path)) for path in paths}
    assert [row["system"] for row in before[paths[0]][1]] == ["complete"]

    added = scored_dataset(name="Owls", part_of=whole)
    boards_changed([added.pk], Kind.DESCRIPTION)
    score(added, "owl", ndcg=0.9)
    clear_page_cache()
    assert [table_of(client, link) for link, _ in before.values()] == [rows for _, rows in before.values()]
    assert table_of(client, paths[0]) == []
    assert "the 2 parts" in client.get(before[paths[0]][0]).content.decode()

    Dataset.objects.filter(pk__in=[added.pk, parts[1].pk]).update(part_of=None)
    boards_changed([whole.pk, added.pk, parts[1].pk], Kind.DESCRIPTION)
    clear_page_cache()
    assert [table_of(client, link) for link, _ in before.values()] == [rows for _, rows in before.values()]
    assert set(values_of(client, paths[0])) == {"complete", "partial"}


def test_a_mean_is_marked_by_the_results_that_it_is_made_of(client: Client) -> None:
    whole, parts = make_whole()
    system = make_system("twice")
    first = score(parts[0], system, ndcg=0.2)
    score(parts[0], system, ndcg=0.3)
    last = [score(part, system, ndcg=0.4) for part in parts][-1]
    make_benchmark(whole)
    pass_time()
    links = [permalink_of(client, path) for path in ("/datasets/forums/", "/benchmarks/two/")]
    withdraw_entries(first.submission_reference, "the older one was wrong")
    assert not any("was wrong" in body_of(client, link) for link in links)
    withdraw_entries(last.submission_reference, "the newer one was wrong")
    assert all("the newer one was wrong" in body_of(client, link) for link in links)


def test_a_benchmark_marks_the_result_whose_value_it_shows_and_no_other_of_the_system(client: Client) -> None:
    dataset, other = scored_dataset(name="First"), scored_dataset(name="Second")
    system = make_system("twice")
    older, newer = score(dataset, system, ndcg=0.2), score(dataset, system, ndcg=0.3)
    score(other, system, ndcg=0.5)
    make_benchmark(dataset, other)
    pass_time()
    link = permalink_of(client, "/benchmarks/two/")
    withdraw_entries(older.submission_reference, "the older one was wrong")
    assert "was wrong" not in body_of(client, link)
    assert values_of(client, link, dataset.slug) == {"twice": 0.3}
    withdraw_entries(newer.submission_reference, "the newer one was wrong")
    assert "the newer one was wrong (First)" in body_of(client, link)
    assert "older" not in body_of(client, link)


def test_what_was_open_is_told_as_of_hidden_judgements_once_they_are_hidden(client: Client) -> None:
    whole = make_dataset(name="Forums", slug="forums", hidden=False, measures=["nDCG@10"])
    dataset = scored_dataset(name="Set", part_of=whole)
    bm25 = make_system("BM25")
    score(dataset, bm25, baseline=True, ndcg=0.123456)
    score(dataset, "Dense", ndcg=0.2345678)
    score_seeds(dataset, "Seeds", {"ndcg": 0.31234}, {"ndcg": 0.32345})
    report(dataset, make_source("paper"), "Printed", ndcg=0.4567)
    make_benchmark(dataset, whole)
    pass_time()
    paths = (f"/datasets/{dataset.slug}/", "/datasets/forums/", "/benchmarks/two/")
    links = [permalink_of(client, path) for path in paths]
    assert values_of(client, links[0])["Dense"] == 0.2345678
    assert "0.235, +0.111 over" in client.get("/news/").content.decode()

    dataset.hidden = True
    dataset.save()
    refresh_scores(dataset)
    rows = values_of(client, links[0])
    assert rows == {"BM25": 0.123, "Dense": 0.235, "Seeds": 0.318, "Printed": 0.4567}
    assert values_of(client, links[1])["Dense"] == 0.235
    assert values_of(client, links[2], dataset.slug)["Dense"] == 0.235
    for link in links:
        page = client.get(link).content.decode()
        assert not re.search(r"0\.(2345|2346|1234|1235|3179|3178)", page)
        for ending in ("csv", "json", "md", "tex"):
            assert "0.2345" not in client.get(f"{link}board.{ending}").content.decode()
    assert "The judgments are hidden" in client.get(links[0]).content.decode()
    assert "0.2346" not in client.get("/news/").content.decode()
    assert "New result, Dense on Set: nDCG@10 0.235, +0.112 over BM25" in [item.title for item in news.news_page(1)[1]]


def test_the_mean_of_hidden_parts_has_three_decimals_and_says_why(client: Client) -> None:
    whole, parts = make_whole()
    system = make_system("BM25")
    for part in parts:
        Dataset.objects.filter(pk=part.pk).update(hidden=True)
        part.hidden = True
        score(part, system, ndcg=0.12345)
    make_benchmark(whole)
    pass_time()
    for path in ("/datasets/forums/", "/benchmarks/two/"):
        for each in (path, permalink_of(client, path)):
            assert "0.123" in body_of(client, each)
            assert "0.1230" not in body_of(client, each)
    for path in ("/datasets/forums/", permalink_of(client, "/datasets/forums/")):
        assert "The judgments are hidden" in client.get(path).content.decode()


def test_only_systems_that_still_have_a_page_are_linked(client: Client) -> None:
    dataset, other = scored_dataset(name="First"), scored_dataset(name="Second")
    kept_back, elsewhere, withdrawn = (make_system(name) for name in ("Back", "Elsewhere", "Withdrawn"))
    entries = [score(dataset, system, ndcg=0.5) for system in (kept_back, elsewhere, withdrawn)]
    score(other, elsewhere, ndcg=0.5)
    make_benchmark(dataset)
    pass_time()
    links = [permalink_of(client, path) for path in (f"/datasets/{dataset.slug}/", "/benchmarks/two/")]
    for entry in entries[:2]:
        set_visibility(entry.submission_reference, public=False)
    withdraw_entries(entries[2].submission_reference, "a bug")
    for link in links:
        linked = re.findall(r'href="(/systems/[^"]+/)"', body_of(client, link))
        assert sorted(linked) == sorted(f"/systems/{each.slug}/" for each in (elsewhere, withdrawn))
        assert all(client.get(address).status_code == 200 for address in linked)
        assert "Back" in body_of(client, link)


def test_a_time_is_written_in_one_way(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    pass_time()
    link = permalink_of(client, f"/datasets/{dataset.slug}/")
    assert client.get(link).status_code == 200
    before, at, moment = link.partition("/at/")
    arabic = moment[:4].translate({ord("0") + number: 0x660 + number for number in range(10)})
    assert client.get(f"{before}{at}{arabic}{moment[4:]}").status_code == 404


def test_the_generated_board_has_permalinks_and_another_view_of_one_is_made_of_what_is_known(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_board(5, 3)
    pass_time()
    path = "/benchmarks/generated/"
    link = permalink_of(client, path)
    assert body_of(client, link) == body_of(client, path)
    at = timezone.now().replace(microsecond=0)
    made = []
    monkeypatch.setattr(
        "leaderboard.boards.benchmark.board.build_rows", lambda *given: made.append(1) or build_rows(*given)
    )
    for _ in range(2):
        assert benchmark_page("generated", BoardState(), at=at)
        assert benchmark_page("generated", BoardState())
    assert made == []


def test_old_boards_are_kept_by_their_size(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    datasets = [scored_dataset() for _ in range(3)]
    for dataset in datasets:
        for name in ("first", "second"):
            score(dataset, name, ndcg=0.4)
    revisions = past.revisions_at([dataset.pk for dataset in datasets], timezone.now() + timedelta(seconds=2))
    weight = max(rows.decoded_size(each.text_bytes) for each in rows.rows_at(revisions).values())
    assert weight > 4 * 2 * 500  # two rows of half a kilobyte or more, four times their text
    for room, kept in ((3 * weight, 3), (2 * weight, 2), (100, 0)):
        monkeypatch.setattr(rows, "board_cache", rows.TTLCache(room))
        before = rows.rows_at(revisions)
        keys = [f"rows {dataset}:{revision.key}" for dataset, revision in revisions.items()]
        assert sum(rows.board_cache.get(key) is not None for key in keys) == kept
        with django_assert_num_queries(0 if kept == 3 else 1):
            again = rows.rows_at(revisions)
        assert {key: each.entries for key, each in again.items()} == {key: each.entries for key, each in before.items()}
