"""What to cite for systems: their own BibTeX, else that of what reports them, else what they declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leaderboard.core import anonymity
from leaderboard.core.text.bibtex import misc, references_in, url_in
from leaderboard.core.text.bibtex_names import authors_field
from leaderboard.core.text.latex import escape
from leaderboard.models import System

_COLUMNS = (
    "slug", "name", "bibtex", "source__bibtex", "authors", "year", "paper_url", "team__name", "participant",
    "anonymous_until",
)  # fmt: skip


def bibtex_of(slugs: Iterable[str]) -> dict[str, str]:
    """BibTeX by a system's slug, empty where there is nothing to cite. One query."""
    rows = System.objects.filter(slug__in=set(slugs)).values(*_COLUMNS)
    return {row["slug"]: _cited(anonymity.shown(row)) for row in rows}


def citation(slug: str, page: str, site: str) -> str:
    """BibTeX of one system, which at least names its page on this `site`. Raises System.DoesNotExist. One query."""
    row = anonymity.shown(System.objects.values(*_COLUMNS).get(slug=slug))
    return _cited(row) or _entry(row, page, site)


def _cited(row: Mapping[str, Any]) -> str:
    """The first of its texts that has an entry; one is made of declared authors, or of the address of a paper."""
    text: str
    for text in (row["bibtex"], row["source__bibtex"] or ""):
        if references_in(text):
            return text
    return _entry(row) if authors_field(row["authors"]) or row["paper_url"] else ""


def _entry(row: Mapping[str, Any], page: str = "", site: str = "") -> str:
    body = row["participant"] or row["team__name"] or site
    where = row["paper_url"] or page
    fields = {
        "title": f"{{{escape(row['name'])}}}",
        "author": authors_field(row["authors"]) or (f"{{{escape(body)}}}" if body else ""),
        "year": str(row["year"] or ""),
        "howpublished": rf"\url{{{url_in(where)}}}" if where else "",
    }
    return misc(row["slug"], fields)
