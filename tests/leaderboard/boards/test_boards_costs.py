"""Measured costs on boards: one machine at a time, beside the BM25 of the same job."""

from __future__ import annotations

import csv
import io
import math
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from leaderboard.boards.exports.texts import cell_text
from leaderboard.boards.model import Board
from leaderboard.boards.pages import benchmark_page, dataset_page
from leaderboard.boards.state import BoardState, Sort
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Benchmark, Dataset, HardwareClass, Measurement, Price
from leaderboard.results.board_rows.measurements import system_measurements
from leaderboard.results.efficiency import price_changed
from leaderboard.systems.records import house_system
from tests.leaderboard.entries import (
    cost,
    machine,
    make_source,
    make_system,
    record_boards,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.figure_checks import drawn
from tests.pages import one_line

pytestmark = pytest.mark.django_db

GPU = machine(gpu="NVIDIA H200")


def board_of(dataset: Dataset, **state: Any) -> Board:
    """The dataset's board in a view."""
    page = dataset_page(dataset.slug, BoardState(**state))
    assert page is not None
    return page.board


def benchmark_of(*datasets: Dataset, **state: Any) -> Board:
    """A board over the datasets."""
    benchmark, _ = Benchmark.objects.get_or_create(slug="all", name="All")
    for position, dataset in enumerate(datasets):
        benchmark.members.get_or_create(dataset=dataset, defaults={"position": position})
    page = benchmark_page("all", BoardState(**state))
    assert page is not None
    return page.board


def shown(board: Board, system: str) -> dict[str, str]:
    """The text of the row's efficiency columns that have a value, by key."""
    row = next(row for row in board.rows if row.entry.system == system)
    return {
        column.key: cell_text(row, column)
        for column in board.columns
        if column.group.startswith("Efficiency") and row.value(column.key) is not None
    }


def bm25() -> Any:
    """The house's BM25."""
    return house_system(slug="bm25", name="BM25", architecture="lexical", description="", parameters={})


def test_a_board_without_measurements_has_no_such_columns() -> None:
    dataset = scored_dataset()
    score(dataset, "dense", ndcg=0.5)
    assert not [column for column in board_of(dataset).columns if "Efficiency" in column.group]
    with pytest.raises(UnknownChoice):
        board_of(dataset, hardware="some-machine")


def test_what_was_measured_stands_in_its_columns_and_what_was_not_is_missing() -> None:
    dataset = scored_dataset()
    cost(score(dataset, "dense", ndcg=0.5), 12.345, bm25=1.5)
    score(dataset, "uploaded", ndcg=0.6)
    board = board_of(dataset)
    assert shown(board, "dense") == {
        "mean-latency": "12.3",
        "times-bm25": "8.23",
        "queries-per-second": "122",
        "documents-per-second": "1,234",
        "build-time": "42.0",
        "index-bytes": "12.3",
        "bytes-per-document": "12,346",
        "peak-memory": "988",
        "model-parameters": "22.7",
    }
    assert shown(board, "uploaded") == {}
    assert board.column("mean-latency").group == "Efficiency on AMD EPYC, 2 cores"


def test_bm25_has_the_figures_that_it_had_beside_the_system_measured_last() -> None:
    dataset = scored_dataset()
    score(dataset, bm25(), baseline=True, ndcg=0.4)
    cost(score(dataset, "early", ndcg=0.5), 10.0, bm25=3.0)
    cost(score(dataset, "late", ndcg=0.5), 10.0, bm25=2.0)
    found = shown(board_of(dataset), "BM25")
    assert (found["mean-latency"], found["times-bm25"]) == ("2.00", "1.00")
    assert "model-parameters" not in found


def test_a_baseline_that_is_another_system_borrows_nothing() -> None:
    dataset = scored_dataset()
    score(dataset, "a run of somebody's", baseline=True, ndcg=0.4)
    cost(score(dataset, "dense", ndcg=0.5), 10.0)
    assert shown(board_of(dataset), "a run of somebody's") == {}


def test_the_machine_of_most_systems_is_shown_and_another_on_request() -> None:
    dataset = scored_dataset()
    one, other, third = (score(dataset, name, ndcg=0.5) for name in ("one", "other", "third"))
    for entry in (one, other):
        cost(entry, 10.0)
    cost(one, 1.0, hardware=GPU)
    cost(third, 2.0, hardware=GPU, peak_gpu_memory_bytes=3_000_000_000)
    cost(other, 11.0)
    usual, gpu = board_of(dataset), board_of(dataset, hardware=GPU["slug"])
    assert usual.machine is not None
    # Two systems on each: the class measured on last comes first.
    assert usual.machine.name == "AMD EPYC, 2 cores"
    assert shown(usual, "other")["mean-latency"] == "11.0"
    assert shown(usual, "third") == {}
    assert any("1 system was measured on other hardware" in note for note in usual.notes)
    assert shown(gpu, "third")["gpu-memory"] == "3,000"
    assert "mean-latency" not in shown(gpu, "other")
    with pytest.raises(UnknownChoice, match="hardware"):
        board_of(dataset, hardware="abacus")


def test_columns_sort_best_first_and_missing_last() -> None:
    dataset = scored_dataset()
    for name, mean in (("slow", 30.0), ("quick", 3.0), ("middling", 9.0)):
        cost(score(dataset, name, ndcg=0.5), mean)
    score(dataset, "unmeasured", ndcg=0.9)
    for sort, order in (("mean-latency", ""), ("queries-per-second", ""), ("times-bm25", "asc")):
        board = board_of(dataset, sorts=(Sort(sort, order),))
        assert [row.entry.system for row in board.rows] == ["quick", "middling", "slow", "unmeasured"], sort
    assert board.best["mean-latency", "scored"] == 3.0


def test_reported_figures_keep_columns_of_their_own() -> None:
    dataset = scored_dataset()
    cost(score(dataset, "dense", ndcg=0.5), 10.0)
    report(
        dataset,
        make_source("paper"),
        "reported",
        ndcg=0.4,
        figures=[{"name": "latency", "unit": "ms", "value": 20.0}],
    )
    board = board_of(dataset)
    assert shown(board, "reported") == {"latency": "20"}
    assert "latency" not in shown(board, "dense")


def test_what_begins_with_stored_runs_has_no_latency_on_boards_and_a_remark_on_its_page(
    client: Client,
) -> None:
    dataset = scored_dataset()
    fused = score(dataset, "fused", ndcg=0.6)
    built = dict.fromkeys(("documents_per_second", "build_seconds", "index_bytes"))
    cost(fused, 5.6, stored_runs=2, energy_joules_per_query=1.0, energy_source="CPU", **built)
    cost(score(dataset, "dense", ndcg=0.5), 10.0)
    hardware = HardwareClass.objects.get()
    Price.objects.create(hardware=hardware, valid_from="2026-01-01", per_hour=Decimal("0.5"))
    board = board_of(dataset)
    assert set(shown(board, "fused")) == {"peak-memory", "model-parameters"}
    assert any("start from stored runs" in note for note in board.notes)
    page = client.get(f"/datasets/{dataset.slug}/?columns=efficiency").content.decode()
    assert page.count('title="starts from stored runs: the first search was not timed"') == 2
    page = client.get(f"/systems/{fused.system.slug}/").content.decode()
    assert "starts from stored runs: the first search was not timed" in page
    assert "5.60" in page
    assert "starts from stored runs: the first search was not timed" in client.get("/efficiency/").content.decode()
    text = client.get(f"/datasets/{dataset.slug}/board.csv").content.decode()
    assert {row["system"]: row["stored_runs"] for row in csv.DictReader(io.StringIO(text))} == {
        "fused": "2",
        "dense": "0",
    }


def test_how_many_searches_were_timed_is_said(client: Client) -> None:
    system = make_system("re-ranking")
    dataset = scored_dataset()
    for depth, searches in ((10, 54), (50, 203)):
        entry = score(dataset, system, ndcg=depth / 100)
        entry.configuration = f"top {depth}"
        entry.save()
        cost(entry, depth / 10, searches=searches)
    page = one_line(client.get(f"/systems/{system.slug}/").content.decode())
    assert 'title="number of timed searches">Searches</th>' in page
    assert ('<td class="n">54</td>' in page, '<td class="n">203</td>' in page) == (True, True)
    assert "lesser depths are measured with fewer searches" in page
    efficiency = one_line(client.get("/efficiency/").content.decode())
    assert "at least 50 searches over 25 queries, and at most 128 queries for throughput" in efficiency


def test_times_bm25_can_be_checked_by_eye(client: Client) -> None:
    dataset = scored_dataset()
    system = make_system("dense")
    cost(score(dataset, system, ndcg=0.5), 10.0, bm25=2.5)
    page = client.get(f"/datasets/{dataset.slug}/?columns=efficiency").content.decode()
    assert 'title="BM25 took 2.50 ms in the same job"' in page
    text = client.get(f"/datasets/{dataset.slug}/board.csv").content.decode()
    [row] = csv.DictReader(io.StringIO(text))
    assert float(row["mean-latency [ms]"]) / float(row["latency_bm25 [ms]"]) == float(row["times-bm25"]) == 4.0
    assert "2.50" in client.get(f"/systems/{system.slug}/").content.decode()


def test_exports_have_every_figure_and_name_the_machine(client: Client) -> None:
    dataset = scored_dataset()
    cost(score(dataset, "dense", ndcg=0.5), 10.0)
    score(dataset, "uploaded", ndcg=0.6)
    answer = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()
    assert answer["hardware"]["name"] == "AMD EPYC, 2 cores"
    rows = {row["system"]: row for row in answer["rows"]}
    assert rows["dense"]["measured"]["figures"]["latency_ms"]["p95"] == 20.0
    assert rows["dense"]["measured"]["baseline"]["latency_ms"]["mean"] == 1.0
    assert rows["dense"]["values"]["mean-latency"] == 10.0
    assert rows["uploaded"]["measured"] is None
    text = client.get(f"/datasets/{dataset.slug}/board.csv").content.decode()
    table = {row["system"]: row for row in csv.DictReader(io.StringIO(text))}
    assert table["dense"]["mean-latency [ms]"] == "10.0"
    assert table["dense"]["latency_p95 [ms]"] == "20.0"
    assert table["dense"]["hardware"] == answer["hardware"]["slug"]
    assert table["uploaded"]["hardware"] == ""


def _emphasised(board: Board, key: str) -> dict[str, str]:
    """By system what emphasis a cost has on the board."""
    return {row.entry.system: board.emphasis(row, key) for row in board.rows}


def test_nothing_within_noise_is_bold() -> None:
    dataset = scored_dataset()
    for name, latency in (("quick", 10.0), ("as quick", 10.5), ("slow", 20.0)):
        cost(score(dataset, name, ndcg=0.5), latency, spread_ms=0.2)
    board = board_of(dataset)
    assert _emphasised(board, "mean-latency") == {"quick": "", "as quick": "", "slow": ""}
    assert set(_emphasised(board, "queries-per-second").values()) == {""}, "it was timed once"
    cost(score(dataset, "quickest", ndcg=0.5), 8.0, spread_ms=0.2)
    found = _emphasised(board_of(dataset), "mean-latency")
    assert found == {"quickest": "best", "quick": "", "as quick": "", "slow": ""}
    cost(score(dataset, "next", ndcg=0.5), 9.0, spread_ms=0.01)
    assert _emphasised(board_of(dataset), "mean-latency") == {**found, "next": "second"}


def test_a_cost_says_how_far_it_may_be_off_on_the_page_in_the_api_and_in_exports(client: Client) -> None:
    dataset = scored_dataset()
    cost(score(dataset, "dense", ndcg=0.5), 10.0, bm25=2.0, spread_ms=0.4)
    board = board_of(dataset)
    [row] = board.rows
    spreads = {key: found.spread for key, found in row.cells.items() if found.spread}
    # × BM25 is 5: 4% of the system's own and 3% of BM25's, which is the least.
    assert spreads == {"mean-latency": "± 0.4", "times-bm25": "± 0.35"}
    address = f"/datasets/{dataset.slug}/"
    assert "± 0.4</small>" in client.get(address).content.decode()
    answer = client.get(f"/api/v1{address}board/").json()["rows"][0]
    assert answer["spreads"] == spreads
    assert answer["measured"]["figures"]["spread_ms"] == 0.4
    assert "10.0 ± 0.4" in client.get(f"{address}board.md").content.decode()
    assert "0.4}" in client.get(f"{address}board.tex").content.decode()
    assert "± is the uncertainty of a value" in " ".join(board.notes)
    assert "seed" not in " ".join(board.notes)


def test_a_job_in_which_bm25_took_longer_than_usual_has_doubtful_times() -> None:
    dataset = scored_dataset()
    for name in ("one", "two", "three"):
        cost(score(dataset, name, ndcg=0.5), 20.0, bm25=1.0)
    cost(score(dataset, "busy", ndcg=0.5), 15.0, bm25=2.0)
    rows = {row.entry.system: row for row in board_of(dataset).rows}
    for key in ("mean-latency", "times-bm25"):
        assert (rows["busy"].value(key), rows["busy"][key].mark) == (None, "?")
    assert rows["busy"]["mean-latency"].title == "busy machine: BM25 was 100% off its usual latency here"
    assert [rows[name]["mean-latency"].mark for name in ("one", "two", "three")] == ["", "", ""]
    busy = next(one for one in system_measurements(rows["busy"].entry.system_id))
    assert busy.doubt == rows["busy"]["mean-latency"].title, "a system's page says the same"


def test_few_searches_and_an_earlier_protocol_leave_a_latency_unknown() -> None:
    dataset = scored_dataset()
    cost(score(dataset, "v1", ndcg=0.5), 5.0, spread_ms=None)
    cost(score(dataset, "v2", ndcg=0.5), 5.0)
    cost(score(dataset, "slow", ndcg=0.5), 13_000.0, queries=4, searches=8, rounds=2)
    cost(score(dataset, "known", ndcg=0.5), 50.0)
    for earlier in ("v1", "v2"):
        measurement = Measurement.objects.get(entry__system__name=earlier)
        measurement.protocol = measurement.figures["protocol"] = earlier
        measurement.save()
    record_boards()
    board = board_of(dataset)
    cells = {row.entry.system: row["mean-latency"] for row in board.rows}
    assert [cells[name].noise for name in ("v1", "v2", "slow")] == [math.inf] * 3
    assert "4 queries only" in cells["slow"].title
    assert set(_emphasised(board, "mean-latency").values()) == {""}
    assert "2 systems were measured under an earlier protocol" in " ".join(board.notes)
    assert "timed over fewer queries" in " ".join(board.notes)


BUSY = [{"unsettled": 20}, {"spread_ms": 2.0}, {"other_work": 0.6}]


@pytest.mark.parametrize("busy", BUSY, ids=["unsettled", "wide interval", "other work"])
def test_times_of_a_busy_machine_are_shown_and_neither_ranked_nor_sorted(busy: dict[str, Any]) -> None:
    dataset = scored_dataset()
    cost(score(dataset, "busy", ndcg=0.5), 5.0, **busy)
    for name, latency in (("quick", 10.0), ("slow", 30.0)):
        cost(score(dataset, name, ndcg=0.4), latency)
    board = board_of(dataset, sorts=(Sort("mean-latency"),))
    assert [row.entry.system for row in board.rows] == ["quick", "slow", "busy"]
    assert _emphasised(board, "mean-latency") == {"quick": "", "slow": "", "busy": ""}, "busy may be the fastest"
    row = board.rows[-1]
    assert (cell_text(row, board.column("mean-latency")), row["mean-latency"].mark) == ("5.00", "?")
    assert row["mean-latency"].title.startswith("busy machine: ")
    doubtful = {key for key, cell in row.cells.items() if cell.mark == "?"}
    times = {"mean-latency", "times-bm25", "queries-per-second", "documents-per-second", "build-time"}
    assert doubtful == times, "sizes and counts are as good as ever"
    assert row.value("index-bytes") == pytest.approx(12.345678)
    assert any(note.startswith("?: doubtful") for note in board.notes)


def test_a_doubtful_time_is_marked_on_pages_in_exports_and_in_the_api(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "busy", ndcg=0.5)
    cost(entry, 5.0, other_work=0.6)
    cost(score(dataset, "quiet", ndcg=0.4), 10.0)
    reason = "busy machine: other work used 60% of the processors"
    address = f"/datasets/{dataset.slug}/"
    assert "5.00<sup>?</sup>" in client.get(f"{address}?columns=efficiency").content.decode()
    table = csv.DictReader(io.StringIO(client.get(f"{address}board.csv").content.decode()))
    busy, quiet = list(table)
    assert (busy["mean-latency [ms]"], quiet["mean-latency [ms]"]) == ("", "10.0")
    assert "Latency: 5.00" in busy["doubtful"]
    assert quiet["doubtful"] == ""
    row = client.get(f"/api/v1{address}board/").json()["rows"][0]
    assert (row["values"]["mean-latency"], row["marks"]["mean-latency"]) == (None, "?")
    assert "Latency: 5.00" in row["doubtful"]
    assert row["measured"]["doubt"] == reason
    assert client.get(f"{address}board.json").json()["rows"][0]["marks"]["times-bm25"] == "?"
    assert "5.00" in client.get(f"{address}board.md").content.decode()
    page = one_line(client.get(f"/systems/{entry.system.slug}/").content.decode())
    assert f"? {dataset.name}: {reason}" in page
    assert "5.00<sup>?</sup>" in page
    assert "5.00 ?" not in page
    [measured] = client.get(f"/api/v1/systems/{entry.system.slug}/").json()["results"][0]["measured"]
    assert measured["doubt"] == reason


@pytest.mark.parametrize(
    ("spread", "text"), [(0.00498, "0.007"), (0.02, "0.020"), (None, "")], ids=["jobs differ more", "stored", "unknown"]
)
def test_a_board_and_a_systems_page_show_the_same_uncertainty(client: Client, spread: float | None, text: str) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "quick", ndcg=0.5)
    cost(entry, 0.248, spread_ms=spread)
    [row] = board_of(dataset).rows
    assert row["mean-latency"].spread == (text and f"± {text}")
    page = client.get(f"/systems/{entry.system.slug}/").content.decode()
    assert (f'<td class="n">{text}</td>' in page) == bool(text)


def test_no_time_is_marked_as_best_if_a_doubtful_one_is_better() -> None:
    dataset = scored_dataset()
    for name, latency, load in (("slow", 40.0, 0.0), ("busy", 5.0, 0.6), ("quick", 10.0, 0.0)):
        cost(score(dataset, name, ndcg=0.5), latency, other_work=load)
    board = board_of(dataset)
    assert ("mean-latency", "scored") not in board.best
    assert ("index-bytes", "scored") not in board.second, "all are equal"
    cost(score(dataset, "quicker", ndcg=0.5), 2.0)
    board = board_of(dataset)
    assert board.best["mean-latency", "scored"] == 2.0
    assert ("mean-latency", "scored") not in board.second


def test_a_doubtful_time_is_neither_compared_in_the_verdict_nor_plotted_nor_weighted() -> None:
    dataset = scored_dataset()
    cost(score(dataset, "best", ndcg=0.5), 40.0, other_work=0.6)
    cost(score(dataset, "busy", ndcg=0.495), 4.0, other_work=0.6)
    cost(score(dataset, "quiet", ndcg=0.495), 8.0)
    board = board_of(dataset, weights=(("effectiveness", 1.0), ("latency", 1.0)))
    assert board.summary is not None
    assert (
        "40.0 ms per query, doubtful because the machine was busy, 12.3 MB index; within 5% of its score: quiet, 8.0 ms"
        in board.summary.text
    )
    assert all(row.value("weighted-score") is None for row in board.rows if row.entry.system != "quiet")
    assert "busy" not in str(drawn("pareto", f"dataset={dataset.slug}&x=latency").table)


def test_a_noisy_measurement_does_not_replace_a_quiet_one() -> None:
    entry = score(scored_dataset(), "dense", ndcg=0.5)
    for latency, options in (
        (9.0, {"other_work": 0.6}),
        (8.0, {"other_work": 0.5}),
        (5.0, {}),
        (7.0, {"other_work": 0.6}),
    ):
        cost(entry, latency, **options)
    assert Measurement.objects.get().figures["latency_ms"]["mean"] == 5.0
    cost(entry, 6.0)
    assert Measurement.objects.get().figures["latency_ms"]["mean"] == 6.0


def test_the_page_links_the_protocol_tells_p95_on_hover_and_offers_the_machines(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "dense", ndcg=0.5)
    cost(entry, 10.0, hardware=GPU)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert '<a href="/efficiency/">Efficiency on NVIDIA H200, AMD EPYC, 2 cores</a>' in page
    assert 'title="p50 9.00 · p95 20.0 · p99 30.0 ms · mean ± 0.3 ms"' in page
    assert "board-hardware" not in page
    cost(entry, 10.0)
    page = client.get(f"/datasets/{dataset.slug}/?hardware={GPU['slug']}&sort=times-bm25").content.decode()
    assert f'<option value="{GPU["slug"]}" selected>' in page
    assert f"hardware={GPU['slug']}" in page.split("board.csv?")[1].split('"')[0]
    assert client.get(f"/datasets/{dataset.slug}/?hardware=abacus").status_code == 400


def test_a_benchmark_takes_costs_from_the_dataset_that_most_systems_share_the_largest_among_equals() -> None:
    small, large = scored_dataset(name="Small"), scored_dataset(name="Large")
    for name in ("one", "two"):
        system = make_system(name)
        cost(score(small, system, ndcg=0.5), 1.0, documents=100)
        cost(score(large, system, ndcg=0.5), 7.0, documents=9000)
    board = benchmark_of(small, large)
    assert shown(board, "one")["mean-latency"] == "7.00"
    assert board.cost_group == "Efficiency on AMD EPYC, 2 cores, Large"
    cost(score(small, "three", ndcg=0.5), 1.0, documents=100)
    assert benchmark_of().cost_group.endswith("Small")
    Benchmark.objects.update(efficiency_from=large)
    assert benchmark_of().cost_group.endswith("Large")
    cost(score(large, "only on a GPU", ndcg=0.5), 1.0, hardware=GPU)
    assert any("1 system was measured on other hardware" in note for note in benchmark_of().notes)


def test_a_benchmarks_bm25_and_machines_are_those_of_its_dataset() -> None:
    dataset, other = scored_dataset(), scored_dataset()
    score(dataset, bm25(), baseline=True, ndcg=0.4)
    entry = score(dataset, "dense", ndcg=0.5)
    score(other, "elsewhere", ndcg=0.5)
    cost(entry, 10.0, bm25=2.0)
    cost(entry, 1.0, bm25=2.5, hardware=GPU)
    board = benchmark_of(dataset, other, hardware=GPU["slug"])
    assert shown(board, "BM25")["mean-latency"] == "2.50"
    assert shown(board, "dense")["times-bm25"] == "0.400"
    assert len(board.machines) == 2
    with pytest.raises(UnknownChoice):
        benchmark_of(dataset, hardware="abacus")


def test_a_benchmark_without_measurements_is_as_before(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "dense", ndcg=0.5)
    board = benchmark_of(dataset)
    assert board.machine is None
    assert "Efficiency" not in client.get("/benchmarks/all/").content.decode()


def test_a_price_reaches_a_remembered_benchmark() -> None:
    dataset = scored_dataset()
    cost(score(dataset, "dense", ndcg=0.5), 36.0)
    assert "cost-per-million" not in shown(benchmark_of(dataset), "dense")
    hardware = HardwareClass.objects.get()
    Price.objects.create(hardware=hardware, valid_from="2026-01-01", per_hour=Decimal("0.5"))
    price_changed(hardware)
    board = benchmark_of(dataset)
    assert shown(board, "dense")["cost-per-million"] == "5.00"
    assert board.column("cost-per-million").unit == "USD per M queries"


def test_operations_are_columns_of_their_own_whose_best_is_marked_since_they_are_counted() -> None:
    dataset = scored_dataset()
    cost(
        score(dataset, "small", ndcg=0.5),
        10.0,
        flops_per_query=3.5e8,
        flops_per_document=4.2e9,
        job_seconds=77.5,
    )
    cost(score(dataset, "large", ndcg=0.6), 12.0, flops_per_query=7e8, flops_per_document=9e9)
    cost(score(dataset, "fused", ndcg=0.7), 1.0, flops_per_query=1e3, stored_runs=2)
    cost(score(dataset, "before", ndcg=0.4), 11.0)
    board = board_of(dataset)
    assert shown(board, "small")["flops-per-query"] == "350"
    assert shown(board, "small")["flops-per-document"] == "4,200"
    assert shown(board, "small")["whole-job"] == "77.5"
    assert {"flops-per-query", "flops-per-document"}.isdisjoint(shown(board, "fused") | shown(board, "before"))
    found = _emphasised(board, "flops-per-query")
    assert found == {"small": "best", "large": "second", "fused": "", "before": ""}
    assert {"flops-per-query", "flops-per-document"}.isdisjoint(column.key for column in board.shown)
