"""Rendering of Markdown descriptions as safe HTML."""

import re
from functools import lru_cache
from html import unescape

import nh3
from django.utils.html import strip_tags
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_TAGS = {
    "a", "blockquote", "br", "code", "em", "h3", "h4", "hr", "li", "ol", "p", "pre", "strong", "table", "tbody",
    "td", "th", "thead", "tr", "ul",
}  # fmt: skip
#: Allowed link targets: absolute URLs, so that readers can see the host, and anchors on the page.
_LINK = re.compile(r"https?://[^/\\]|mailto:|#", re.IGNORECASE)


@lru_cache(maxsize=512)
def to_html(text: str) -> SafeString:
    """Render Markdown without images, scripts, styles, or headings above the third level.

    Links are absolute (http, https, mailto) or within the page, and search engines do not follow them.
    """
    rendered = _PARSER.render(text)
    for level in ("1", "2"):
        rendered = rendered.replace(f"<h{level}>", "<h3>").replace(f"</h{level}>", "</h3>")
    clean = nh3.clean(
        rendered,
        tags=_TAGS,
        attributes={"a": {"href"}},
        # Remove relative and protocol-relative (`//host`) links.
        attribute_filter=lambda tag, attribute, value: value if attribute != "href" or _LINK.match(value) else None,
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener",
    )
    return mark_safe(clean)  # noqa: S308


def first_sentence(text: str) -> str:
    """Return the first sentence of a Markdown description as plain text, for lists."""
    paragraph = unescape(strip_tags(to_html(text.strip().split("\n\n")[0]))).strip().replace("\n", " ")
    head, stop, _ = paragraph.partition(". ")
    return head + "." if stop else paragraph
