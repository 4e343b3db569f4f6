"""The news: what happened on the boards, and nothing that is private."""

from __future__ import annotations

import datetime
import html
import uuid
from xml.etree import ElementTree

import pytest
from django.db.models import F
from django.test import Client

from leaderboard.boards import news
from leaderboard.models import BoardChange, Dataset, Source, System, Team
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.results.publishing.visibility import name_baseline, quarantine, set_visibility, withdraw_entries
from leaderboard.results.significance.hidden import known_difference
from tests.leaderboard.entries import renew_judgements, score, scored_dataset
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

ATOM = "{http://www.w3.org/2005/Atom}"


def titles() -> list[str]:
    """The titles of the first page."""
    return [item.title for item in news.news_page(1)[1]]


def test_results_come_with_their_score_their_difference_and_whether_they_were_the_best() -> None:
    dataset = scored_dataset(name="Set")
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    best = score(dataset, "Better", ndcg=0.5)
    score(dataset, "Worse", ndcg=0.125)
    found = news.news_page(1)[1]
    assert [item.title for item in found] == [
        "New result, Worse on Set: nDCG@10 0.125, 0.125 below BM25",
        "New result, Better on Set: nDCG@10 0.500, +0.250 over BM25",
        "New result, BM25 on Set: nDCG@10 0.250",
    ]
    assert [item.new_best for item in found] == [False, True, False]
    withdraw_entries(best.submission_reference, "a bug")
    assert titles()[0] == "Withdrawn, Better on Set: a bug"
    assert titles()[2].endswith("; later withdrawn")


def test_best_scores_of_a_day_keep_their_order_whatever_the_teams_are_called() -> None:
    dataset = scored_dataset(name="Set")
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    for name, team, ndcg in (("First", "Zebra", 0.5), ("Second", "Ape", 0.6), ("Worse", "Ape", 0.1)):
        entry = score(dataset, name, ndcg=ndcg)
        System.objects.filter(pk=entry.system_id).update(team=Team.objects.get_or_create(slug=team, name=team)[0])
    items = news.news_page(1)[1]
    at = items[0].at  # Published at the same instant.
    (day,) = news.group_by_day([item._replace(at=at) for item in items])
    assert [(item.system, item.new_best) for item in day.items[:2]] == [("Second", True), ("First", True)]


def test_results_of_an_import_are_one_item_for_each_dataset() -> None:
    dataset = scored_dataset(name="Set")
    for name, ndcg in (("BM25", 0.25), ("First", 0.5), ("Second", 0.6), ("Worse", 0.1)):
        score(dataset, name, baseline=name == "BM25", ndcg=ndcg)
    score(scored_dataset(name="Other"), "Alone", ndcg=0.5)
    System.objects.update(team=None)
    System.objects.filter(name="Second").update(participant="H2oloo")
    (day,) = news.group_by_day(news.news_page(1)[1])
    assert [(item.title, item.new_best) for item in day.items] == [
        ("New results, Set: 4 results, the best is Second with nDCG@10 0.600, +0.350 over BM25", True),
        ("New result, Alone on Other: nDCG@10 0.500", False),
    ]


def test_an_import_is_one_item_in_the_page_and_the_feed_with_the_count_of_all_its_results(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "ITEMS_PER_PAGE", 2)
    dataset = scored_dataset(name="Set")
    copied = score(dataset, "Copied", ndcg=0.05)
    for number in range(5):
        score(dataset, f"Run {number}", ndcg=0.1 + number / 100)
    System.objects.update(team=None)

    def feed_entries() -> list[tuple[str, str]]:
        clear_page_cache()
        feed = ElementTree.fromstring(client.get("/news/atom.xml").content)
        rows = feed.findall(f"{ATOM}entry")
        return [(row.findtext(f"{ATOM}title") or "", row.findtext(f"{ATOM}id") or "") for row in rows]

    ((title, identifier),) = feed_entries()
    assert titles() == [title] == ["New results, Set: 6 results, the best is Run 4 with nDCG@10 0.140"]
    assert "6 results, the best is Run 4" in client.get("/news/").content.decode()
    score(dataset, "Late", ndcg=0.05)
    System.objects.update(team=None)
    assert feed_entries() == [(title.replace("6", "7"), identifier)]
    quarantine(copied, "copied")
    assert sorted(titles()) == [
        "New result, Copied on Set: later quarantined by a curator",
        "New results, Set: 6 results, the best is Run 4 with nDCG@10 0.140",
    ]


def test_hidden_datasets_have_rounded_numbers_and_nothing_private_is_told(client: Client) -> None:
    dataset = scored_dataset(name="Set", hidden=True)
    score(dataset, "BM25", baseline=True, ndcg=0.123456)
    secret = score(dataset, "Secret", ndcg=0.987654, public=False)
    assert titles() == ["New result, BM25 on Set: nDCG@10 0.123"]
    set_visibility(secret.submission_reference, public=True)
    assert titles()[0] == "New result, Secret on Set: nDCG@10 0.988, +0.865 over BM25"
    set_visibility(secret.submission_reference, public=False)
    assert len(titles()) == 1
    for address in ("/news/", "/news/atom.xml"):
        text = client.get(address).content.decode()
        assert "BM25" in text
        assert "Secret" not in text
        assert "0.1234" not in text
    score(scored_dataset(name="Unborn", state=Dataset.State.PREPARING), "Early", ndcg=0.5)
    assert not any("Unborn" in title for title in titles())


def test_imports_say_what_they_changed() -> None:
    dataset = scored_dataset(name="Set", task="Fact Checking", domain="Scientific")
    board_changed(dataset, Kind.IMPORTED)
    board_changed(dataset, Kind.IMPORTED)  # files alone: no news
    renew_judgements(dataset)
    board_changed(dataset, Kind.IMPORTED)
    dataset.measures = ["nDCG@10", "AP"]
    dataset.save()
    board_changed(dataset, Kind.IMPORTED)
    name_baseline(score(dataset, "BM25", ndcg=0.5))
    assert titles() == [
        "New baseline, BM25 on Set: now the baseline of the board",
        "New result, BM25 on Set: nDCG@10 0.500",
        "Measures changed, Set: nDCG@10, AP",
        "New version, Set: earlier results are stale until they are scored again",
        "New dataset, Set: Fact Checking, Scientific",
    ]


def test_reported_tables_are_one_item_for_each_publication(client: Client) -> None:
    load_reported()
    found = news.news_page(1)[1]
    beir = next(item for item in found if "Thakur" in item.title)
    assert beir.title.endswith("10 systems on 19 datasets")
    assert len(found) == len({item.key for item in found}) == Source.objects.count()
    page = client.get("/news/").content.decode()
    assert "BEIR: A Heterogeneous Benchmark" in page
    assert (beir.url, beir.system, beir.dataset) == ("/benchmarks/beir/", "", "")
    assert '· Leaderboard: <a href="/benchmarks/beir/">BEIR</a>' in one_line(page)
    single = next(item for item in found if item.title.endswith("1 system on 1 dataset"))
    assert (single.url, single.note in page) == (f"/datasets/{single.dataset_slug}/", True)
    for address in (f"/systems/{single.system_slug}/", single.url):
        assert f'href="{address}"' in page
        assert client.get(address).status_code == 200
    assert 'href="/news/"' in page
    Dataset.objects.filter(slug=single.dataset_slug).update(state=Dataset.State.PREPARING)
    assert single.dataset not in {item.dataset for item in news.news_page(1)[1]}, "it is in preparation"


def test_days_and_pages(client: Client) -> None:
    dataset = scored_dataset()
    for number in range(news.ITEMS_PER_PAGE + 1):
        score(dataset, f"System {number}", ndcg=number / 100)
    first = BoardChange.objects.order_by("at").first()
    assert first is not None
    BoardChange.objects.filter(pk=first.pk).update(at=F("at") - datetime.timedelta(days=2))
    clear_page_cache()
    page = client.get("/news/").content.decode()
    assert page.count('class="news-kind"') == news.ITEMS_PER_PAGE
    assert "?page=2" in page
    for address in ("/news/?page=2", "/news/?page=999"):
        second = client.get(address, follow=True).content.decode()
        assert second.count('class="news-kind"') == 1
        assert "System 0<" in second
    wrong = client.get("/news/?page=no")
    assert wrong.status_code == 400
    assert "Valid: a whole number." in wrong.content.decode()


def test_the_feed_is_atom(client: Client) -> None:
    dataset = scored_dataset(name="A & B")
    score(dataset, "<b>", ndcg=0.5)
    answer = client.get("/news/atom.xml")
    assert answer.headers["Content-Type"].startswith("application/atom+xml")
    feed = ElementTree.fromstring(answer.content)
    assert feed.tag == f"{ATOM}feed"
    (entry,) = feed.findall(f"{ATOM}entry")
    assert entry.findtext(f"{ATOM}title") == "New result, <b> on A & B: nDCG@10 0.500"
    assert html.unescape(entry.findtext(f"{ATOM}summary") or "") == entry.findtext(f"{ATOM}title")
    assert entry.find(f"{ATOM}summary").attrib["type"] == "html"  # type: ignore[union-attr]
    assert "<b>" not in (entry.findtext(f"{ATOM}summary") or "")
    assert feed.findtext(f"{ATOM}author/{ATOM}name") == "Runboard"
    assert entry.find(f"{ATOM}link").attrib["href"] == f"http://testserver/datasets/{dataset.slug}/"  # type: ignore[union-attr]
    assert feed.findtext(f"{ATOM}updated")
    assert entry.findtext(f"{ATOM}updated")
    again = client.get("/news/atom.xml", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_ids_of_news_stay_and_are_of_one_installation(client: Client) -> None:
    score(scored_dataset(), "One", ndcg=0.5)

    def ids(host: str) -> list[str]:
        clear_page_cache()
        feed = ElementTree.fromstring(client.get("/news/atom.xml", headers={"host": host}).content)
        return [entry.findtext(f"{ATOM}id") or "" for entry in feed.findall(f"{ATOM}entry")]

    (first,) = ids("testserver")
    assert uuid.UUID(first)
    assert ids("localhost") == [first]
    # The same change of another site was made at another moment.
    BoardChange.objects.update(at=F("at") + datetime.timedelta(microseconds=1))
    assert ids("testserver") != [first]


def test_who_shows_a_result_again_and_again_is_told_of_once(client: Client) -> None:
    dataset = scored_dataset(name="Set")
    toggled = score(dataset, "Loud", ndcg=0.5)
    score(dataset, "Quiet", ndcg=0.25)
    told = titles()
    for _ in range(5):
        set_visibility(toggled.submission_reference, public=False)
        set_visibility(toggled.submission_reference, public=True)
    assert titles() == told
    assert client.get("/news/atom.xml").content.decode().count("<entry>") == 2
    board_changed(dataset, Kind.PUBLISHED, toggled)
    assert titles() == told


@pytest.mark.parametrize("version_first", [True, False])
def test_a_dataset_that_opens_in_several_steps_is_one_item(version_first: bool) -> None:
    dataset = scored_dataset(name="Set", state=Dataset.State.REPORTED)
    version, dataset.current_version = dataset.current_version, None
    dataset.save()
    board_changed(dataset, Kind.IMPORTED)
    for step in ("version", "state") if version_first else ("state", "version"):
        if step == "version":
            dataset.current_version = version
        else:
            dataset.state = Dataset.State.PUBLISHED
        dataset.save()
        board_changed(dataset, Kind.IMPORTED)
    assert [title for title in titles() if "opened" in title] == ["Dataset opened, Set: now open for runs"]
    assert len(titles()) == 2


def test_a_result_is_compared_with_a_baseline_that_is_named_later() -> None:
    dataset = scored_dataset(name="Set")
    score(dataset, "Early", ndcg=0.5)
    baseline = score(dataset, "BM25", ndcg=0.25)
    assert titles()[1] == "New result, Early on Set: nDCG@10 0.500"
    name_baseline(baseline)
    assert "New result, Early on Set: nDCG@10 0.500, +0.250 over BM25" in titles()
    assert "New result, BM25 on Set: nDCG@10 0.250" in titles()


def test_a_baseline_that_is_named_later_tells_the_least_difference_on_hidden_judgements() -> None:
    dataset = scored_dataset(name="Set", hidden=True)
    score(dataset, "Early", ndcg=0.9)
    baseline = score(dataset, "BM25", ndcg=0.25)
    dataset.refresh_from_db()
    assert known_difference(dataset) is None
    name_baseline(baseline)
    dataset.refresh_from_db()
    assert known_difference(dataset) is not None


def test_only_significant_best_scores_have_a_green_bar_and_teams_are_named_as_such(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = scored_dataset(name="Set")
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    score(dataset, "Better", ndcg=0.5)
    score(dataset, "Worse", ndcg=0.1)
    System.objects.update(team=Team.objects.create(slug="ps", name="PS"))
    page = one_line(client.get("/news/").content.decode())
    assert '<li class="news-team">Team:<a href="/teams/ps/">PS</a></li>' in page
    assert '<li class="is-best"><span class="news-kind">New result</span>' in page
    entry_item = news._entry_item
    monkeypatch.setattr(news, "_entry_item", lambda *facts: entry_item(*facts)._replace(significant=True))
    clear_page_cache()
    assert '<li class="is-best is-significant">' in one_line(client.get("/news/").content.decode())
