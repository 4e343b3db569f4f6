"""The parts of `docs/` that are for readers, as pages: in the order of their sidebar, links between them rewritten."""

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

#: By head: files of `docs/` without their ending, and pages of the site by the names of their routes. A file that is
#: not there has no page.
SIDEBAR: Mapping[str, Sequence[str | tuple[str, str]]] = {
    "Tutorials": ["tutorial", "own-board"],
    "How-to guides": ["datasets", "client", "curation", "judging", "rounds", "operations", "scaling"],
    "Reference": [
        ("measures", "Methodology"), ("efficiency", "Efficiency protocol"), ("figures", "Figures"),
        ("formats", "File formats"), ("models", "Models"), "engines", "checkpoints", "api",
        ("api-docs", "API reference"), "interchange", "limits", "teams", "glossary",
    ],
    "Explanation": ["contamination"],
}  # fmt: skip
_FOLDER = settings.BASE_DIR / "docs"
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_FILE = re.compile(r"(?:\.?/)?([a-z-]+)\.md(#.*)?")


class Heading(NamedTuple):
    """A heading of the second level."""

    anchor: str
    text: str


class Document(NamedTuple):
    """A page of the documentation: its first heading, what follows as HTML, and the headings of that."""

    title: str
    html: SafeString
    headings: Sequence[Heading]


class Link(NamedTuple):
    """A line of the sidebar."""

    url: str
    title: str


@cache
def names() -> frozenset[str]:
    """The files that have a page."""
    listed = {each for lines in SIDEBAR.values() for each in lines if isinstance(each, str)}
    return frozenset(name for name in listed if (_FOLDER / f"{name}.md").is_file())


@cache
def sidebar() -> list[tuple[str, list[Link]]]:
    """The links of the documentation by their heads."""
    found = []
    for head, lines in SIDEBAR.items():
        links = [
            Link(reverse("doc", args=[each]), document(each).title)
            if isinstance(each, str)
            else Link(reverse(each[0]), each[1])
            for each in lines
            if not isinstance(each, str) or each in names()
        ]
        found.append((head, links))
    return found


@cache
def document(name: str) -> Document:
    """A file as a page. Raises KeyError for one that has none. Its text is the site's own, so nothing is stripped."""
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
    # The Content-Security-Policy refuses styles within a page.
    html = re.sub(r' style="text-align:(\w+)"', lambda match: ' class="n"' * (match[1] == "right"), html)
    for number in range(html.count("<table>")):
        html = html.replace("<table>", _TABLE.format(number + 1), 1)
    html = html.replace("<pre>", '<pre class="code-block" tabindex="0">')
    return Document(title, mark_safe(html), headings)  # noqa: S308


#: Wide tables and blocks of code scroll within the page, by keyboard too.
_TABLE = '<div class="table-scroll" tabindex="0" role="region" aria-label="Table {}"><table class="table is-prose">'


def _rewrite_links(tokens: Sequence[Token]) -> None:
    """Lead links between files to their pages; of links to other files of the source the text alone stays."""
    dead = False
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrGet("href") or "")
            file = _FILE.fullmatch(target)
            if file and file[1] in names():
                token.attrSet("href", reverse("doc", args=[file[1]]) + (file[2] or ""))
            elif not target.startswith(("#", "/", "http://", "https://", "mailto:")):
                token.hidden = dead = True
        elif token.type == "link_close" and dead:
            token.hidden, dead = True, False
