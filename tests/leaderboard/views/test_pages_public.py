"""What a visitor meets on every page."""

from __future__ import annotations

import gzip
import re

import pytest
from django.db import OperationalError, connection
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from leaderboard.core.http import errors
from leaderboard.models import Benchmark, Dataset, Entry, System
from leaderboard.results.publishing.visibility import withdraw_entries
from tests.factories import make_user
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

PAGES = [
    "/", "/datasets/", "/datasets/nq/", "/datasets/msmarco/?sort=latency", "/benchmarks/", "/benchmarks/beir/",
    "/benchmarks/query-augmentation/", "/systems/bm25-beir-2021/", "/measures/", "/formats/", "/nowhere/",
    "/benchmarks/beir/?sort=nonsense", "/account/login/", "/account/signup/", "/account/password/reset/",
]  # fmt: skip


@pytest.fixture
def _loaded() -> None:
    load_reported()


@pytest.mark.usefixtures("_loaded")
@pytest.mark.parametrize("address", PAGES)
def test_no_page_has_scripts_or_styles_inside_it(client: Client, address: str) -> None:
    page = client.get(address).content.decode()
    assert "<!DOCTYPE html>" in page
    assert not re.search(r'<script(?![^>]*\s(src=|type="application/json"))', page)
    assert "<style" not in page
    assert not re.search(r"\sstyle=", page)
    assert not re.search(r"\son[a-z]+=", page)
    assert "javascript:" not in page


@pytest.mark.usefixtures("_loaded")
def test_every_link_to_a_page_of_ours_leads_somewhere(client: Client) -> None:
    links = {}
    for address in PAGES:
        page = client.get(address).content.decode()
        links.update(dict.fromkeys(re.findall(r'href="(/[^"#?]*)', page), address))
    for link in sorted(links.keys() - {"/submit/", "/submissions/"}):
        if not link.startswith("/static/"):
            assert client.get(link, follow=True).status_code == 200, f"{link} on {links[link]}"


@pytest.mark.usefixtures("_loaded")
def test_headings_of_a_board_are_links_and_say_how_it_is_sorted(client: Client) -> None:
    page = client.get("/datasets/trec-covid/?sort=R_cap@100&architecture=dense").content.decode()
    assert page.count("aria-sort=") == 1
    assert 'aria-sort="descending"><a href="/datasets/trec-covid/?sort=R_cap@100:asc&amp;architecture=dense"' in page
    assert "<caption" in page
    turned = client.get("/datasets/trec-covid/?sort=R_cap@100&order=asc").content.decode()
    assert 'aria-sort="ascending"' in turned


def test_names_from_submitters_are_escaped(client: Client) -> None:
    dataset = scored_dataset(description="<script>alert(1)</script> [x](javascript:alert(1)) **bold**")
    system = make_system("<img src=x onerror=alert(1)>", description="<b onclick=x>hi</b>")
    score(dataset, system, ndcg=0.5)
    for address in (
        "/",
        f"/datasets/{dataset.slug}/",
        f"/systems/{system.slug}/",
        f"/teams/{system.team.slug}/",
    ):
        page = client.get(address).content.decode()
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert "<b onclick" not in page
        assert 'href="javascript' not in page


def test_a_system_stands_beside_bm25_over_word_pieces_of_its_own_job(client: Client) -> None:
    dataset, system = scored_dataset(), make_system("augmented", architecture="query-augmentation")
    score(dataset, "BM25", baseline=True, ndcg=0.32)
    main, beside, other = (score(dataset, system, ndcg=value) for value in (0.36, 0.30, 0.31))
    for entry, configuration, reference in (
        (main, "augmented and weighted · seed 1", "one"),
        (beside, "bm25-wordpiece · seed 1", "one"),
        (other, "augmented and weighted · seed 2", "two"),
    ):
        entry.configuration, entry.submission_reference = configuration, reference
        entry.save()
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert ">Δ vs bm25-wordpiece</th>" in page
    assert "+0.060" in page
    assert "+20.0" in page
    results = {
        result["configuration"]: result for result in client.get(f"/api/v1/systems/{system.slug}/").json()["results"]
    }
    assert results[main.configuration]["word_pieces_delta"] == pytest.approx(0.06)
    assert results[main.configuration]["delta"] == pytest.approx(0.04)
    assert results[beside.configuration]["word_pieces"] is None
    assert results[other.configuration]["word_pieces"] is None
    plain = score(dataset, "plain", ndcg=0.5).system
    assert "bm25-wordpiece" not in client.get(f"/systems/{plain.slug}/").content.decode()


def test_home_shows_the_newest_results_with_their_difference_and_not_private_ones(client: Client) -> None:
    dataset = scored_dataset(hidden=True)
    score(dataset, "BM25", baseline=True, ndcg=0.4)
    score(dataset, "newcomer", ndcg=0.5)
    score(dataset, "kept back", ndcg=0.9, public=False)
    page = client.get("/").content.decode()
    assert "newcomer" in page
    assert "+0.100" in page
    assert "kept back" not in page


def test_a_dataset_in_preparation_has_no_page(client: Client) -> None:
    dataset = scored_dataset(state=Dataset.State.PREPARING)
    assert client.get(f"/datasets/{dataset.slug}/").status_code == 404
    assert dataset.name not in client.get("/datasets/").content.decode()


@pytest.mark.usefixtures("_loaded")
def test_datasets_that_take_runs_stand_first(client: Client) -> None:
    page = client.get("/datasets/").content.decode()
    assert "Open for runs" not in page  # one group needs no heading
    scored_dataset(name="Zebra")
    page = client.get("/datasets/").content.decode()
    places = [page.index(text) for text in ("Open for runs", "Zebra", "Reported figures only", "ArguAna", "TREC-COVID")]
    assert places == sorted(places)
    listed = client.get("/api/v1/datasets/").json()["datasets"]
    assert listed[0]["name"] == "Zebra"


def test_the_policy_of_hidden_and_open_judgements_is_told(client: Client) -> None:
    hidden, open_one = scored_dataset(hidden=True), scored_dataset(hidden=False)
    page = one_line(client.get(f"/datasets/{hidden.slug}/").content.decode())
    assert "Only the scorer and curators with a special permission can read them." in page
    assert "Open. Qrels can be downloaded" in client.get(f"/datasets/{open_one.slug}/").content.decode()


def test_a_withdrawn_result_leaves_a_tombstone_on_the_dataset_and_no_row(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "gone", ndcg=0.5)
    withdraw_entries(entry.submission_reference, "wrong qrels")
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert "withdrawn by its team: wrong qrels" in page
    assert '<th scope="row" class="name">' not in page


def test_pages_that_say_sorry_need_no_database(rf: RequestFactory) -> None:
    request = rf.get("/")
    with CaptureQueriesContext(connection) as queries:
        page = errors.error_response(request, ValueError("something")).content.decode()
        away = errors.error_response(request, OperationalError("no route")).content.decode()
        bare = render_to_string("500.html")
    assert len(queries) == 0
    assert "Fault <code>" in page
    assert "our fault" in bare
    assert "briefly unavailable" in away


# --- the page cache


def test_a_change_of_the_board_is_seen_at_once(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "first", ndcg=0.5)
    Benchmark.objects.create(slug="all", name="All").members.create(dataset=dataset)
    addresses = [
        "/",
        "/datasets/",
        f"/datasets/{dataset.slug}/",
        "/benchmarks/all/",
        f"/datasets/{dataset.slug}/board.csv",
    ]
    before = [client.get(address).content for address in addresses]
    assert [client.get(address).content for address in addresses] == before
    score(dataset, "second", ndcg=0.9)
    assert all(client.get(address).content != old for address, old in zip(addresses, before, strict=True))


def test_a_kept_page_costs_one_query_and_is_sent_compressed_with_a_tag(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "first", ndcg=0.5)
    address = f"/datasets/{dataset.slug}/"
    plain = client.get(address)
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert len(queries) == 1
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.content) == plain.content
    assert {"Cookie", "Accept-Encoding"} <= set(answer.headers["Vary"].split(", "))
    again = client.get(address, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_whoever_is_signed_in_gets_the_same_board_and_their_own_frame(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "first", ndcg=0.5)
    address = f"/datasets/{dataset.slug}/"
    anonymous = client.get(address).content.decode()
    client.force_login(make_user())
    own = client.get(address)
    assert "My submissions" in own.content.decode()
    assert "private" in own.headers["Cache-Control"]
    table = re.compile(r"<tbody>.*?</tbody>", re.DOTALL)
    assert table.search(own.content.decode()).group() == table.search(anonymous).group()  # type: ignore[union-attr]
    client.logout()
    assert "My submissions" not in client.get(address).content.decode()


def test_searches_are_answered_and_not_kept(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "needle", ndcg=0.5)
    score(dataset, "hay", ndcg=0.6)
    answer = client.get(f"/datasets/{dataset.slug}/?q=need")
    assert "ETag" not in answer.headers
    page = answer.content.decode()
    assert re.findall(r'<th scope="row" class="name"><a [^>]*>(\w+)<', page) == ["needle"]
    assert re.search(r">hay</a> .*nDCG@10 0\.600", one_line(page)), "the sentence is of the whole board"


# --- the read path


def test_a_board_takes_few_queries_however_many_rows_and_makes_no_entries(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = [scored_dataset() for _ in range(3)]
    benchmark = Benchmark.objects.create(slug="all", name="All")
    systems = [make_system(f"system {number}") for number in range(12)]
    for dataset in datasets:
        benchmark.members.create(dataset=dataset)
        for system in systems:
            score(dataset, system, ndcg=0.5)
    made: list[str] = []
    for model in (Entry, System, Benchmark):
        monkeypatch.setattr(model, "__init__", lambda self, *args, **kwargs: made.append(type(self).__name__))
    for address in (f"/datasets/{datasets[0].slug}/", "/benchmarks/all/"):
        clear_page_cache()
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        assert len(queries) <= 12, address  # a constant: rounds and protection are asked for too
    assert made == []
