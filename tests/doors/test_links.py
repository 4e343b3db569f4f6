"""Links and forms of the site's own pages: each page that they lead to reads all of their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.urls import Resolver404, resolve

from leaderboard.core.http.query_parameters import declared_parameters
from tests.doors.content import Site
from tests.doors.expected import ROWS
from tests.doors.walking import doors_of
from tests.pages import clear_page_cache
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

#: Attributes with an address that a browser asks for by GET.
ADDRESSES = ("href", "src", "hx-get", "data-figure-url")
#: Pages that need content of their own to have all of their links.
MORE = (
    "/benchmarks/beir/?view=relative&pin=bm25-ce-beir&zero-shot=1&sort=mean&sort=nq:asc&max-mean=0.9&corpus=1000",
    "/benchmarks/beir/board.json", "/figures/wins/?benchmark=beir&architecture=dense", "/figures/pareto/",
    "/datasets/nq/?columns=all&q=bm25&rows=all", "/compare/?system=bm25-beir-2021&system=colbert-beir-2021",
    "/search/?q=b", "/benchmarks/?sort=results", "/systems/bm25-beir-2021/",
)  # fmt: skip


class _Page(HTMLParser):
    """The addresses that a page asks for, each with the names of its parameters."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.requests: list[tuple[str, list[str]]] = []
        self._address = address
        self._form: list[str] | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note links, and the fields of forms that are sent by GET."""
        values = {name: value or "" for name, value in attributes}
        self.requests += [(values[name], []) for name in ADDRESSES if values.get(name, "").startswith(("/", "?"))]
        if tag == "form":
            self._form = [] if values.get("method", "get").lower() == "get" else None
            if self._form is not None:
                self.requests.append((values.get("action") or self._address.partition("?")[0], self._form))
        elif self._form is not None and tag in ("input", "select", "textarea") and values.get("name"):
            self._form.append(values["name"])

    def handle_endtag(self, tag: str) -> None:
        """Leave a form."""
        if tag == "form":
            self._form = None


def _unread(address: str, page: str) -> Iterator[str]:
    """Yield the page's addresses with parameters that are not read there, and the ones that lead nowhere."""
    reader = _Page(address)
    reader.feed(page)
    for target, fields in reader.requests:
        parts = urlsplit(target)
        names = {*(name for name, _ in parse_qsl(parts.query, keep_blank_values=True)), *fields}
        try:
            match = resolve(parts.path or urlsplit(address).path)
        except Resolver404:
            continue
        if not names or match.namespace or not match.func.__module__.startswith(("leaderboard.", "submissions.")):
            continue
        known = declared_parameters(match.func, match.kwargs)
        prefixes = tuple(name.removesuffix("*") for name in known if name.endswith("*"))
        if wrong := {name for name in names if name not in known and not (prefixes and name.startswith(prefixes))}:
            yield f"{address}: {target} with {', '.join(sorted(wrong))}"


def test_every_link_and_form_has_parameters_that_its_page_reads(site: Site) -> None:
    load_reported()
    clear_page_cache()
    addresses = [
        door.address for door in doors_of(site, ROWS) if not door.address.startswith(("/admin/", "/account/logout"))
    ]
    wrong, read = set(), 0
    for address in (*addresses, *MORE):
        for person in ("anonymous", "owner"):
            answer = site.people[person].get(address)
            if answer.status_code == 200 and "text/html" in answer.headers.get("Content-Type", ""):
                read += 1
                wrong |= set(_unread(address, answer.content.decode()))
    assert read > 100
    assert not wrong, "\n".join(sorted(wrong))


def test_every_link_with_parameters_is_answered(site: Site) -> None:
    load_reported()
    clear_page_cache()
    client, seen = site.people["anonymous"], {}
    for address in ("/", "/datasets/demo/", "/datasets/demo/queries/", *MORE):
        reader = _Page(address)
        answer = client.get(address)
        if "text/html" not in answer.headers["Content-Type"]:
            continue
        reader.feed(answer.content.decode())
        for target, _ in reader.requests:
            parts = urlsplit(target)
            names = frozenset(name for name, _ in parse_qsl(parts.query))
            if names and not parts.path.startswith("/account/"):
                seen.setdefault((parts.path or urlsplit(address).path, names), f"{parts.path or address}?{parts.query}")
    assert len(seen) > 50
    for address in seen.values():
        assert client.get(address).status_code in (200, 302), address
