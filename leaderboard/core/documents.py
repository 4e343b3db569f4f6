"""Documentation pages, rendered from the files of `docs/` that are meant for readers."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import unescape
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from django.conf import settings
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify
from markdown_it import MarkdownIt
from markdown_it.token import Token

#: Sidebar entries by reader: names of files in `docs/` without their ending, or (route name, title) of a
#: page of the site. Files that do not exist are skipped.
SIDEBAR: Mapping[str, Sequence[str | tuple[str, str]]] = {
    "Results": [
        "read-a-board", ("measures", "Methodology"), "worked-examples", ("efficiency", "Efficiency protocol"),
        ("figures", "Figures"), "contamination", "glossary",
    ],
    "Submissions": [
        "tutorial", "answer-runs", "submit-a-model", ("formats", "File formats"), ("models", "Models"), "engines",
        "checkpoints", "containers", "limits", "teams",
    ],
    "API and client": ["client", "api", ("api-docs", "API reference"), "interchange"],
    "For curators": ["datasets", "curation", "judging", "rounds"],
    "For operators": ["start-a-site", "own-board", "operations", "scaling"],
}  # fmt: skip
_FOLDER = settings.BASE_DIR / "docs"
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_FILE = re.compile(r"(?:\.?/)?([a-z-]+)\.md(#.*)?")
_HEADING = re.compile(
    r'(?s)(?:<h(?P<level>[23])|(?<=<li>)<strong)(?:[^>]*? id="(?P<id>[^"]*)")?[^>]*>'
    r"(?P<text>(?:(?!</li>).)*?)(?:</h\d>|</strong>:)"
)
#: Headings and terms with their anchors.
_ANCHORED = re.compile(r'(?s)<(?:h[23]|strong) id="([^"]*)">.*?</(?:h\d|strong)>:?')


class Heading(NamedTuple):
    """A heading of level 2 or 3, or a term at the start of a list item (level 4)."""

    level: int
    anchor: str
    text: str


class Document(NamedTuple):
    """A documentation page: title, HTML without the title, headings, and texts below them by anchor."""

    title: str
    html: SafeString
    headings: Sequence[Heading]
    texts: Mapping[str, str]


class Link(NamedTuple):
    """A sidebar entry, with the headings of its page and, of a documentation page, the texts below them."""

    url: str
    title: str
    headings: Sequence[Heading]
    texts: Mapping[str, str] = MappingProxyType({})


@cache
def names() -> frozenset[str]:
    """Return the names of the files that have a page."""
    entries = {entry for lines in SIDEBAR.values() for entry in lines if isinstance(entry, str)}
    return frozenset(name for name in entries if (_FOLDER / f"{name}.md").is_file())


@cache
def sidebar() -> list[tuple[str, list[Link]]]:
    """Return the links of the sidebar by heading."""

    def link(entry: str | tuple[str, str]) -> Link:
        if isinstance(entry, str):
            page = document(entry)
            return Link(reverse("doc", args=[entry]), page.title, page.headings, page.texts)
        return Link(reverse(entry[0]), entry[1], _template_headings(entry[0]))

    return [
        (head, [link(entry) for entry in entries if not isinstance(entry, str) or entry in names()])
        for head, entries in SIDEBAR.items()
    ]


def _template_headings(name: str) -> list[Heading]:
    """Return the headings of the page's template whose texts do not depend on values."""
    source = "".join(path.read_text() for path in Path(settings.BASE_DIR, "templates").glob(f"*/{name}.html"))
    _, headings = anchor_headings(re.sub(r'{% translate "([^"]*)" %}', r"\1", source))
    return [heading for heading in headings if "{" not in heading.text]


def anchor_headings(html: str) -> tuple[str, list[Heading]]:
    """Return the HTML with an anchor for each heading and term that has none, and all of them.

    A section with that anchor serves as its heading's.
    """
    headings = []

    def add_anchor(match: re.Match[str]) -> str:
        text = " ".join(unescape(strip_tags(match["text"])).split())
        anchor = match["id"] or (slugify(text) if match["level"] else f"term-{slugify(text)}")
        headings.append(Heading(int(match["level"] or 4), anchor, text))
        is_anchored = match["id"] or f' id="{anchor}"' in html
        return match[0] if is_anchored else match[0].replace(">", f' id="{anchor}">', 1)

    return _HEADING.sub(add_anchor, html), headings


@cache
def document(name: str) -> Document:
    """Render a file as a page. Raises KeyError if it has none.

    The files belong to the site and are trusted, so their HTML is not sanitized.
    """
    if name not in names():
        raise KeyError(name)
    tokens = _PARSER.parse(Path(_FOLDER, f"{name}.md").read_text())
    title, tokens = tokens[1].content, tokens[3:]  # The first line is the heading.
    for token in tokens:
        if token.type == "inline":
            _rewrite_links(token.children or [])
    html, headings = anchor_headings(_PARSER.renderer.render(tokens, _PARSER.options, {}))
    parts = _ANCHORED.split(html)
    texts = zip(["", *parts[1::2]], map(strip_tags, parts[::2]), strict=True)
    html = html.replace("<th></th>", "<td></td>").replace("</table>", "</table></div>")
    # The Content-Security-Policy forbids inline styles.
    html = re.sub(r' style="text-align:(\w+)"', lambda match: ' class="n"' * (match[1] == "right"), html)
    html = re.sub(r"<code>(/(?:api/v1/docs|api/v1/schema|formats|measures)/)</code>", r'<a href="\1">\g<0></a>', html)
    html = re.sub(r'<img src="images/([^".#]+)[^>]*>', _render_image, html)
    for number in range(html.count("<table>")):
        html = html.replace("<table>", _TABLE.format(number + 1), 1)
    html = _TWO_COLUMNS.sub("is-prose is-stacked", html)
    html = html.replace("<pre>", '<pre class="code-block" tabindex="0">')
    sections = {anchor: " ".join(unescape(text).split()) for anchor, text in texts}
    return Document(title, mark_safe(html), headings, sections)  # noqa: S308


def _render_image(match: re.Match[str]) -> str:
    """Return an image with its static URL, in a `picture` element if there is an image with the suffix `-phone`."""
    image = match[0].replace(f"images/{match[1]}.png", static(f"{match[1]}.png")).replace("<img", '<img loading="lazy"')
    if not (_FOLDER / "images" / f"{match[1]}-phone.png").is_file():
        return image
    return f'<picture><source media="(max-width: 48rem)" srcset="{static(f"{match[1]}-phone.png")}">{image}</picture>'


#: Wide tables and code blocks scroll within the page and can be focused by keyboard.
_TABLE = '<div class="table-scroll" tabindex="0" role="region" aria-label="Table {}"><table class="table is-prose">'
#: Matches the class of tables with two columns, which are stacked on phones.
_TWO_COLUMNS = re.compile(r'is-prose(?=">\s<thead>\s<tr>(?:\s<t[hd].*</t[hd]>){2}\s</tr>)')


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
