"""Pages as a browser reads them."""

from __future__ import annotations

import re


def one_line(page: str) -> str:
    """The page without the line breaks by which its templates are laid out."""
    page = re.sub(r"<[a-zA-Z/][^>]*>", lambda tag: " ".join(tag.group().split()).replace(" >", ">"), page)
    page = re.sub(r"(?<=>)\s*\n\s*|\s*\n\s*(?=<)", "", page)
    return re.sub(r"\s*\n\s*", " ", page)


def clear_page_cache() -> None:
    """Remove every page of this process and of the shared cache."""
    from django.core.cache import cache

    from leaderboard.core.cache import pages

    pages._recent_pages.clear()
    cache.clear()
