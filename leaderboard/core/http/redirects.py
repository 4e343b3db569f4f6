"""Permanent redirects from the addresses of merged and renamed objects."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponsePermanentRedirect
from django.http.response import HttpResponseBase

View = Callable[..., HttpResponseBase]


def follow_redirects(redirects: type[Model], owner: str, folder: str) -> Callable[[View], View]:
    """Return a decorator that redirects an earlier slug to the current one if the view of that slug is not found.

    Args:
        redirects: Model with rows of an earlier `slug` and a reference to the object that had it.
        owner: Name of that reference.
        folder: Path segment before the slug.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def redirecting_view(request: HttpRequest, slug: str, **options: Any) -> HttpResponseBase:
            """Return the view's response or, if it is 404, a redirect from an earlier slug to the current one."""
            response: HttpResponseBase | None = None
            with suppress(Http404):
                response = view(request, slug=slug, **options)
                if response.status_code != 404:
                    return response
            rows = redirects._default_manager.filter(slug=slug)
            current_slug = rows.values_list(f"{owner}__slug", flat=True).first()
            if current_slug is not None:
                address = request.get_full_path().replace(f"/{folder}/{slug}/", f"/{folder}/{current_slug}/", 1)
                return HttpResponsePermanentRedirect(address, preserve_request=request.method == "POST")
            if response is None:
                raise Http404
            return response

        return redirecting_view

    return decorate
