"""Hostile text in every row of a site, and what an output must be all the same, by the kind of its content."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import bibtexparser
import yaml
from django.apps import apps
from django.db import models
from markdown_it import MarkdownIt

#: For names: what begins a formula, ends an attribute, an element, a section of XML, a row of a table or a line of a
#: header, commands of TeX, a name turned around and one in which something cannot be seen.
NAME = "=1+1|\"'><script>x()</script>]]>{\\input{/etc/passwd}}\\write18{id}%0d%0a\u202e\u200b\x0b\r\nBcc: a@b.c"
#: For texts: the same as Markdown may hide it, and longer than any page expects.
TEXT = (
    f"{NAME}\n\n[a](javascript:x()) ![b](//evil.example/x) <img src=x onerror=x()> <svg/onload=x()>\n"
    '<a href="javas\tcript:x()">c</a>\n{{ 7*7 }}{% load x %}\n</textarea></title>' + "w" * 10_000
)
#: An address that a form takes: all that may not be in one is an ASCII blank.
ADDRESS = "https://evil.example/'\"><script>x()</script>]]>}\\input{x}%0d%0a"
#: BibTeX that a form takes.
REFERENCE = "@article{evil, title = {\\input{/etc/passwd} <script>x()</script>}, note = {\\write18{id}}}"

#: What pages are asked for after a question mark.
ASKED = (
    "q", "sort", "measure", "view", "dataset", "system", "page", "team", "columns", "architecture", "engine", "tab",
    "limit", "offset", "unread", "o", "p", "e", "_popup", "at", "secret", "reference", "against", "k", "domain",
)  # fmt: skip

#: Columns that the site reads itself, and nobody else writes: hashes, keys, codes, names of measures and kinds.
_OWN = {
    "action", "beir_name", "comparison_group", "currency", "engine", "error_code", "event", "fault", "hub_commit",
    "key", "language", "measure", "password", "path", "primary_measure", "protocol", "secret", "specification", "split",
    "stage", "submission_reference", "token_key", "version",
}  # fmt: skip
#: What is a part of an address, which says itself what it takes.
_OF_ADDRESSES = {"DatasetFile.name"}
#: Columns of JSON whose texts people write.
_LISTS = {"training_datasets", "adapted_to"}
#: What a board of the past remembers of people's words, by key.
_REMEMBERED = {
    "system", "configuration", "team", "name", "title", "label", "reason", "locator", "authors", "backbone", "licence",
    "training_compute", "note",
}  # fmt: skip


def plant(numbers: Iterator[int]) -> set[str]:
    """Put hostile text wherever the database holds people's words; the columns that now have it."""
    planted = set()
    for model in [
        *apps.get_app_config("leaderboard").get_models(),
        *apps.get_app_config("submissions").get_models(),
    ]:
        for row in model._default_manager.all():
            values = dict(_hostile(model, row, next(numbers)))
            if values:
                model._base_manager.filter(pk=row.pk).update(**values)
                planted |= {f"{model.__name__}.{name}" for name in values}
    return planted


def _hostile(model: type[models.Model], row: models.Model, number: int) -> Iterator[tuple[str, Any]]:
    for field in model._meta.concrete_fields:
        name, here = field.name, f"{model.__name__}.{field.name}"
        if field.primary_key or field.choices or name in _OWN or here in _OF_ADDRESSES or name.endswith("sha256"):
            continue
        if isinstance(field, models.JSONField):
            if name == "parameters":
                yield name, {NAME: TEXT[:400]}
            elif name in _LISTS:
                yield name, [NAME]
            elif name in ("row", "facts", "announced", "comparison"):
                yield name, _remembered(getattr(row, name))
        elif isinstance(field, models.URLField):
            yield name, ADDRESS
        elif name == "bibtex":
            yield name, REFERENCE
        elif isinstance(field, models.TextField):
            yield name, TEXT
        elif type(field) is models.CharField:
            # The end tells rows apart where names may not be the same.
            yield name, f"{NAME[: (field.max_length or 0) - 4]}{number:04d}"[: field.max_length]


def _remembered(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _remembered(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_remembered(each, key) for each in value]
    return NAME if isinstance(value, str) and value and key in _REMEMBERED else value


# --- what an output must be


class _Page(HTMLParser):
    """Finds what would run, or lead where nobody sees, in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.data_of = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attributes}
        if tag in ("iframe", "object", "embed", "base", "style", "frame"):
            self.found.append(f"<{tag}>")
        if tag == "script" and not said.get("src", "").startswith(("/static/", "/admin/jsi18n/")):
            self.found.append(f"<script {said}>")
        for name, value in said.items():
            if name.startswith("on") or name == "srcdoc" or (name == "style" and value not in _ALIGNED):
                self.found.append(f"<{tag} {name}>")
            scheme = re.sub(r"[\x00-\x20\u200b]", "", value).partition(":")[0].casefold()
            if name in ("href", "src", "action", "formaction", "xlink:href") and scheme in _FOREIGN:
                self.found.append(f"<{tag} {name}={value[:40]!r}>")
            if name == "src" and not value.startswith("/"):
                self.found.append(f"<{tag} {name}={value[:40]!r}>")


#: How tables of Markdown say it.
_ALIGNED = {f"text-align:{side}" for side in ("left", "center", "right")}
_FOREIGN = {"javascript", "data", "vbscript", "file"}
_TEX = re.compile(r"\\(?:input|include|write|openout|openin|read|catcode|csname|def|let)(?![a-z])")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?%?")


def page(content: bytes) -> list[str]:
    """What is wrong with a page."""
    reader = _Page()
    reader.feed(content.decode())
    return reader.found


def xml(content: bytes) -> list[str]:
    """What is wrong with a feed or a picture. Raises ElementTree.ParseError where it is no XML."""
    found = []
    for element in ElementTree.fromstring(content.decode()).iter():
        if element.tag.rpartition("}")[2] in ("script", "foreignObject", "img"):
            found.append(element.tag)
        found += [name for name, value in element.attrib.items() if name.startswith("on") or "javascript:" in value]
        if element.get("type") == "html":
            found += page((element.text or "").encode())
    return found


def table(content: bytes) -> list[str]:
    """Cells that a spreadsheet would compute."""
    text = content.decode("utf-8-sig")
    rows = csv.reader(io.StringIO(text, newline=""))
    return [each for row in rows for each in row if _FORMULA.match(each) and not _NUMBER.fullmatch(each)]


def latex(content: bytes) -> list[str]:
    """Commands of TeX that read or write files."""
    return _TEX.findall(content.decode())


def bibliography(content: bytes) -> list[str]:
    """The same, and what another reader of BibTeX stumbles over."""
    # A comment between entries is no BibTeX to anybody.
    text = re.sub(r"^% .*$", "", content.decode(), flags=re.MULTILINE)
    return latex(text.encode()) + [str(block) for block in bibtexparser.parse_string(text).failed_blocks]


def markdown(content: bytes) -> list[str]:
    """What a reader of Markdown that lets HTML through would show."""
    return page(MarkdownIt("commonmark", {"html": True}).enable("table").render(content.decode()).encode())


def as_json(content: bytes) -> list[str]:
    """Raises ValueError where it is none."""
    json.loads(content)
    return []


def as_yaml(content: bytes) -> list[str]:
    """Raises yaml.YAMLError where it is none."""
    yaml.safe_load(content)
    return []


def archive(content: bytes) -> list[str]:
    """Names of members that lead elsewhere. Raises ValueError where a member is not the JSON that it is named."""
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        for name in members.namelist():
            json.loads(members.read(name))
        return [name for name in members.namelist() if not re.fullmatch(r"[\w./ @+()-]+", name) or ".." in name]


def nothing(content: bytes) -> list[str]:
    """No program reads it, or it has no text of people's."""
    return []


#: By the first part of an answer's Content-Type.
READERS: dict[str, Callable[[bytes], list[str]]] = {
    "text/html": page,
    "application/atom+xml": xml,
    "image/svg+xml": xml,
    "image/png": nothing,
    "text/csv": table,
    "application/json": as_json,
    "application/ld+json": as_json,
    "application/yaml": as_yaml,
    "application/vnd.oai.openapi": as_yaml,
    "application/zip": archive,
    "text/markdown": markdown,
    "text/x-bibtex": bibliography,
    "text/x-tex": latex,
    "application/gzip": nothing,
    "text/plain": nothing,
    "text/javascript": nothing,
}
