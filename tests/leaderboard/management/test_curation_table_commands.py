"""Tables taken out and brought in from a terminal, and what a reader of the record may cut short."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import AuditRecord, Dataset
from tests.factories import make_user
from tests.leaderboard.entries import scored_dataset

pytestmark = pytest.mark.django_db


def run(command: str, *arguments: Any, **options: Any) -> str:
    """What a command says."""
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def test_quotas_of_datasets_are_changed_by_a_table(tmp_path: Path) -> None:
    scored_dataset(slug="nuts", hidden=True)
    by = {"by": make_user("Carol", is_staff=True).email, "why": "a round is on"}
    file = tmp_path / "datasets.csv"
    assert run("export_table", "datasets", to=file).startswith("1 row in")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    rows[0] |= {"daily_quota": "5", "licence": "MIT"}
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert "daily_quota: “2” → “5”" in run("import_table", "datasets", file, dry_run=True, **by)
    assert Dataset.objects.get().daily_quota == 2
    assert "1 row changed" in run("import_table", "datasets", file, **by)
    dataset = Dataset.objects.get()
    assert (dataset.daily_quota, dataset.monthly_quota, dataset.licence) == (5, 10, "MIT")
    record = AuditRecord.objects.get(action="imported table")
    assert (record.actor_name, record.reason, record.after["daily_quota"]) == ("Carol", by["why"], 5)
    file.write_text("slug,name\nbolts,Bolts\n")
    with pytest.raises(CommandError, match=r"There is no dataset with slug bolts.*line 2"):
        run("import_table", "datasets", file, **by)


def test_an_unknown_address_of_the_api_is_answered_in_its_own_form() -> None:
    answer = Client().get("/api/v1/rescores/")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert Client().get("/api/v1/datasets").status_code == 301
    page = Client().get("/nowhere/")
    assert (page.status_code, page["Content-Type"]) == (404, "text/html; charset=utf-8")
