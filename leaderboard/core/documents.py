"""Documentation pages, rendered from the files of `docs/` that are meant for readers."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify
from markdown_it import MarkdownIt
from markdown_it.token import Token

#: Sidebar entries by heading: names of files in `docs/` without their ending, or (route name, title) of a
#: page of the site. Files that do not exist are skipped.
SIDEBAR: Mapping[str, Sequence[str | tuple[str, str]]] = {
    "Tutorials": ["tutorial", "own-board"],
    "How-to guides": ["datasets", "client", "curation", "judging", "rounds", "operations", "scaling"],
    "Reference": [
        ("measures", "Methodology"), ("efficiency", "Efficiency protocol"), ("figures", "Figures"),
        ("formats", "File formats"), ("models", "Models"), "engines", "checkpoints", "containers", "api",
        ("api-docs", "API reference"), "interchange", "limits", "teams", "glossary",
    ],
    "Explanation": ["contamination"],
}  # fmt: skip
_FOLDER = settings.BASE_DIR / "docs"
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_FILE = re.compile(r"(?:\.?/)?([a-z-]+)\.md(#.*)?")


class Heading(NamedTuple):
    """A second-level heading."""

    anchor: str
    text: str


class Document(NamedTuple):
    """A documentation page: title, HTML without the title, and second-level headings."""

    title: str
    html: SafeString
    headings: Sequence[Heading]


class Link(NamedTuple):
    """A sidebar entry."""

    url: str
    title: str


@cache
def names() -> frozenset[str]:
    """Return the names of the files that have a page."""
    entries = {entry for lines in SIDEBAR.values() for entry in lines if isinstance(entry, str)}
    return frozenset(name for name in entries if (_FOLDER / f"{name}.md").is_file())


@cache
def sidebar() -> list[tuple[str, list[Link]]]:
    """Return the links of the sidebar by heading."""
    sections = []
    for head, lines in SIDEBAR.items():
        links = [
            Link(reverse("doc", args=[entry]), document(entry).title)
            if isinstance(entry, str)
            else Link(reverse(entry[0]), entry[1])
            for entry in lines
            if not isinstance(entry, str) or entry in names()
        ]
        sections.append((head, links))
    return sections


@cache
def document(name: str) -> Document:
    """Render a file as a page. Raises KeyError if it has none.

    The files belong to the site and are trusted, so their HTML is not sanitized.
    """
    if name not in names():
        raise KeyError(name)
    tokens = _PARSER.parse(Path(_FOLDER, f"{name}.md").read_text())
    title, headings = name.capitalize(), list[Heading]()
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            text = "".join(part.content for part in tokens[place + 1].children or [])
            if token.tag == "h1":
                title, token.hidden = text, True
                tokens[place + 1].children, tokens[place + 2].hidden = [], True
                continue
            token.attrSet("id", slugify(text))
            if token.tag == "h2":
                headings.append(Heading(slugify(text), text))
        elif token.type == "inline":
            _rewrite_links(token.children or [])
    html = _PARSER.renderer.render(tokens, _PARSER.options, {})
    html = html.replace("<th></th>", "<td></td>").replace("</table>", "</table></div>")
    # The Content-Security-Policy forbids inline styles.
    html = re.sub(r' style="text-align:(\w+)"', lambda match: ' class="n"' * (match[1] == "right"), html)
    for number in range(html.count("<table>")):
        html = html.replace("<table>", _TABLE.format(number + 1), 1)
    html = html.replace("<pre>", '<pre class="code-block" tabindex="0">')
    return Document(title, mark_safe(html), headings)  # noqa: S308


#: Wide tables and code blocks scroll within the page and can be focused by keyboard.
_TABLE = '<div class="table-scroll" tabindex="0" role="region" aria-label="Table {}"><table class="table is-prose">'


def _rewrite_links(tokens: Sequence[Token]) -> None:
    """Point links between files at their pages, and reduce links to other source files to plain text."""
    is_dead = False
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrGet("href") or "")
            file = _FILE.fullmatch(target)
            if file and file[1] in names():
                token.attrSet("href", reverse("doc", args=[file[1]]) + (file[2] or ""))
            elif not target.startswith(("#", "/", "http://", "https://", "mailto:")):
                token.hidden = is_dead = True
        elif token.type == "link_close" and is_dead:
            token.hidden, is_dead = True, False
