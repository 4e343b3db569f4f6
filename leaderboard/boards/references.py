"""What to cite for systems: their own BibTeX, else that of the publication which reports them."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.models import System


def bibtex_of(slugs: Iterable[str]) -> dict[str, str]:
    """BibTeX by a system's slug, empty where there is none. One query."""
    rows = System.objects.filter(slug__in=set(slugs)).values_list("slug", "bibtex", "source__bibtex")
    return {slug: own or of_source or "" for slug, own, of_source in rows}
