"""A permalink shows the board as it was: whatever is published, renamed, repriced or withdrawn later."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from leaderboard.models import (
    Benchmark,
    BenchmarkCertainty,
    BenchmarkMember,
    BenchmarkVersion,
    BoardChange,
    Dataset,
    Entry,
    EntryVersion,
    Price,
    System,
)
from leaderboard.results.board_rows.past import next_second
from leaderboard.results.board_rows.revisions import (
    LAYOUT,
    Kind,
    benchmark_changed,
    board_changed,
    record_present,
    rows_to_store,
)
from leaderboard.results.board_rows.rows import board_cache
from leaderboard.results.efficiency import price_changed
from leaderboard.results.publishing.descriptions import system_changed, team_changed
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.visibility import (
    name_baseline,
    quarantine,
    restore,
    set_visibility,
    withdraw_entries,
)
from tests.factories import make_dataset
from tests.leaderboard.entries import cost, make_system, renew_judgements, score, scored_dataset
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def pass_time(hours: int = 1) -> None:
    """Let everything so far have happened so many hours earlier."""
    earlier = F("at") - datetime.timedelta(hours=hours)
    BoardChange.objects.update(at=earlier)
    BenchmarkVersion.objects.update(at=earlier)
    BenchmarkCertainty.objects.update(computed_at=F("computed_at") - datetime.timedelta(hours=hours))
    clear_page_cache()


def permalink_of(client: Client, path: str) -> str:
    """The address that the page at `path` names as the one that stays."""
    found = re.search(r'<a href="([^"]+)">Permalink</a>', client.get(path).content.decode())
    assert found, path
    return found[1].replace("&amp;", "&")


def table_of(client: Client, path: str) -> list[dict[str, Any]]:
    """The rows of the board at `path`, without what says that they were taken off since."""
    rows = client.get(f"{path}board.json").json()["rows"]
    return [{name: value for name, value in row.items() if name != "withdrawn"} for row in rows]


def body_of(client: Client, path: str) -> str:
    """The table's rows as the page has them."""
    found = re.search(r"<tbody>(.*?)</tbody>", client.get(path).content.decode(), re.DOTALL)
    assert found
    return re.sub(r'<button class="pin".*?</button>', "", found[1])


def make_benchmark(*datasets: Dataset) -> Benchmark:
    """A benchmark of the datasets, all of which count."""
    benchmark = Benchmark.objects.create(slug="two", name="Two of a kind")
    for position, dataset in enumerate(datasets):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
    record_present()
    return benchmark


def test_figures_order_and_names_stay_whatever_comes_later(client: Client) -> None:
    dataset = scored_dataset()
    bm25 = score(dataset, "BM25", baseline=True, ndcg=0.25, recall=0.5)
    system = make_system("Anonymous 17", licence="MIT")
    entry = score(dataset, system, ndcg=0.5, recall=0.4)
    measured = cost(entry, 20.0)
    Price.objects.create(hardware=measured.hardware, per_hour=3, valid_from="2020-01-01")
    price_changed(measured.hardware)
    make_benchmark(dataset, scored_dataset())
    pass_time()
    paths = (f"/datasets/{dataset.slug}/", "/benchmarks/two/")
    links = {path: permalink_of(client, path) for path in paths}
    before = {path: (table_of(client, path), body_of(client, path)) for path in paths}

    score(dataset, "Newcomer", ndcg=0.9, recall=0.9)
    system.name, system.licence = "Our Great System", "GPL"
    system.save()
    system_changed(system)
    system.team.name = "The Winners"  # type: ignore[union-attr]
    system.team.save()  # type: ignore[union-attr]
    team_changed(system.team)  # type: ignore[arg-type]
    Price.objects.create(hardware=measured.hardware, per_hour=99, valid_from="2021-01-01")
    price_changed(measured.hardware)
    cost(entry, 1.0)
    renew_judgements(dataset)
    board_changed(dataset, Kind.IMPORTED)
    withdraw_entries(entry.submission_reference, "we found a bug")

    for path, link in links.items():
        assert link.startswith(path + "at/")
        rows, body = before[path]
        assert table_of(client, link) == rows
        then = body_of(client, link)
        assert "Anonymous 17" in then
        assert "Our Great System" not in then
        assert "we found a bug" in then
        unmarked = re.sub(r'&ensp;<span class="badge is-withdrawn">withdrawn</span>', "", then)
        unmarked = re.sub(r'<span class="detail">(?:\s· )?we found a bug(?: \([^)]*\))?</span>', "", unmarked)
        assert unmarked.replace("<small></small>", "").replace(' class="is-withdrawn"', "") == body
        page = one_line(client.get(link).content.decode())
        assert ">As of <time" in page
        assert "The Winners" not in page
        assert "Newcomer" not in page
        for ending in ("csv", "json", "md", "tex", "bib"):
            text = client.get(f"{link}board.{ending}")
            assert text.status_code == 200
            assert "Winners" not in text.content.decode()
    assert "Newcomer" in client.get(paths[0]).content.decode()
    assert bm25.pk


def test_a_private_result_never_has_a_version_and_raises_no_revision(client: Client) -> None:
    dataset = scored_dataset()
    shown = score(dataset, "BM25", baseline=True, ndcg=0.25)
    revision = Dataset.objects.get(pk=dataset.pk).board_revision
    hidden = score(dataset, "Secret", ndcg=0.5, public=False)
    cost(hidden, 20.0)
    system_changed(hidden.system)
    team_changed(hidden.system.team)  # type: ignore[arg-type]
    set_visibility(hidden.submission_reference, public=False)
    set_visibility(shown.submission_reference, public=True)
    withdraw_entries(hidden.submission_reference, "never mind")
    assert Dataset.objects.get(pk=dataset.pk).board_revision == revision
    assert not EntryVersion.objects.filter(entry=hidden).exists()
    assert EntryVersion.objects.filter(entry=shown).count() == 1


def test_what_was_private_then_is_not_on_the_board_of_then(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    late = score(dataset, "Late", ndcg=0.5, public=False)
    pass_time()
    link = permalink_of(client, f"/datasets/{dataset.slug}/")
    set_visibility(late.submission_reference, public=True)
    assert "Late" in client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert "Late" not in client.get(link).content.decode()
    pass_time()
    second = permalink_of(client, f"/datasets/{dataset.slug}/")
    set_visibility(late.submission_reference, public=False)
    page = client.get(second).content.decode()
    assert "Late" in page
    assert "no longer on the board" in page
    assert "withdrawn" not in page.casefold()
    Entry.objects.filter(pk=late.pk).update(visibility="unpublished", moderation_reason="asked for by its owner")
    clear_page_cache()
    assert client.get(second).content.decode() == page  # a curator's act tells no more


def test_versions_are_written_for_rows_that_changed_and_for_no_other() -> None:
    dataset = scored_dataset()
    first = score(dataset, "BM25", baseline=True, ndcg=0.25)
    others = [score(dataset, f"System {number}", ndcg=number / 10) for number in range(5)]
    assert EntryVersion.objects.count() == 6
    name_baseline(others[2])
    assert EntryVersion.objects.count() == 8
    closed = EntryVersion.objects.exclude(until_revision=None)
    assert set(closed.values_list("entry_id", flat=True)) == {first.pk, others[2].pk}
    board_changed(dataset, Kind.DESCRIPTION)
    assert EntryVersion.objects.count() == 8


def test_of_two_changes_within_one_second_the_later_one_counts(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    score(dataset, "Second", ndcg=0.5)
    second = timezone.now().replace(microsecond=0) - datetime.timedelta(hours=1)
    for number, change in enumerate(BoardChange.objects.order_by("revision")):
        change.at = second + datetime.timedelta(milliseconds=100 * number)
        change.save()
    link = permalink_of(client, f"/datasets/{dataset.slug}/")
    assert f"{second:%Y-%m-%dT%H:%M:%SZ}" in link
    assert "Second" in client.get(link).content.decode()
    assert next_second(second) - second == datetime.timedelta(seconds=1)


def test_before_the_first_version_is_404_and_says_when_the_board_begins(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    make_benchmark(dataset)
    for path in (f"/datasets/{dataset.slug}/", "/benchmarks/two/"):
        answer = client.get(f"{path}at/2001-01-01T00:00:00Z/")
        assert answer.status_code == 404
        assert "This board did not exist at this time" in answer.content.decode()
        assert permalink_of(client, path) in answer.content.decode()
        text = client.get(f"{path}at/2001-01-01T00:00:00Z/board.tex")
        assert text.status_code == 404
        assert "It begins at" in text.content.decode()
    for strange in ("2001-02-30T00:00:00Z", "2001-01-01", "9999-99-99T99:99:99Z"):
        assert client.get(f"/datasets/{dataset.slug}/at/{strange}/").status_code == 404
    assert client.get("/datasets/nowhere/at/2026-01-01T00:00:00Z/").status_code == 404
    to_come = client.get(f"/datasets/{dataset.slug}/at/9999-12-31T23:59:59Z/")
    assert to_come.status_code == 404
    assert "This time is in the future" in to_come.content.decode()


def test_a_dataset_that_was_not_public_then_has_no_board_then(client: Client) -> None:
    dataset = scored_dataset(state=Dataset.State.PREPARING)
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    pass_time(2)
    early = timezone.now().replace(microsecond=0) - datetime.timedelta(hours=1)
    dataset.state = Dataset.State.PUBLISHED
    dataset.save()
    board_changed(dataset, Kind.IMPORTED)
    assert client.get(f"/datasets/{dataset.slug}/at/{early:%Y-%m-%dT%H:%M:%SZ}/").status_code == 404
    assert client.get(permalink_of(client, f"/datasets/{dataset.slug}/")).status_code == 200


def test_a_past_board_is_kept_for_long_once_its_second_is_over_and_takes_the_views_of_the_present(
    client: Client,
) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25, recall=0.1)
    score(dataset, "Dense", ndcg=0.5, recall=0.2)
    fresh = client.get(permalink_of(client, f"/datasets/{dataset.slug}/"))
    assert fresh.headers["Cache-Control"] == "no-cache"
    pass_time()
    link = permalink_of(client, f"/datasets/{dataset.slug}/?sort=recall".replace("recall", "R@100") + "&q=dense")
    assert link.endswith("?q=dense&sort=R@100")
    plain = link.partition("?")[0]
    answer = client.get(plain)
    assert answer.headers["Cache-Control"] == "public, max-age=3600"
    again = client.get(plain, headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304
    assert again.headers["Cache-Control"] == "public, max-age=3600"
    assert [row["system"] for row in client.get(plain + "board.json?sort=system").json()["rows"]] == [
        "BM25",
        "Dense",
    ]
    assert client.get(plain + "board.csv?sort=colour").status_code == 400
    assert client.get(plain + "?sort=colour").status_code == 400


def test_members_of_a_benchmark_are_as_they_were(client: Client) -> None:
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    for dataset in (first, second):
        bm25 = score(dataset, make_system("BM25"), baseline=True, ndcg=0.25)
    assert bm25
    benchmark = make_benchmark(first)
    pass_time()
    link = permalink_of(client, "/benchmarks/two/")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=second, position=1)
    benchmark_changed(benchmark)
    board_changed(second, Kind.DESCRIPTION)
    columns = [column["label"] for column in client.get(f"{link}board.json").json()["columns"]]
    assert "First" in columns
    assert "Second" not in columns
    assert "Second" in client.get("/benchmarks/two/").content.decode()


def test_boards_older_than_the_record_get_a_first_date_once(client: Client) -> None:
    load_reported()
    BoardChange.objects.all().delete()
    EntryVersion.objects.all().delete()
    BenchmarkVersion.objects.all().delete()
    assert "Permalink</a>" not in client.get("/benchmarks/beir/").content.decode()
    record_present()
    changes = BoardChange.objects.count()
    assert changes == Dataset.objects.count()
    assert EntryVersion.objects.filter(until_revision=None).count() == Entry.objects.count()
    record_present()
    assert BoardChange.objects.count() == changes
    assert BenchmarkVersion.objects.count() == Benchmark.objects.count()
    for path in ("/benchmarks/beir/", "/datasets/trec-covid/", "/datasets/dbpedia-entity/"):
        link = permalink_of(client, path)
        assert body_of(client, link) == body_of(client, path)
        present, then = (client.get(f"{each}board.json").json() for each in (path, link))
        assert present == then


def test_rows_of_an_earlier_release_are_read_and_stored_anew_at_the_next_start(client: Client) -> None:
    dataset = scored_dataset()
    bm25 = score(dataset, "BM25", baseline=True, ndcg=0.25, recall=0.5)
    cost(score(dataset, make_system("Dense", licence="MIT", bibtex="@misc{a, title={B}}"), ndcg=0.5), 20.0)
    make_benchmark(dataset)
    paths = (f"/datasets/{dataset.slug}/", "/benchmarks/two/")
    endings = ("board.json", "board.csv", "board.bib")
    before = {path + ending: client.get(path + ending).content for path in paths for ending in endings}
    for version in EntryVersion.objects.all():
        row = {**version.row, "private_scores": {}}
        parts = {name: row.pop(name, default) for name, default in (("measured", []), ("bibtex", ""))}
        del row["layout"]
        version.row = {"entry": row, "line": {"system_id": row.pop("system_id")}, **parts}
        version.save()
    clear_page_cache()
    board_cache.clear()
    assert {path: client.get(path).content for path in before} == before
    name_baseline(Entry.objects.get(system__name="Dense"))
    name_baseline(bm25)
    revision = BoardChange.objects.count()
    for _ in range(2):
        record_present()
        assert BoardChange.objects.count() == revision
    EntryVersion.objects.filter(until_revision=None, entry=bm25).update(row={"layout": 1, **bm25_row(bm25)})
    board_cache.clear()
    for _ in range(2):
        record_present()
        assert BoardChange.objects.count() == revision + 1
    assert set(present_layouts()) == {LAYOUT}


def bm25_row(entry: Entry) -> dict[str, Any]:
    """The present row of an entry, but for its layout."""
    row = EntryVersion.objects.get(entry=entry, until_revision=None).row
    return {name: value for name, value in row.items() if name != "layout"}


def present_layouts() -> list[int]:
    """In which layouts the rows of present boards are stored."""
    return [version.row["layout"] for version in EntryVersion.objects.filter(until_revision=None)]


def test_a_row_that_was_never_stored_is_at_the_next_start(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "BM25", baseline=True, ndcg=0.25)
    EntryVersion.objects.filter(entry=entry).delete()
    board_cache.clear()
    clear_page_cache()
    assert table_of(client, f"/datasets/{dataset.slug}/") == []
    record_present()
    assert [row["system"] for row in table_of(client, f"/datasets/{dataset.slug}/")] == ["BM25"]


def test_what_is_stored_is_what_the_tables_say_after_every_change() -> None:
    dataset, other = scored_dataset(), scored_dataset()
    bm25 = score(dataset, "BM25", baseline=True, ndcg=0.25)
    system = make_system("Dense")
    entry, private = score(dataset, system, ndcg=0.5), score(dataset, "Private", ndcg=0.4, public=False)
    score(other, system, ndcg=0.5)
    measured = cost(entry, 20.0)
    Price.objects.create(hardware=measured.hardware, per_hour=3, valid_from="2020-01-01")
    changes: list[Callable[[], object]] = [
        lambda: price_changed(measured.hardware),
        lambda: set_visibility(private.submission_reference, public=True),
        lambda: set_visibility(private.submission_reference, public=False),
        lambda: name_baseline(entry),
        lambda: withdraw_entries(entry.submission_reference, "a bug"),
        lambda: name_baseline(bm25),
        lambda: quarantine(Entry.objects.get(system__name="Dense", dataset=other), "too good"),
        lambda: restore(Entry.objects.get(system__name="Dense", dataset=other)),
        lambda: (System.objects.filter(pk=system.pk).update(name="New"), system_changed(system)),
        lambda: refresh_scores(dataset),
    ]
    for change in changes:
        change()
        for each in (dataset, other):
            versions = EntryVersion.objects.filter(dataset=each, until_revision=None)
            assert dict(versions.values_list("entry_id", "row")) == rows_to_store(each.entries.all())


def test_what_old_versions_hold_of_a_system_is_what_was_shown(client: Client) -> None:
    dataset = scored_dataset()
    system = make_system("Blind", bibtex="")
    score(dataset, system, ndcg=0.5)
    pass_time()
    link = permalink_of(client, f"/datasets/{dataset.slug}/")
    System.objects.filter(pk=system.pk).update(bibtex="@misc{known, author={Ada Lovelace}, title={Not blind}}")
    system.refresh_from_db()
    system_changed(system)
    assert "Lovelace" in client.get(f"/datasets/{dataset.slug}/board.bib").content.decode()
    assert "Lovelace" not in client.get(f"{link}board.bib").content.decode()


def test_the_mean_of_parts_is_as_it_was(client: Client) -> None:
    whole = make_dataset(name="Whole", hidden=False, measures=["nDCG@10"])
    parts = [scored_dataset(name=f"Part {number}", part_of=whole) for number in (1, 2)]
    bm25, dense = make_system("BM25"), make_system("Dense")
    for part in parts:
        score(part, bm25, baseline=True, ndcg=0.25)
    entries = [score(part, dense, ndcg=0.5 + number / 4) for number, part in enumerate(parts)]
    make_benchmark(whole)
    pass_time()
    paths = ("/datasets/" + whole.slug + "/", "/benchmarks/two/")
    before = {path: (permalink_of(client, path), table_of(client, path)) for path in paths}
    assert [row["system"] for row in before[paths[0]][1]] == ["Dense", "BM25"]
    for part in parts:
        score(part, "Later", ndcg=0.9)
    withdraw_entries(entries[1].submission_reference, "a bug")
    for link, rows in before.values():
        assert table_of(client, link) == rows
        assert "a bug" in client.get(link).content.decode()
    for path in paths:
        assert [row["system"] for row in table_of(client, path)] == ["BM25"]
