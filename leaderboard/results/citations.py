"""What to cite for systems: their own BibTeX, else that of what reports them, else what they declare."""

from collections.abc import Mapping
from typing import Any

from leaderboard.core import anonymity
from leaderboard.core.text.bibtex import authors_field, escape_url, misc_entry, parse_entries
from leaderboard.core.text.latex import escape
from leaderboard.models import System

#: What is read of a system to cite it.
COLUMNS = (
    "slug", "name", "bibtex", "source__bibtex", "authors", "year", "paper_url", "team__name", "participant",
    "anonymous_until",
)  # fmt: skip


def bibtex_of(system: Mapping[str, Any]) -> str:
    """BibTeX of a system by its COLUMNS, empty where there is nothing to cite."""
    row = anonymity.public_columns(system)
    text: str
    for text in (row["bibtex"], row["source__bibtex"] or ""):
        if parse_entries(text):
            return text
    return _entry(row) if authors_field(row["authors"]) or row["paper_url"] else ""


def citation(slug: str, page: str, site: str) -> str:
    """BibTeX of one system, which at least names its page on this `site`. Raises System.DoesNotExist. One query."""
    row = System.objects.values(*COLUMNS).get(slug=slug)
    return bibtex_of(row) or _entry(anonymity.public_columns(row), page, site)


def _entry(row: Mapping[str, Any], page: str = "", site: str = "") -> str:
    body = row["participant"] or row["team__name"] or site
    where = row["paper_url"] or page
    fields = {
        "title": f"{{{escape(row['name'])}}}",
        "author": authors_field(row["authors"]) or (f"{{{escape(body)}}}" if body else ""),
        "year": str(row["year"] or ""),
        "howpublished": rf"\url{{{escape_url(where)}}}" if where else "",
    }
    return misc_entry(row["slug"], fields)
