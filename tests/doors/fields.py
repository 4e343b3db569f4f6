"""Every field that the site reads: of its pages' forms, and of what the API's schema says that calls take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from django.conf import settings
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from tests.doors.walking import Door

_READ = re.compile(r"\b(?:POST|data)(?:\.get|\.getlist)?[\[(]\"(\w+)\"")


class Form(NamedTuple):
    """Where something is sent, how, and the fields with what they hold at first."""

    address: str
    method: str
    fields: dict[str, str]


class _Forms(HTMLParser):
    """The forms of a page, in their order; a field that stands in none belongs to the last one before it."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._select = ""
        self._open = Form(address, "get", {})
        self.found: list[Form] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note a form, or a field of the one that is open."""
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            action = urlsplit(urljoin(self._address, given.get("action", "")))
            self._open = Form(action.path, given.get("method", "get").lower(), {})
            self.found.append(self._open)
        elif tag in ("input", "textarea", "select", "button") and given.get("name"):
            self._open.fields.setdefault(given["name"], given.get("value", ""))
            self._select = given["name"] if tag == "select" else ""
        elif tag == "option" and self._select and "selected" in given:
            self._open.fields[self._select] = given.get("value", "")


def forms_of(client: Client, addresses: Iterable[str]) -> list[Form]:
    """The different forms of these pages, as the client is shown them."""
    found: dict[tuple[str, str], Form] = {}
    for address in addresses:
        response = client.get(address)
        if response.status_code != 200 or "html" not in response.headers["Content-Type"]:
            continue
        page = _Forms(address)
        page.feed(response.content.decode())
        for form in page.found:
            known = found.setdefault((form.method, form.address), form)
            known.fields.update({name: value for name, value in form.fields.items() if name not in known.fields})
    return list(found.values())


def calls_of(doors: Iterable[Door]) -> Iterator[Form]:
    """What the schema says that each call takes, in its body and after its address."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    paths = {path.replace("{", "<").replace("}", ">"): methods for path, methods in schema["paths"].items()}
    by_place = {_parts(path): methods for path, methods in paths.items()}
    for door in doors:
        for method, call in _methods(by_place, door.address).items():
            asked = {each["name"]: "" for each in call.get("parameters", ()) if each["in"] == "query"}
            if asked:
                yield Form(door.address, "get", asked)
            if method != "get" and (fields := _body(schema, call)):
                # With every word that decides what else is read, such as `kind`, and without.
                for word, choices in {
                    "": [""],
                    **{name: words for name, words in fields.items() if words},
                }.items():
                    for choice in choices:
                        yield Form(door.address, method, dict.fromkeys(fields, "") | ({word: choice} if word else {}))


def _methods(by_place: Mapping[tuple[str, ...], Any], address: str) -> Mapping[str, Any]:
    asked = _parts(urlsplit(address).path)
    for place, methods in by_place.items():
        if len(place) == len(asked) and all(a == b or a.startswith("<") for a, b in zip(place, asked, strict=True)):
            return {name: call for name, call in methods.items() if name in ("get", "post", "put", "patch", "delete")}
    return {}


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.strip("/").split("/"))


def names_in_the_source() -> list[str]:
    """The names that views read of what is sent to them, wherever they do."""
    root = Path(settings.BASE_DIR)
    texts = (path.read_text() for package in ("leaderboard", "submissions") for path in (root / package).rglob("*.py"))
    return sorted({name for text in texts for name in _READ.findall(text)})


def _body(schema: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, list[str]]:
    """The fields of a call's body, and of those that are one of some words, the words."""
    fields: dict[str, list[str]] = {}
    for content in call.get("requestBody", {}).get("content", {}).values():
        shape = content.get("schema", {})
        if "$ref" in shape:
            shape = schema["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
        fields |= {name: each.get("enum", []) for name, each in shape.get("properties", {}).items()}
    return fields
