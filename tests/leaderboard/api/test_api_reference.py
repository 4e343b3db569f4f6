"""The reference of the API: an index of all operations, and pages of sections that describe the whole schema."""

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
def index(client: Client) -> str:
    """The page that lists all operations."""
    return fetch(client, "/api/v1/docs/")


@pytest.fixture
def pages(client: Client, schema: dict[str, Any]) -> dict[str, str]:
    """The pages of all sections, by address."""
    sections = {section_of(path) for path in schema["paths"]}
    return {address: fetch(client, address) for address in sorted(sections)}


def fetch(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    return unescape(answer.content.decode())


def section_of(path: str) -> str:
    """The address of the page that describes an operation."""
    return f"/api/v1/docs/{path.split('/')[3]}/"


def anchors_of(page: str) -> list[str]:
    return [part.split('"')[0] for part in page.split(' id="')[1:]]


def test_every_operation_is_on_its_page_with_its_parameters_fields_and_answers(
    schema: dict[str, Any], pages: dict[str, str]
) -> None:
    assert {"/api/v1/datasets/{slug}/board/", "/api/v1/submissions/"} <= schema["paths"].keys()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            told = pages[section_of(path)]
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


def test_the_index_links_every_operation_and_object_under_its_anchor(index: str, pages: dict[str, str]) -> None:
    links = re.findall(r'<li id="([^"]+)">\s*<a href="([^"#]+)#([^"]+)">', index)
    assert all(anchor == target and anchor in anchors_of(pages[page]) for anchor, page, target in links)
    described = {
        anchor for page in pages.values() for anchor in re.findall(r'operation stack">\s*<h3 id="([^"]+)"', page)
    }
    assert {anchor for anchor, _, _ in links} == described
    assert {"get-api-v1-datasets", "object-error"} <= described
    assert set(re.findall(r'<h2><a href="([^"]+)"', index)) == pages.keys()
    assert len(index) < 100_000


def test_every_link_within_a_page_leads_to_a_part_of_it(index: str, pages: dict[str, str]) -> None:
    for page in (index, *pages.values()):
        anchors = anchors_of(page)
        assert {part.split('"')[0] for part in page.split('href="#')[1:]} <= set(anchors)
        assert len(anchors) == len(set(anchors))


def test_an_unknown_section_is_not_found(client: Client) -> None:
    assert client.get("/api/v1/docs/nothing/").status_code == 404


def test_examples_say_what_is_needed(pages: dict[str, str]) -> None:
    token = '-H "Authorization: Bearer $TOKEN"'
    told = "".join(pages.values())
    for example in (
        "curl http://testserver/api/v1/datasets/SLUG/",
        'curl "http://testserver/api/v1/benchmarks/SLUG/board/?measure=nDCG@10&architecture=dense"',
        "curl -F dataset=SLUG -F file=@run.txt.gz http://testserver/api/v1/check/",
        f"curl {token} -X POST http://testserver/api/v1/submissions/IDENTIFIER/cancel/",
        f"curl {token} --json '{{\"public\": true}}' http://testserver/api/v1/submissions/IDENTIFIER/visibility/",
        f"curl {token} --json '{{\"priority\": 1}}' http://testserver/api/v1/submissions/IDENTIFIER/priority/",
    ):
        assert f"<code>{example}</code>" in told


def test_files_are_told_from_addresses(schema: dict[str, Any], pages: dict[str, str]) -> None:
    fields = schema["components"]["schemas"]["SubmissionRequest"]["properties"]
    assert fields["checkpoint"]["format"] == "binary"
    assert fields["file"]["items"]["format"] == "binary"
    assert fields["paper"]["format"] == "uri"
    assert "file, repeatable" in pages["/api/v1/docs/submissions/"]


def test_it_has_no_script_but_those_of_every_page(client: Client, index: str, pages: dict[str, str]) -> None:
    scripts = re.compile(r"<script[^>]*>")
    wanted = scripts.findall(client.get("/search/").content.decode())
    assert all(scripts.findall(page) == wanted for page in (index, *pages.values()))


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
        made = [threads.submit(LockedSchemaGenerator().get_schema, request=None, public=True) for _ in range(4)]
    assert [each.result() for each in made] == [{}] * 4
    assert max(most) == 1
