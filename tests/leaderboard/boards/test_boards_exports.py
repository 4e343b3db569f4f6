"""CSV, JSON and API give the view that the page shows."""

from __future__ import annotations

import csv
import datetime
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from django.test import Client

from leaderboard.api.board_answers import BoardSerializer
from leaderboard.core.audit import acting
from leaderboard.models import Benchmark, BoardChange, Entry
from leaderboard.results.publishing.visibility import quarantine, withdraw_entries
from tests.leaderboard.entries import (
    cost,
    machine,
    make_system,
    record_boards,
    score,
    score_seeds,
    scored_dataset,
)
from tests.pages import clear_page_cache
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

VIEWS = [
    ("/datasets/trec-covid/", ""),
    ("/datasets/trec-covid/", "?sort=R_cap@100&order=asc&architecture=dense&architecture=lexical"),
    ("/datasets/dbpedia-entity/", "?sort=latency-cpu"),
    ("/benchmarks/beir/", "?sort=fiqa"),
    ("/benchmarks/beir/", "?measure=R@100&provenance=reported&q=colbert"),
]


@pytest.fixture
def _loaded() -> None:
    load_reported()


def page_systems(html: str) -> list[str]:
    """The systems of the page's board, in order."""
    return re.findall(r'<th scope="row" class="name"><a href="/systems/[^"]+/">([^<]+)</a>', html)


@pytest.mark.usefixtures("_loaded")
@pytest.mark.parametrize(("path", "query"), VIEWS)
def test_exports_and_the_api_have_the_order_and_the_filters_of_the_page(client: Client, path: str, query: str) -> None:
    systems = page_systems(client.get(path + query).content.decode())
    assert systems
    table = list(csv.DictReader(io.StringIO(client.get(f"{path}board.csv{query}").content.decode())))
    exported: dict[str, Any] = client.get(f"{path}board.json{query}").json()
    answered = client.get(f"/api/v1{path}board/{query}").json()
    assert [row["system"] for row in table] == systems
    assert [row["system"] for row in exported["rows"]] == systems
    assert answered == exported
    assert BoardSerializer(answered).data == answered  # nothing that the schema lacks, and all that it has
    keys = [column["key"] for column in exported["columns"]]
    assert [name.partition(" [")[0] for name in table[0]][2 : 2 + len(keys)] == keys


def test_csv_has_deltas_json_has_published_values_and_no_cell_is_a_formula(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    score(dataset, "=HYPERLINK(1)", ndcg=1 / 3)
    row = next(csv.DictReader(io.StringIO(client.get(f"/datasets/{dataset.slug}/board.csv").content.decode())))
    assert row["system"] == "'=HYPERLINK(1)"
    assert float(row["delta"]) == pytest.approx(1 / 3 - 0.25)
    exported = client.get(f"/datasets/{dataset.slug}/board.json").json()
    assert exported["rows"][0]["system"] == "=HYPERLINK(1)"
    assert exported["rows"][0]["values"]["nDCG@10"] == 1 / 3
    assert exported["rows"][1]["baseline"] is True


def test_csv_does_not_import_pandas(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    dataset = scored_dataset()
    score(dataset, "BM25, k1", baseline=True, ndcg=0.25)
    lines = client.get(f"/datasets/{dataset.slug}/board.csv").content.decode().split("\r\n")
    assert '"BM25, k1"' in lines[1]
    assert lines[2:] == [""]


@pytest.mark.usefixtures("_loaded")
@pytest.mark.parametrize("query", ["sort=colour", "measure=colour", "order=up", "architecture=x", "provenance=x"])
def test_what_a_board_does_not_have_is_refused_everywhere_with_what_it_has(client: Client, query: str) -> None:
    for address, kind in (
        ("/datasets/nq/", "text/html"),
        ("/datasets/nq/board.csv", "text/plain"),
        ("/benchmarks/beir/", "text/html"),
        ("/benchmarks/beir/board.json", "application/json"),
    ):
        answer = client.get(f"{address}?{query}")
        assert answer.status_code == 400, address
        assert "Choose one of" in answer.content.decode()
        assert answer.headers["Content-Type"].startswith(kind), address
    answer = client.get(f"/api/v1/datasets/nq/board/?{query}")
    assert answer.status_code == 400
    assert answer.json()["code"] == "unknown_choice"
    assert answer.json()["problems"][0]["hint"].startswith("Choose one of")


@pytest.mark.usefixtures("_loaded")
def test_the_api_lists_datasets_benchmarks_and_systems(client: Client) -> None:
    datasets = client.get("/api/v1/datasets/").json()["datasets"]
    assert next(row for row in datasets if row["slug"] == "nq")["statistics"]["queries"] == 3452
    assert client.get("/api/v1/datasets/nq/").json()["statistics"]["documents"] == 2681468
    assert client.get("/api/v1/benchmarks/").json()["benchmarks"][0]["slug"] == "beir"
    system = client.get("/api/v1/systems/colbert-beir-2021/").json()
    assert {result["dataset_slug"]: result["value"] for result in system["results"]}["scifact"] == 0.671
    for missing in ("datasets/x/", "datasets/x/board/", "benchmarks/x/board/", "systems/x/"):
        answer = client.get(f"/api/v1/{missing}")
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"


def test_the_api_names_what_was_withdrawn_beside_the_board_and_in_the_rows_of_its_permalinks(
    client: Client,
) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    entry = score(dataset, "Wrong", ndcg=0.5)
    BoardChange.objects.update(at=F("at") - datetime.timedelta(hours=1))
    clear_page_cache()
    link = client.get(f"/datasets/{dataset.slug}/board.json").json()["permalink"]
    withdraw_entries(entry.submission_reference, "wrong index")
    (told,) = client.get(f"/api/v1/datasets/{dataset.slug}/").json()["withdrawn"]
    assert (told["system"], told["reason"]) == ("Wrong", "wrong index")
    now = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["rows"]
    assert [(row["system"], row["withdrawn"]) for row in now] == [("BM25", None)]
    then = client.get(f"{link}board.json").json()["rows"]
    assert [(row["rank"], row["system"]) for row in then] == [(1, "Wrong"), (2, "BM25")]
    assert "wrong index" in then[0]["withdrawn"]


def test_groups_that_the_documentation_names_can_be_left_out(client: Client) -> None:
    load_reported()
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    start = text.index("column groups: ", text.index("| `hide` "))
    documented = set(re.findall(r"`([a-z-]+)`", text[start : text.index("; see `group_slug`", start)]))
    for path in ("/benchmarks/beir/", "/datasets/dbpedia-entity/"):
        board = client.get(f"{path}board.json").json()
        slugs = {column["group_slug"] for column in board["columns"][1:]}
        assert slugs <= documented
        hidden = client.get(f"{path}board.json?{'&'.join(f'hide={slug}' for slug in slugs)}").json()
        assert [column["key"] for column in hidden["columns"]] == ["system"]


def test_a_system_without_anything_public_has_no_page(client: Client) -> None:
    dataset, system = scored_dataset(), make_system("secret")
    score(dataset, system, ndcg=0.5, public=False)
    assert client.get(f"/systems/{system.slug}/").status_code == 404
    assert client.get(f"/api/v1/systems/{system.slug}/").status_code == 404


def test_the_measure_in_focus_and_its_difference_stand_first_and_no_column_of_a_page_is_empty(
    client: Client,
) -> None:
    dataset = scored_dataset(measures=["nDCG@10", "R@100", "Hole@10"])
    score(dataset, "BM25", baseline=True, ndcg=0.25, recall=0.5)
    score(dataset, "Dense", ndcg=0.5, recall=0.75, **{"Hole@10": 0.1})

    def keys(query: str) -> list[str]:
        page = client.get(f"/datasets/{dataset.slug}/?columns=all&{query}").content.decode()
        return re.findall(r'id="by-([^"]+)"', page)

    about = ["architecture", "provenance", "by", "training-data", "published", "submission"]
    assert keys("") == ["system", "nDCG@10", "delta", "relative", "R@100", "Judged@10", "Hole@10", *about]
    assert keys("measure=R@100")[:5] == ["system", "R@100", "delta", "relative", "nDCG@10"]
    assert "Hole@10" not in keys("q=bm25")  # no row that is shown has it
    assert "Hole@10" in keys("q=bm25&sort=Hole@10")
    page = client.get(f"/datasets/{dataset.slug}/?columns=all").content.decode()
    groups = re.findall(r'colspan="(\d)"[^>]*><span><em>([^<]+)', page)
    assert groups == [
        ("1", "Effectiveness"),
        ("2", "Δ vs BM25"),
        ("1", "Other measures"),
        ("2", "Judged"),
        ("6", "About"),
    ]


def columns_of_data(client: Client, address: str, query: str = "") -> list[list[str]]:
    """The columns of the API's answer and of the CSV, which must be those of the JSON export, too."""
    answered = client.get(f"/api/v1{address}board/{query}").json()
    keys = [column["key"] for column in answered["columns"]]
    assert keys == [column["key"] for column in client.get(f"{address}board.json{query}").json()["columns"]]
    assert all(["system", *row["values"]] == keys for row in answered["rows"])
    return [keys, next(csv.reader(io.StringIO(client.get(f"{address}board.csv{query}").content.decode())))]


def test_no_filter_and_no_submission_changes_the_columns_of_data(client: Client) -> None:
    dataset, other = scored_dataset(measures=["nDCG@10", "R@100"]), scored_dataset()
    benchmark = Benchmark.objects.create(slug="both", name="Both")
    benchmark.datasets.add(dataset, other)
    addresses = [f"/datasets/{dataset.slug}/", "/benchmarks/both/"]
    bm25 = make_system("BM25")
    for each in (dataset, other):
        score(each, bm25, baseline=True, ndcg=0.25)
    before = [columns_of_data(client, address) for address in addresses]
    declared = {"maximum_length": 512, "parameter_count": 7, "licence": "MIT"}
    judged = {"Hole@10": 0.1, "Judged@10": 0.9, "Upper(nDCG)@10": 1.0}
    entry = score(dataset, make_system("Dense", **declared), ndcg=0.5, recall=0.5, **judged)
    cost(entry, 2.0, hardware=machine(gpu="NVIDIA H200"), peak_gpu_memory_bytes=7)
    Entry.objects.filter(pk=entry.pk).update(training=Entry.Training.IN_DOMAIN)
    score_seeds(dataset, "Seeds", {"ndcg": 0.3}, {"ndcg": 0.4})
    with acting(None):
        quarantine(score(dataset, "Bad", ndcg=0.9), "wrong")
    record_boards()
    for address, columns in zip(addresses, before, strict=True):
        for query in (
            "", "?q=bm25", "?q=nothing", "?q=bm25&pin=system-1", "?cpu-only=1", "?zero-shot=1", "?min-parameters=1",
            "?provenance=reported", "?q=bm25&sort=energy",
        ):  # fmt: skip
            assert columns_of_data(client, address, query) == columns, address + query
    for query in ("?columns=maximum-length", "?columns=effectiveness", "?hide=about"):
        chosen = columns_of_data(client, addresses[0], query)
        assert columns_of_data(client, addresses[0], f"{query}&q=bm25") == chosen, query


def test_the_line_under_the_second_value_ends_with_its_digits(client: Client) -> None:
    load_reported()
    page = client.get("/datasets/nq/").content.decode()
    assert "<u>" in page
    assert not re.search(r"[\u2007\u2008]</[bu]>", page)
