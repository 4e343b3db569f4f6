"""The documentation as pages, and the pages that an operator writes."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.core.cache.pages import cache_page
from leaderboard.core.documents import SIDEBAR, document, names
from leaderboard.core.text.markdown import to_html


def _text_of_release(name: str = "") -> str:
    """Texts change with the release alone, which the page cache knows."""
    return name


@require_safe
@cache_page(_text_of_release)
def docs(request: HttpRequest) -> HttpResponse:
    """What there is to read."""
    return render(request, "leaderboard/docs.html", {"section": "docs", "heads": list(SIDEBAR)})


@require_safe
@cache_page(_text_of_release)
def doc(request: HttpRequest, name: str) -> HttpResponse:
    """One file of the documentation."""
    if name not in names():
        raise Http404
    return render(request, "leaderboard/doc.html", {"section": "docs", "document": document(name)})


@require_safe
def site_page(request: HttpRequest, name: str) -> HttpResponse:
    """Terms, privacy or contact, as the operator wrote them; of privacy else what the software keeps."""
    file = settings.SITE_PAGES.get(name)
    if name not in settings.SITE_PAGES or (file is not None and not file.is_file()):
        raise Http404(f"The operator of this site has written no such page ({name.upper()}_FILE).")
    text = to_html(file.read_text()) if file else ""
    context = {
        "section": name,
        "name": name,
        "text": text,
        "session_days": settings.SESSION_COOKIE_AGE // 86400,
    }
    return render(request, "leaderboard/site_page.html", context)
