"""Kept pages: how much room they may take, whose they are, and what goes out with them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from leaderboard.core.cache import pages
from leaderboard.core.cache.memory import FixedCache, TTLCache
from leaderboard.core.cache.pages import CachedPage, accepts_gzip, etag_matches
from leaderboard.models import Dataset
from leaderboard.results.publishing.descriptions import system_changed
from leaderboard.settings.environment import site_address
from tests.factories import make_user
from tests.leaderboard.comparison.test_queries import GOOD, POOR
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.leaderboard.open_runs import open_dataset, run_for
from tests.pages import clear_page_cache

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def dataset() -> Dataset:
    """A dataset with one result, of which nothing is kept."""
    clear_page_cache()
    dataset = scored_dataset()
    score(dataset, "first", ndcg=0.5, recall=0.6)
    return dataset


def kept_in(broker: redis.Redis) -> list[str]:
    """What the server keeps, by key. What pages were counted is there too, now and then."""
    keys = [key.decode().rpartition(":1:")[2] for key in broker.scan_iter()]
    return [key for key in keys if not key.startswith("pages-counted")]


def pages_in(broker: redis.Redis) -> int:
    """How many pages the server keeps."""
    return len(kept_in(broker))


# --- how much


def test_views_that_anybody_can_make_up_take_no_room_in_the_broker(
    client: Client, dataset: Dataset, broker: redis.Redis
) -> None:
    page = f"/datasets/{dataset.slug}/"
    unknown = ["licence=l{}", "team=t{}", "year=2{}"]  # no entry has such a value
    made_up = [*unknown, "min-nDCG@10=0.0{}", "corpus=1{}", "pin=p{}"]
    made_up += ["weight-effectiveness=1.{}", "sort=nDCG@10&sort=R@100&max-nDCG@10={}", "language=x{}"]
    for query in made_up:
        for number in range(3):
            for address in (page, f"{page}board.json", f"/api/v1{page}board/"):
                answer = client.get(f"{address}?{query.format(number)}")
                if query in unknown:
                    assert answer.status_code == 400, answer.content
                else:
                    assert answer.status_code == 200, answer.content
                    assert "ETag" in answer.headers  # cached by this process alone
    assert pages_in(broker) == 0
    client.get(f"{page}?sort=R@100&architecture=dense&zero-shot=1")
    assert pages_in(broker) == 1


def test_there_is_one_address_of_the_last_page(
    client: Client, dataset: Dataset, broker: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So many places that no two of three pages share one.
    monkeypatch.setattr(pages, "_shared_pages", FixedCache("page", 2**60, pages.LIFETIME))
    page = f"/datasets/{dataset.slug}/"
    for number in (2, 7, 10**12):
        answer = client.get(f"{page}?sort=R@100&page={number}")
        assert (answer.status_code, answer["Location"]) == (302, f"{page}?sort=R@100")
        part = client.get(f"{page}?page={number}", headers={"HX-Request": "true"}, follow=True)
        assert part.redirect_chain == [(page, 302)]
        client.get(f"{page}board.json?page={number}")
        client.get(f"{page}?rows=all&page={number}")
    assert client.get("/news/?page=999")["Location"] == "/news/?page=1"
    assert pages_in(broker) == 3  # the part, the export, the page with all rows


def test_a_page_that_is_too_large_stays_in_the_process(
    client: Client, dataset: Dataset, broker: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LARGEST_SHARED_BYTES", 500)
    assert client.get(f"/datasets/{dataset.slug}/").headers["ETag"]
    assert pages_in(broker) == 0


def test_places_are_as_many_as_they_are_and_never_hold_anothers_value(broker: redis.Redis) -> None:
    slots = FixedCache("test", 8, 60)
    for number in range(100):
        slots.set(f"key {number}", number)
    assert pages_in(broker) == 8
    found = slots.get_many(f"key {number}" for number in range(100))
    assert len(found) == 8
    assert all(key == f"key {number}" for key, number in found.items())
    assert slots.get("another") is None
    assert all(0 < broker.ttl(key) <= 60 for key in broker.scan_iter())


def test_what_comparisons_remember_has_so_many_places(client: Client, tmp_path: Path, broker: redis.Redis) -> None:
    open_one = open_dataset(tmp_path)
    first = run_for(open_one, "BM25", POOR, baseline=True).system
    second = run_for(open_one, "newcomer", GOOD).system
    page = client.get(f"/compare/?system={first.slug}&system={second.slug}")
    again = client.get(f"/compare/?system={second.slug}&system={first.slug}")
    assert (page.status_code, again.status_code) == (200, 200)
    keys = kept_in(broker)
    assert {key.partition(":")[0] for key in keys} == {"comparison"}
    assert all(int(key.partition(":")[2]) < 16_384 for key in keys)


def test_pages_of_a_process_are_bounded_by_their_bytes_and_age() -> None:
    recent: TTLCache[CachedPage] = TTLCache(14_000)

    def put(key: str, size: int, lifetime: float = 60.0) -> None:
        page = CachedPage('W/"x"', "text/html", b"x" * size, "")
        recent.put(key, page, page.size, lifetime)

    for key in "abc":
        put(key, 3000)
    put("b", 2000)
    put("old", 1, lifetime=-1)
    put("d", 5000)
    assert [key for key in ("a", "b", "c", "d", "old") if recent.get(key)] == ["b", "c", "d"]
    put("huge", 20_000)
    assert [key for key in ("b", "c", "d", "huge") if recent.get(key)] == ["b", "c", "d"]


# --- whose


def test_a_systems_page_is_made_anew_when_its_boards_or_its_kins_change_and_not_for_others(
    client: Client,
) -> None:
    own, kins, other = (scored_dataset(slug=slug) for slug in ("own", "kins", "other"))
    parent = score(own, "Parent", ndcg=0.4).system
    page = f"/systems/{parent.slug}/"

    def tag() -> str:
        return str(client.get(page).headers["ETag"])

    first = tag()
    score(other, "Stranger", ndcg=0.5)
    with CaptureQueriesContext(connection) as asked:
        assert tag() == first
    assert len(asked) == 1, "the kept page, though another board changed"
    score(own, "Better", ndcg=0.9)
    assert b"Better" in client.get(page).content
    child = make_system("Child", variant_of=parent)
    assert b"Child" not in client.get(page).content
    score(kins, child, ndcg=0.3)
    assert b"Child" in client.get(page).content
    of_child = f"/systems/{child.slug}/"
    assert b"Parent" in client.get(of_child).content
    parent.name = "Renamed"
    parent.save()
    system_changed(parent)
    assert b"Renamed" in client.get(of_child).content


def test_nobody_is_sent_to_an_address_that_another_visitor_made_up(client: Client, tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    system = run_for(dataset, "newcomer", GOOD).system
    addresses = [
        f"/datasets/{dataset.slug}/",
        f"/datasets/{dataset.slug}/?measure={dataset.primary_measure}",
        f"/systems/{system.slug}/",
        f"/datasets/{dataset.slug}/board.json",
        f"/api/v1/datasets/{dataset.slug}/board/",
        "/news/atom.xml",
        "/api/v1/docs/",
    ]
    for address in addresses:
        assert "testserver:6666" in client.get(address, headers={"Host": "testserver:6666"}).content.decode()
        assert ":6666" not in client.get(address).content.decode(), address


def test_a_port_that_a_visitor_made_up_takes_no_room_in_the_broker(
    client: Client, dataset: Dataset, broker: redis.Redis
) -> None:
    for port in range(6000, 6005):
        client.get(f"/datasets/{dataset.slug}/board.json", headers={"Host": f"testserver:{port}"})
    assert pages_in(broker) == 0


def test_where_the_site_has_an_address_everything_writes_that(
    client: Client, tmp_path: Path, settings: Settings, broker: redis.Redis
) -> None:
    settings.SITE_ADDRESS = "https://runboard.example"
    dataset = open_dataset(tmp_path)
    system = run_for(dataset, "newcomer", GOOD).system
    addresses = [
        f"/datasets/{dataset.slug}/",
        f"/systems/{system.slug}/",
        f"/systems/{system.slug}/eval_results.yaml",
        f"/datasets/{dataset.slug}/board.json",
        f"/datasets/{dataset.slug}/croissant.json",
        f"/api/v1/datasets/{dataset.slug}/files/",
        "/news/atom.xml",
        "/api/v1/docs/",
    ]
    for address in addresses:
        page = client.get(address).content.decode()
        assert "https://runboard.example/" in page, address
        assert "testserver" not in page, address
        kept = pages_in(broker)
        assert client.get(address, headers={"Host": "testserver:6666"}).content.decode() == page
        assert pages_in(broker) == kept


@pytest.mark.parametrize("wrong", ["runboard.example", "https://runboard.example/boards", "ftp://x", "https://"])
def test_an_address_of_the_site_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="https://HOST"):
        site_address(wrong)
    assert site_address("https://runboard.example:8443/") == "https://runboard.example:8443"


def test_a_cookie_that_names_no_session_makes_nobody_somebody(client: Client, dataset: Dataset) -> None:
    address = f"/datasets/{dataset.slug}/"
    client.cookies["sessionid"] = "made-up"
    assert "ETag" in client.get(address).headers
    client.force_login(make_user())
    own = client.get(address)
    assert "ETag" not in own.headers
    assert "private" in own.headers["Cache-Control"]


def test_boards_of_the_api_are_kept_but_a_token_is_looked_at(client: Client, dataset: Dataset) -> None:
    address = f"/api/v1/datasets/{dataset.slug}/board/"
    first = client.get(address)
    again = client.get(address, headers={"If-None-Match": first.headers["ETag"]})
    assert (first.json()["rows"][0]["system"], again.status_code) == ("first", 304)
    assert client.get(address, headers={"Authorization": "Bearer rb_wrong"}).status_code == 401
    score(dataset, "second", ndcg=0.6)
    assert len(client.get(address).json()["rows"]) == 2
    assert client.get(f"{address}?sort=luck").json()["code"] == "unknown_choice"
    assert client.get("/api/v1/datasets/nowhere/board/").status_code == 404


# --- what goes out with them


def test_answers_say_which_headers_they_depend_on(client: Client, dataset: Dataset) -> None:
    address = f"/datasets/{dataset.slug}/"
    restored = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    whole = client.get(address, headers=restored)
    part = client.get(address, headers={"HX-Request": "true"})
    assert whole.content != part.content
    search = client.get(f"{address}?q=first")
    for answer in (whole, part, search):
        named = {name.strip() for name in answer.headers["Vary"].split(",")}
        assert {"Cookie", "HX-Request", "HX-History-Restore-Request"} <= named


def test_a_visitor_who_refuses_gzip_gets_none(client: Client, dataset: Dataset) -> None:
    address = f"/datasets/{dataset.slug}/"
    plain = client.get(address, headers={"Accept-Encoding": "gzip;q=0, *"})
    packed = client.get(address, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(packed.content) == plain.content
    assert client.get(address, headers={"If-None-Match": "*"}).status_code == 304
    other = client.get(address, headers={"If-None-Match": f'W/"no", {packed.headers["ETag"]}'})
    assert other.status_code == 304


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip", True), ("GZIP;q=1", True), ("deflate, x-gzip", True), ("*", True), ("br, *;q=0.1", True),
        ("", False), ("br", False), ("gzip;q=0", False), ("gzip; q=0.000, *", False), ("gzip;q=x", False),
        ("*;q=0", False), ("notgzip", False),
    ],
)  # fmt: skip
def test_gzip_is_allowed_by_name_or_star_with_a_weight(accepted: str, expected: bool) -> None:
    assert accepts_gzip(accepted) is expected


def test_tags_are_compared_whole_and_weakly() -> None:
    assert etag_matches('W/"a", "b"', 'W/"b"')
    assert not etag_matches('W/"ab"', 'W/"b"')
    assert not etag_matches("", 'W/"b"')


# --- addresses that have no answer


@pytest.mark.parametrize("slug", ["a%20b", "a.b", "%C3%A9", "nowhere", "%2F"])
@pytest.mark.parametrize("subject", ["dataset", "benchmark"])
def test_a_figure_of_nothing_is_not_found(client: Client, subject: str, slug: str) -> None:
    for ending in ("/", ".json"):
        assert client.get(f"/figures/pareto{ending}?{subject}={slug}").status_code == 404


def test_a_character_0_is_refused_wherever_it_stands(client: Client, dataset: Dataset) -> None:
    addresses = [
        "/figures/pareto/?dataset=%00",
        f"/datasets/{dataset.slug}/?q=a%00",
        "/authors/%00/",
        "/compare/?system=%00&system=b",
        "/systems/x/badge.svg?dataset=%00",
    ]
    for address in addresses:
        answer = client.get(address)
        assert (answer.status_code, "%00" in answer.content.decode()) == (400, True), address
    assert re.search("NUL character", client.get("/api/v1/datasets/?x=%00").json()["detail"])


def test_weights_beyond_sense_are_refused_and_extreme_ones_are_numbers(client: Client, dataset: Dataset) -> None:
    for path in (f"/datasets/{dataset.slug}/", f"/api/v1/datasets/{dataset.slug}/board/"):
        for query in ("weight-effectiveness=1e308&weight-latency=1e308", "weight-effectiveness=1000001"):
            answer = client.get(f"{path}?{query}")
            assert answer.status_code == 400
            assert "0 to 1,000,000" in answer.content.decode()
        assert client.get(f"{path}?weight-effectiveness=1000000").status_code == 200
        assert client.get(f"{path}?weight-effectiveness=1e-320").status_code == 200
