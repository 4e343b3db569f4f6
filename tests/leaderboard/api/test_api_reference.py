"""The page that explains the API: everything of the schema is on it, and it needs no script."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from leaderboard.api.documents import LockedSchemaGenerator, SchemaView

pytestmark = pytest.mark.django_db


@pytest.fixture
def schema(client: Client) -> dict[str, Any]:
    """The schema that programs read."""
    found: dict[str, Any] = client.get("/api/v1/schema/?format=json").json()
    return found


@pytest.fixture
def page(client: Client) -> str:
    """The page that people read."""
    answer = client.get("/api/v1/docs/")
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    return unescape(answer.content.decode())


def test_every_operation_is_on_the_page_with_its_parameters_fields_and_answers(
    schema: dict[str, Any], page: str
) -> None:
    assert {"/api/v1/datasets/{slug}/board/", "/api/v1/submissions/"} <= schema["paths"].keys()
    told = page[page.index('id="errors"') :]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            part = told.split(f"<b>{method.upper()}</b> {path}</code>")[1].split("</section>")[0]
            bodies = operation.get("requestBody", {}).get("content", {})
            names = {parameter["name"] for parameter in operation.get("parameters", [])}
            for content in bodies.values():
                if "$ref" not in content["schema"]:  # bytes of a file
                    assert content["schema"]["format"] == "binary"
                    continue
                component = schema["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
                names |= component["properties"].keys()
            assert [name for name in names if f"<code>{name}</code>" not in part] == []
            assert [status for status in operation["responses"] if f"<dt>{status}</dt>" not in part] == []
            assert [content for content in bodies if f"<code>{content}</code>" not in part] == []
            assert "<code>curl " in part


def test_every_link_within_the_page_leads_to_a_part_of_it(page: str) -> None:
    links = {part.split('"')[0] for part in page.split('href="#')[1:]}
    anchors = [part.split('"')[0] for part in page.split(' id="')[1:]]
    assert links <= set(anchors)
    assert len(anchors) == len(set(anchors))


def test_examples_say_what_is_needed(page: str) -> None:
    token = '-H "Authorization: Bearer $TOKEN"'
    for example in (
        "curl http://testserver/api/v1/datasets/SLUG/",
        'curl "http://testserver/api/v1/benchmarks/SLUG/board/?measure=nDCG@10&architecture=dense"',
        f"curl {token} -F dataset=SLUG -F file=@run.txt.gz http://testserver/api/v1/check/",
        f"curl {token} -X POST http://testserver/api/v1/submissions/IDENTIFIER/cancel/",
        f"curl {token} --json '{{\"public\": true}}' http://testserver/api/v1/submissions/IDENTIFIER/visibility/",
        f"curl {token} --json '{{\"priority\": 1}}' http://testserver/api/v1/submissions/IDENTIFIER/priority/",
    ):
        assert f"<code>{example}</code>" in page


def test_files_are_told_from_addresses(schema: dict[str, Any], page: str) -> None:
    fields = schema["components"]["schemas"]["SubmissionRequest"]["properties"]
    assert fields["checkpoint"]["format"] == "binary"
    assert fields["file"]["items"]["format"] == "binary"
    assert fields["paper"]["format"] == "uri"
    assert "file, may repeat" in page


def test_it_has_no_script_but_those_of_every_page(client: Client, page: str) -> None:
    scripts = re.compile(r"<script[^>]*>")
    assert scripts.findall(page) == scripts.findall(client.get("/search/").content.decode())


def test_the_schema_is_made_in_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visitors come at once after a start, and what makes it would fail for the second of them."""
    inside: list[int] = []
    most: list[int] = []

    def slow(self: SchemaGenerator, request: Any, public: bool) -> dict[str, Any]:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return {}

    monkeypatch.setattr(SchemaGenerator, "get_schema", slow)
    assert SchemaView.generator_class is LockedSchemaGenerator
    with ThreadPoolExecutor(4) as threads:
        made = [
            threads.submit(LockedSchemaGenerator().get_schema, request=None, public=True) for _ in range(4)
        ]
    assert [each.result() for each in made] == [{}] * 4
    assert max(most) == 1
