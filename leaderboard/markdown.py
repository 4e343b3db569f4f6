"""Descriptions in Markdown, as HTML that is safe to show."""

from __future__ import annotations

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


@lru_cache(maxsize=512)
def to_html(text: str) -> SafeString:
    """The text's HTML: no images, scripts, styles or headings above the third level; links lead out unfollowed."""
    rendered = _PARSER.render(text)
    for level in ("1", "2"):
        rendered = rendered.replace(f"<h{level}>", "<h3>").replace(f"</h{level}>", "</h3>")
    clean = nh3.clean(
        rendered,
        tags=_TAGS,
        attributes={"a": {"href"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener",
    )
    return mark_safe(clean)  # noqa: S308


def first_sentence(text: str) -> str:
    """The first sentence of a description, as plain text, for lists."""
    paragraph = unescape(strip_tags(to_html(text.strip().split("\n\n")[0]))).strip().replace("\n", " ")
    head, stop, _ = paragraph.partition(". ")
    return head + "." if stop else paragraph
