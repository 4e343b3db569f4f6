"""Which methods pages take: those that browsers send. Calls of the API say for themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed

#: What a page may be asked by; whether it takes POST, it says itself.
OF_PAGES = ("GET", "HEAD", "POST")


class MethodsMiddleware:
    """Answers 405 for a page that is asked by any other method, before anything of the page runs.

    The frameworks' own pages (the admin's, the account's) take PUT for POST, and anything else for GET.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, options: Any
    ) -> HttpResponseBase | None:
        """None where the view may be asked so."""
        if request.method in OF_PAGES or request.path_info.startswith("/api/"):
            return None
        return HttpResponseNotAllowed(OF_PAGES)
