"""Tables taken out and brought in: what would change is shown first, and stored with a reason and a record."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from leaderboard.core.permissions import make_curator
from leaderboard.models import AuditRecord, Benchmark, BenchmarkMember, HardwareClass, Price
from tests.factories import make_user
from tests.leaderboard.entries import cost, make_system, score, scored_dataset
from tests.pages import one_line

pytestmark = pytest.mark.django_db


@pytest.fixture
def curator(client: Client) -> Client:
    """Signed in as a curator."""
    person = make_user("Carol")
    make_curator(person)
    client.force_login(person)
    return client


def exported(client: Client, model: str) -> list[dict[str, str]]:
    """The table as it is taken out."""
    answer = client.get(f"/admin/leaderboard/{model}/table.csv")
    assert "attachment" in answer["Content-Disposition"]
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def bring(client: Client, model: str, rows: list[dict[str, Any]], *, ending: str = "csv") -> Any:
    """Send the table, and the answer that shows what would change."""
    if ending == "json":
        text = json.dumps(rows)
    else:
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        text = out.getvalue()
    file = SimpleUploadedFile(f"table.{ending}", text.encode())
    return client.post(f"/admin/leaderboard/{model}/table/", {"file": file, "why": "put right"})


def confirm(client: Client, model: str, answer: Any) -> str:
    """Store what was shown."""
    form = answer.context["form"]
    sent = {"text": form["text"].value(), "why": form["why"].value(), "confirmed": "yes"}
    return client.post(f"/admin/leaderboard/{model}/table/", sent, follow=True).content.decode()


def test_systems_go_out_and_come_back_changed_after_a_look(curator: Client) -> None:
    dataset = scored_dataset(slug="nuts")
    system = make_system("=Owl", description="small, with “quotes”\nand lines", training_datasets=["msmarco"])
    score(dataset, system, ndcg=0.5)
    rows = exported(curator, "system")
    assert rows[0]["name"] == "'=Owl"
    assert "team" not in rows[0]
    assert "The file contains no changes" in bring(curator, "system", rows).content.decode()
    rows[0] |= {"training_datasets": '["nuts"]', "training_declared": "1", "licence": "MIT"}
    answer = bring(curator, "system", rows)
    page = one_line(answer.content.decode())
    assert "1 row will change. The changes are not stored yet." in page
    assert "<dt>licence</dt><dd><del>(empty)</del> → <ins>“MIT”</ins>" in page
    assert "style=" not in page
    system.refresh_from_db()
    assert system.licence == ""
    assert "1 row changed" in confirm(curator, "system", answer)
    system.refresh_from_db()
    assert (system.name, system.licence, system.entries.get().training) == ("=Owl", "MIT", "in-domain")
    record = AuditRecord.objects.get(action="imported table")
    assert (record.actor_name, record.reason, record.after["licence"]) == ("Carol", "put right", "MIT")
    assert system.history.latest().history_change_reason == "put right"


def test_everything_wrong_is_listed_and_nothing_is_stored(curator: Client) -> None:
    make_system("Owl")
    rows = exported(curator, "system")
    rows[0]["architecture"] = "magic"
    rows.append({**rows[0], "slug": "nobody"})
    answer = bring(curator, "system", rows)
    text = answer.content.decode()
    assert answer.status_code == 400
    assert "architecture" in text
    assert "There is no system with slug nobody" in text
    file = SimpleUploadedFile("table.csv", b"\xff\xfe\x00")
    refused = curator.post("/admin/leaderboard/system/table/", {"file": file, "why": "x"})
    assert "not UTF-8 text" in refused.content.decode()
    assert "Choose a file" in curator.post("/admin/leaderboard/system/table/", {"why": "x"}).content.decode()


def test_benchmarks_come_with_their_members(curator: Client) -> None:
    benchmark = Benchmark.objects.create(slug="few", name="Few")
    for slug in ("nuts", "bolts"):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=scored_dataset(slug=slug))
    scored_dataset(slug="screws")
    [row] = exported(curator, "benchmark")
    assert [each["dataset"] for each in json.loads(row["members"])] == ["nuts", "bolts"]
    row["members"] = json.dumps([{"dataset": "screws"}, {"dataset": "nuts", "counted": False}])
    answer = bring(curator, "benchmark", [row])
    assert benchmark.members.count() == 2
    confirm(curator, "benchmark", answer)
    members = benchmark.members.order_by("position").values_list("dataset__slug", "counted")
    assert list(members) == [("screws", True), ("nuts", False)]
    row["members"] = '[{"dataset": "nails"}]'
    assert "There is no dataset nails" in bring(curator, "benchmark", [row]).content.decode()


def test_prices_may_be_new_and_boards_follow(curator: Client) -> None:
    cost(score(scored_dataset(slug="nuts"), "Owl", ndcg=0.5), 3.6)
    hardware = HardwareClass.objects.get()
    price = {
        "hardware": hardware.slug,
        "valid_from": "2026-01-01",
        "per_hour": "2.5",
        "currency": "USD",
        "note": "",
    }
    answer = bring(curator, "price", [price], ending="json")
    assert not Price.objects.exists()
    confirm(curator, "price", answer)
    assert Price.objects.get().per_hour == 2.5
    assert AuditRecord.objects.get(action="imported table").after["per_hour"] == "2.5"


def test_who_may_only_look_takes_out_and_brings_nothing_in(client: Client) -> None:
    sam = make_user("Sam", is_staff=True)
    sam.user_permissions.add(Permission.objects.get(codename="view_system"))
    client.force_login(sam)
    assert client.get("/admin/leaderboard/system/table.json").status_code == 200
    assert client.get("/admin/leaderboard/system/table/").status_code == 403
    assert client.get("/admin/leaderboard/price/table.csv").status_code == 403
    assert client.get("/admin/leaderboard/system/table.exe").status_code == 403


def test_the_measure_of_a_benchmark_is_chosen_from_the_known_ones(curator: Client) -> None:
    page = one_line(curator.get("/admin/leaderboard/benchmark/add/").content.decode())
    row = page.partition('class="form-row field-measure')[2].partition('class="form-row')[0]
    assert "Common measures" in row
    assert ">nDCG@10</option>" in row
