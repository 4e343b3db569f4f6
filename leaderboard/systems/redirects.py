"""Old addresses: a system that was merged into another is found under its own slug for good."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponsePermanentRedirect

from leaderboard.models import SystemRedirect


def follow_merged(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """The view of a system by `slug`; where there is none, the same address of the one that it was merged into."""

    @wraps(view)
    def following(request: HttpRequest, slug: str, **options: Any) -> HttpResponseBase:
        missing: Http404 | None = None
        response = None
        try:
            response = view(request, slug=slug, **options)
        except Http404 as error:
            missing = error
        if response is not None and response.status_code != 404:
            return response
        into = SystemRedirect.objects.filter(slug=slug).values_list("system__slug", flat=True).first()
        if into is not None:
            address = request.get_full_path().replace(f"/systems/{slug}/", f"/systems/{into}/", 1)
            return HttpResponsePermanentRedirect(address)
        if missing is not None or response is None:
            raise missing or Http404
        return response

    return following
