"""What systems cost: recorded once per machine, priced by curators, shown where it was measured."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import Dataset, HardwareClass, Measurement, Price, User
from leaderboard.results.board_rows.measurements import system_measurements
from leaderboard.results.efficiency import (
    apply_due_prices,
    cost_per_million,
    record_measurement,
)
from tests.leaderboard.comparison.test_queries import text_of
from tests.leaderboard.entries import cost, figures, machine, make_system, score, scored_dataset

pytestmark = pytest.mark.django_db


def test_a_measurement_is_kept_once_for_each_machine_and_the_newest_stays() -> None:
    entry = score(scored_dataset(), "dense", ndcg=0.5)
    cost(entry, 10.0)
    cost(entry, 20.0)
    cost(entry, 3.0, hardware=machine(gpu="NVIDIA H200"))
    assert Measurement.objects.count() == 2
    assert [each.name for each in HardwareClass.objects.all()] == [
        "AMD EPYC, 2 cores",
        "NVIDIA H200, AMD EPYC, 2 cores",
    ]
    assert [each.latency["mean"] for each in system_measurements(entry.system_id)] == [20.0, 3.0]


@pytest.mark.parametrize(
    ("hardware", "of_system", "of_baseline", "named"),
    [
        ({}, figures(1.0), {}, "details"),
        (machine(), {}, {}, "latency_ms"),
        (machine(), figures(1.0, searches=-1), {}, "searches"),
        (machine(), figures(1.0), {"latency_ms": 3}, "latency_ms"),
        (machine(), figures(1.0), figures(1.0, protocol="v0"), "only v4 is stored"),
        (machine(), figures(1.0, protocol="v0"), figures(1.0), "only v4 is stored"),
    ],
)
def test_what_is_no_measurement_is_refused_and_leaves_nothing(
    hardware: Any, of_system: Any, of_baseline: Any, named: str
) -> None:
    entry = score(scored_dataset(), "dense", ndcg=0.5)
    with pytest.raises(ValueError, match=named):
        record_measurement(entry, hardware, of_system, of_baseline)
    assert not HardwareClass.objects.exists()


def test_the_price_of_a_day_is_the_last_one_said_before() -> None:
    entry = score(scored_dataset(), "dense", ndcg=0.5)
    cost(entry, 10.0)
    hardware = HardwareClass.objects.get()
    Price.objects.create(hardware=hardware, valid_from="2999-01-01", per_hour=Decimal(9))
    assert [each.per_hour for each in system_measurements(entry.system_id)] == [None]
    for day, per_hour in (("2026-06-01", "2"), ("2026-01-01", "1")):
        Price.objects.create(hardware=hardware, valid_from=day, per_hour=Decimal(per_hour))
    assert [each.per_hour for each in system_measurements(entry.system_id)] == [2]


def test_a_million_queries_of_36_ms_take_ten_hours() -> None:
    assert cost_per_million(36.0, 1.5) == pytest.approx(15.0)


def test_a_price_that_a_curator_writes_is_on_the_board_at_once_and_in_the_log(client: Client) -> None:
    dataset = scored_dataset()
    cost(score(dataset, "dense", ndcg=0.5), 36.0)
    assert b"per M queries" not in client.get(f"/datasets/{dataset.slug}/").content
    curator = User.objects.create_superuser("curator@example.org", "a long passphrase")
    client.force_login(curator)
    hardware = HardwareClass.objects.get()
    said = {"hardware": hardware.pk, "per_hour": "1.5", "currency": "EUR", "valid_from": "2026-01-01"}
    said["why"] = "the provider's list"
    assert client.post("/admin/leaderboard/price/add/", said).status_code == 302
    price = Price.objects.get()
    history = client.get(f"/admin/leaderboard/price/{price.pk}/history/").content.decode()
    assert "curator@example.org" in history
    assert "the provider&#x27;s list" in history
    assert client.get(f"/admin/leaderboard/measurement/{Measurement.objects.get().pk}/change/").status_code == 200
    assert client.get("/admin/leaderboard/hardwareclass/").status_code == 200
    board = Client().get(f"/datasets/{dataset.slug}/?columns=efficiency").content.decode()
    assert "EUR per M queries" in board
    assert "15.0" in board
    assert (
        client.post(f"/admin/leaderboard/price/{price.pk}/delete/", {"post": "yes", "why": "a mistake"}).status_code
        == 302
    )
    board = Client().get(f"/datasets/{dataset.slug}/?columns=efficiency").content.decode()
    assert "per M queries" not in board


def test_nobody_but_the_site_writes_measurements(admin_client: Client) -> None:
    assert admin_client.get("/admin/leaderboard/measurement/add/").status_code == 403
    assert admin_client.get("/admin/leaderboard/hardwareclass/add/").status_code == 403


def test_the_page_publishes_protocol_columns_machines_and_every_price(client: Client) -> None:
    page = client.get("/efficiency/").content.decode()
    assert "No machine has been measured yet" in page
    cost(score(scored_dataset(), "dense", ndcg=0.5), 10.0)
    hardware = HardwareClass.objects.get()
    for day, per_hour in (("2026-01-01", "12"), ("2026-02-01", "0.085"), ("2999-01-01", "9")):
        Price.objects.create(hardware=hardware, valid_from=day, per_hour=Decimal(per_hour), note="a list")
    page = client.get("/efficiency/").content.decode()
    for text in (
        "Protocol v4",
        "top 100",
        "the first 20 searches are warm-up",
        "at least 200",
        "× BM25",
        "AMD EPYC, 2 cores",
    ):
        assert text in page
    for price in ("12 USD from 1 Jan 2026", "0.0850 USD from 1 Feb 2026", "9 USD from 1 Jan 2999"):
        assert price in text_of(page)
    assert page.count(">valid<") == 1
    assert 'href="/efficiency/"' in client.get("/measures/").content.decode()


def test_the_protocol_is_grouped_and_begins_with_what_makes_a_time_doubtful(client: Client) -> None:
    page = client.get("/efficiency/").content.decode()
    heads = ("Which times to trust", "Doubtful times", "How a query is timed", "Slow systems and variants")
    places = [page.rindex(f">{head}</") for head in heads]
    assert places == sorted(places)


def test_a_systems_page_shows_each_entry_on_each_machine_with_its_facts(client: Client) -> None:
    system = make_system("dense")
    dataset = scored_dataset(name="Papers")
    entry = score(dataset, system, ndcg=0.5)
    entry.facts = {"dimension": 384, "similarity": "cosine", "nonzeros_per_document": 12.34, "unknown": 1}
    entry.save()
    cost(entry, 12.345, bm25=2.0)
    cost(entry, 1.5, hardware=machine(gpu="NVIDIA H200"), peak_gpu_memory_bytes=2e9)
    page = client.get(f"/systems/{system.slug}/").content.decode()
    for text in ("12.3", "6.17", "24.7", "NVIDIA H200, AMD EPYC, 2 cores", "2,000", "Query encoding", "v4"):
        assert text in page, text
    for text in ("Dimension 384", "Similarity cosine", "Non-zeros per document 12.3"):
        assert text in text_of(page), text
    assert "unknown" not in page
    answer = client.get(f"/api/v1/systems/{system.slug}/").json()
    [result] = answer["results"]
    assert result["facts"]["dimension"] == 384
    assert [one["figures"]["latency_ms"]["mean"] for one in result["measured"]] == [12.345, 1.5]


def test_a_re_ranker_is_drawn_against_its_depth(client: Client) -> None:
    system, dataset = make_system("cross-encoder", architecture="re-ranking"), scored_dataset(name="Papers")
    for depth, value in ((10, 0.5), (50, 0.6), (100, 0.65)):
        entry = score(dataset, system, ndcg=value)
        entry.configuration = f"top {depth}"
        entry.save()
        cost(entry, 12.0 * depth)
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert "Papers by depth" in page
    assert '<details class="fold" open>' in page.partition(">Efficiency</h2>")[0][-80:], "costs are visible"
    assert page.count('<svg class="chart"') == 2
    assert "1,200 ms" in page


def test_a_system_that_was_not_measured_has_no_such_section(client: Client) -> None:
    system = make_system("plain")
    score(scored_dataset(), system, ndcg=0.5)
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert 'id="efficiency"' not in page
    assert '<svg class="chart"' not in page


def test_a_price_of_today_reaches_boards_once() -> None:
    dataset = scored_dataset()
    measurement = cost(score(dataset, "mine", ndcg=0.5), 2.0)
    before = Dataset.objects.get(pk=dataset.pk).board_revision
    assert apply_due_prices() == 0
    today = timezone.now().date()
    for day, price in (
        (today - datetime.timedelta(days=3), 1),
        (today, 2),
        (today + datetime.timedelta(days=1), 3),
    ):
        Price.objects.create(hardware=measurement.hardware, valid_from=day, per_hour=price)
    assert apply_due_prices() == 1
    assert Dataset.objects.get(pk=dataset.pk).board_revision == before + 1
    assert apply_due_prices() == 0


def test_saving_an_older_copy_of_a_dataset_leaves_the_revision_of_its_board() -> None:
    dataset = scored_dataset()
    older = Dataset.objects.get(pk=dataset.pk)
    score(dataset, "mine", ndcg=0.5)
    now = Dataset.objects.get(pk=dataset.pk)
    older.name = "Renamed"
    older.save()
    again = Dataset.objects.get(pk=dataset.pk)
    assert (again.name, again.board_revision, again.updated_at) == (
        "Renamed",
        now.board_revision,
        now.updated_at,
    )
