"""What is answered at an address where nothing is: a page, and under the API's addresses its own kind of error."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.defaults import page_not_found


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The API's error where a program asked, else the site's page."""
    if not request.path.startswith("/api/"):
        return page_not_found(request, exception)
    detail = "There is nothing at this address. /api/v1/docs/ lists those of the API."
    return JsonResponse({"code": "not_found", "detail": detail, "problems": []}, status=404)
