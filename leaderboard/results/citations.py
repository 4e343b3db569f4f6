"""Citations of systems: their own BibTeX, that of their source, or an entry built from declared metadata."""

from collections.abc import Mapping
from typing import Any

from leaderboard.core import anonymity
from leaderboard.core.text.bibtex import authors_field, escape_url, misc_entry, parse_entries
from leaderboard.core.text.latex import escape
from leaderboard.models import System

#: Columns of `System` that citations need.
COLUMNS = (
    "slug", "name", "bibtex", "source__bibtex", "authors", "year", "paper_url", "team__name", "participant",
    "anonymous_until",
)  # fmt: skip


def collect_bibtex(system: Mapping[str, Any]) -> str:
    """Return the BibTeX of a system from its COLUMNS: its own or its source's, if they contain an entry.

    Otherwise an entry is built from declared metadata; the result is empty without authors and paper.
    """
    row = anonymity.public_columns(system)
    text: str
    for text in (row["bibtex"], row["source__bibtex"] or ""):
        if parse_entries(text):
            return text
    return _build_entry(row) if authors_field(row["authors"]) or row["paper_url"] else ""


def citation(slug: str, page: str, site: str) -> str:
    """Return the BibTeX of one system, or an entry for its page on this `site` if there is nothing else to cite.

    Raises System.DoesNotExist.
    """
    row = System.objects.values(*COLUMNS).get(slug=slug)
    return collect_bibtex(row) or _build_entry(anonymity.public_columns(row), page, site)


def _build_entry(row: Mapping[str, Any], page: str = "", site: str = "") -> str:
    """Return an `@misc` entry for a system, with the URL of its paper or else `page`.

    Without authors, the author is the participant, the team, or else `site`.
    """
    organization = row["participant"] or row["team__name"] or site
    url = row["paper_url"] or page
    fields = {
        "title": f"{{{escape(row['name'])}}}",
        "author": authors_field(row["authors"]) or (f"{{{escape(organization)}}}" if organization else ""),
        "year": str(row["year"] or ""),
        "howpublished": rf"\url{{{escape_url(url)}}}" if url else "",
    }
    return misc_entry(row["slug"], fields)
