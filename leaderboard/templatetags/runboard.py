"""Template filters that format Markdown, dates, sizes, and numbers."""

import re
from datetime import UTC, date, datetime
from html import escape
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator

from evaluation.archives.compression import describe_bytes
from leaderboard.boards.rendering import provenance_badge
from leaderboard.comparison.search import page_name
from leaderboard.core.documents import Link, anchor_headings, sidebar
from leaderboard.core.measures import measure_anchor, reads_responses
from leaderboard.core.text.dates import format_day, format_moment
from leaderboard.core.text.markdown import to_html

register = template.Library()

register.filter("markdown", to_html)
register.filter("measure_anchor", measure_anchor)
register.filter("reads_responses", reads_responses)
register.filter("provenance_badge", provenance_badge)
register.filter("binary_size", describe_bytes)
register.filter("day_text", format_day)
register.filter("moment_text", format_moment)
register.simple_tag(page_name)


@register.filter
def code_spans(text: str) -> SafeString:
    """Format text between backticks as code and escape everything else."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))  # noqa: S308


@register.filter
def whole(text: str) -> SafeString:
    """Return the text as HTML that is not broken within short parentheses, hyphenated names, and numbers with units."""
    parts = re.split(r"(\([^()]{1,34}\)|(?<!\S)[^\s-]{1,16}-\S{1,18}(?!\S)|(?:p )?\S{1,20} \d\.\d+|[\d.,]+ ms)", text)
    pieces = (f'<span class="nowrap">{escape(part)}</span>' if n % 2 else escape(part) for n, part in enumerate(parts))
    return mark_safe("".join(pieces))  # noqa: S308


@register.filter
def excerpt(text: str, query: str) -> SafeString:
    """Return an excerpt as HTML that starts at the first sentence with a word of the query, with all its words marked.

    If the word is far into its sentence, the excerpt starts near the word.
    """
    words = re.compile(f"({'|'.join(map(re.escape, query.split()))})", re.IGNORECASE)
    match = words.search(text)
    sentence_start = text.rfind(". ", 0, match.start()) + 1 if match else 0
    if match and match.start() - sentence_start > 120:
        sentence_start = text.find(" ", match.start() - 60)
    sentence = text[sentence_start:]
    parts = words.split(Truncator(sentence.strip()).chars(180))
    pieces = (f"<mark>{escape(part)}</mark>" if n % 2 else escape(part) for n, part in enumerate(parts))
    return mark_safe("".join(pieces))  # noqa: S308


@register.filter
def breakable(name: str) -> SafeString:
    """Return a system's name as HTML with a small owner; lines break only after slashes, hyphens, and underscores."""
    owner, slash, rest = escape(name).rpartition("/")
    rest = re.sub(r"([-_])(?=\w)", r"\1<wbr>", rest)
    return mark_safe(f'<small class="owner">{owner}/</small><wbr>{rest}' if slash else rest)  # noqa: S308


@register.filter
def day(value: date | str | None) -> SafeString:
    """Return a `time` element with a date such as 29 Nov 2026, or empty text without a date."""
    if not value:
        return SafeString("")
    iso = value[:10] if isinstance(value, str) else f"{value:%Y-%m-%d}"
    return format_html('<time datetime="{}">{}</time>', iso, format_day(value))


@register.filter
def moment(value: datetime | None, precision: str = "minutes") -> SafeString:
    """Return a `time` element with a time such as 29 Nov 2026, 07:17 UTC, or empty text without a time."""
    if not value:
        return SafeString("")
    iso = f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return format_html('<time datetime="{}">{}</time>', iso, format_moment(value, precision))


@register.filter
def formula(definition: str) -> SafeString:
    """Return a definition as HTML with subscripts and superscripts: rel_i, Σ_{i≤k}, 2^{g_i}, but not trec_eval."""
    text = escape(definition)
    for sign, tag in (("^", "sup"), ("_", "sub")):
        text = re.sub(rf"\{sign}\{{([^{{}}]*)\}}|\{sign}(\w)(?!\w)", rf"<{tag}>\1\2</{tag}>", text)
    return mark_safe(text)  # noqa: S308


@register.filter
def size(number: int) -> str:
    """Return a number of bytes with a decimal unit, such as 1.4 MB."""
    power = sum(number >= limit for limit in (1e3, 1e6, 1e9))
    value = number / 1000**power
    decimals = 1 if power and value < 100 else 0
    return f"{value:.{decimals}f} {('B', 'kB', 'MB', 'GB')[power]}"


@register.filter(is_safe=True)
def with_contents(page: str) -> str:
    """Add anchors to the headings of a documentation page, and below its title a table of contents."""
    page, headings = anchor_headings(page)
    context = {"headings": [heading for heading in headings if heading.level < 4]}
    return page.replace("</header>", "</header>" + render_to_string("leaderboard/_contents.html", context), 1)


@register.simple_tag(takes_context=True)
def docs_navigation(context: template.Context) -> dict[str, Any]:
    """Return the documentation's sidebar, and the links to the pages before and after the current one."""
    here, groups = context["request"].path, sidebar()
    links = [link for _head, links in groups for link in links]
    triples = zip([None, *links], links, [*links[1:], None], strict=False)
    neighbors = next(((before, after) for before, link, after in triples if link.url == here), None)
    return {"sidebar": groups, "neighbors": neighbors}


@register.filter
def sidebar_groups(groups: list[dict[str, Any]]) -> list[tuple[str, list[Link]]]:
    """Return the admin's app list as sidebar groups."""
    return [(group["name"], [Link(row["admin_url"], row["name"], ()) for row in group["models"]]) for group in groups]
