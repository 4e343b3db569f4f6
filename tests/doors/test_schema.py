"""The API's schema says what is really answered, and programs that are made of it work."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator, FormatChecker

from leaderboard.api.documents import LockedSchemaGenerator
from leaderboard.models import Dataset, Entry
from leaderboard.results.publishing.visibility import quarantine
from tests.doors.content import Site, build
from tests.leaderboard.entries import make_system, score, score_seeds, scored_dataset
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

#: What imports every module of a client, and reads an answer with each model that is named.
READ_ALL = """
import importlib, json, pkgutil, sys
from pathlib import Path
import made
names = [each.name for each in pkgutil.walk_packages(made.__path__, "made.")]
for name in names:
    importlib.import_module(name)
models = importlib.import_module("made.models")
for model, answers in json.loads(Path(sys.argv[1]).read_text()).items():
    for answer in answers:
        read = getattr(models, model).from_dict(answer)
        assert read.to_dict().keys() == answer.keys(), model
        assert not read.additional_properties, (model, read.additional_properties)
boards = [models.Board.from_dict(each) for each in json.loads(Path(sys.argv[1]).read_text())["Board"]]
board = next(each for each in boards if each.rows and "nDCG@10" in each.rows[0].values)
print(len(names), type(board.rows[0]).__name__, board.rows[0].values["nDCG@10"])
"""


def strict(schema: Any) -> Any:
    """OpenAPI 3.0's way of a schema as JSON Schema has it: null among the types, and no field that is not named."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: strict(each) for name, each in schema.items() if name != "nullable"}
    if isinstance(schema.get("properties"), Mapping) and "type" in schema:
        found.setdefault("additionalProperties", False)
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True else found


def formats() -> FormatChecker:
    """Dates and addresses."""
    checker = FormatChecker(formats=("date",))
    checker.checks("date-time", raises=ValueError)(lambda value: not value or bool(datetime.fromisoformat(value)))
    checker.checks("uri")(lambda value: not value or re.match(r"https?://\S+$", value) is not None)
    return checker


def calls(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The path of every GET, and the schema of what it answers with 200."""
    for path, methods in schema["paths"].items():
        if "get" in methods:
            (content,) = methods["get"]["responses"]["200"]["content"].values()
            yield path, content["schema"]


def answers(site: Site, path: str) -> Iterator[Any]:
    """What the call answers to the owner: for everything that lists name, else for what stands on the site."""
    asked = {path}
    while part := re.search(r"\{(\w+)\}", next(iter(asked))):
        section = path.split("/")[3]
        values = {site.places[section, part[1]]}
        if part[1] == "slug" and section in ("datasets", "benchmarks"):
            listed = site.people["owner"].get(f"/api/v1/{section}/").json()[section]
            values |= {each["slug"] for each in listed}
        if part[1] == "slug" and section == "systems":
            values |= set(Entry.objects.public().values_list("system__slug", flat=True))
        asked = {each.replace(part[0], value) for each in asked for value in values}
    for address in sorted(asked):
        answer = site.people["owner"].get(address, headers={"Tus-Resumable": "1.0.0"})
        assert answer.status_code == 200, (address, answer.content)
        yield answer.json()


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """As everybody reads it."""
    found: dict[str, Any] = LockedSchemaGenerator().get_schema(request=None, public=True)
    return json.loads(json.dumps(found, default=str))


def wrong(site: Site, schema: Mapping[str, Any], only: str = "") -> list[str]:
    """What any GET, or that of one path, answers that is not as the schema says, field by field."""
    components, found = strict(schema["components"]), []
    for path, answered in calls(schema):
        if only and path != only:
            continue
        checker = Draft202012Validator({**strict(answered), "components": components}, format_checker=formats())
        for answer in answers(site, path):
            found += [f"{path} {error.json_path}: {error.message[:300]}" for error in checker.iter_errors(answer)]
    return found


def test_every_get_answers_as_the_schema_says(db: None, tmp_path: Path, schema: dict[str, Any]) -> None:
    site = build(tmp_path)
    quarantine(Entry.objects.get(submission_reference=site.public.pk), "Under review.")
    open_one = scored_dataset(slug="open", name="Open")
    score(open_one, make_system("Plain"), ndcg=0.25)
    score_seeds(open_one, make_system("Seeds"), {"ndcg": 0.25}, {"ndcg": 0.5})
    assert wrong(site, schema) == []
    other = deepcopy(schema)
    fields = other["components"]["schemas"]["DatasetSummary"]["properties"]
    del fields["licence"]
    fields["entries"] = {"type": "string"}
    path = "/api/v1/datasets/"
    assert len(wrong(site, other, path)) == 2 * Dataset.objects.listed().count()


def test_no_answer_is_an_object_of_anything(schema: dict[str, Any]) -> None:
    """A client made of the schema has fields, whatever it asked for."""
    for path, answered in calls(schema):
        inner = answered["items"] if answered.get("type") == "array" else answered
        name = inner.get("$ref", "").rpartition("/")[2]
        assert schema["components"]["schemas"].get(name, {}).get("properties"), path


@pytest.mark.long
def test_every_get_about_reported_figures_too(db: None, tmp_path: Path, schema: dict[str, Any]) -> None:
    site = build(tmp_path)
    load_reported()
    assert wrong(site, schema) == []


@pytest.mark.long  # the client is made and imported by programs of their own
def test_a_client_made_of_the_schema_imports_whole_and_reads_answers(
    db: None, tmp_path: Path, schema: dict[str, Any]
) -> None:
    site = build(tmp_path)
    written = Client().get("/api/v1/schema/").content
    (tmp_path / "schema.yaml").write_bytes(written)
    (tmp_path / "config.yaml").write_text(
        "content_type_overrides:\n  application/offset+octet-stream: application/octet-stream\npost_hooks: []\n"
    )
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning", "--meta", "none",
         "--path", "schema.yaml", "--config", "config.yaml", "--output-path", "made"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    by_model: dict[str, list[Any]] = {}
    for path, answered in calls(schema):
        if "$ref" in answered:
            by_model.setdefault(answered["$ref"].rpartition("/")[2], []).extend(answers(site, path))
    (tmp_path / "answers.json").write_text(json.dumps(by_model))
    read = subprocess.run(
        [sys.executable, "-c", READ_ALL, "answers.json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    modules, row, value = read.stdout.split()
    assert int(modules) > 100
    assert row == "Row"
    assert float(value) > 0
