"""Pages of people by name, and badges of systems for elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.boards.system.authors import author_facts
from leaderboard.boards.system.badges import Badge, as_shields, as_svg, badge_of
from leaderboard.core.cache.pages import Asked, kept_page
from leaderboard.core.measures import canonical_name
from leaderboard.results.history import entry_rows


def _revision(**_: str) -> str:
    return entry_rows.site_revision()


def _which_badge(request: HttpRequest) -> Asked:
    return Asked(f"{request.GET.get('dataset', '')}\n{request.GET.get('measure', '')}")


@require_safe
@kept_page(_revision)
def author(request: HttpRequest, slug: str) -> HttpResponse:
    """A person's systems and publications."""
    facts = author_facts(slug)
    if facts is None:
        raise Http404
    return render(request, "leaderboard/author.html", {"section": "author", "author": facts})


def _shown_elsewhere(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A picture that other sites may show on their pages."""

    @wraps(view)
    def answer(request: HttpRequest, slug: str) -> HttpResponse:
        response = view(request, slug=slug)
        response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        return response

    return answer


@require_safe
@_shown_elsewhere
@kept_page(_revision, _which_badge)
def badge_svg(request: HttpRequest, slug: str) -> HttpResponse:
    """A system's place on a dataset's board, as a picture."""
    return HttpResponse(as_svg(_badge(request, slug)), content_type="image/svg+xml")


@require_safe
@kept_page(_revision, _which_badge)
def badge_data(request: HttpRequest, slug: str) -> HttpResponse:
    """The same for shields.io."""
    return JsonResponse(as_shields(_badge(request, slug)))


def _badge(request: HttpRequest, slug: str) -> Badge:
    measure = canonical_name(request.GET.get("measure", ""))
    badge = badge_of(slug, request.GET.get("dataset", ""), measure)
    if badge is None:
        raise Http404
    return badge
