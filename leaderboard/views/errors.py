"""What is answered at an address where nothing is, and to too many requests: pages like the others."""

from __future__ import annotations

from math import ceil

from allauth.account import app_settings
from allauth.core.internal.ratelimit import parse_rates
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.defaults import page_not_found

#: Which limit a page of accounts is under.
_LIMITS = {
    "account_login": "login_failed",
    "account_signup": "signup",
    "account_reset_password": "reset_password",
    "account_reset_password_from_key": "reset_password_from_key",
    "account_change_password": "change_password",
    "account_email": "manage_email",
    "account_reauthenticate": "reauthenticate",
    "mfa_reauthenticate": "reauthenticate",
}


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The API's error where a program asked, else the site's page."""
    if not request.path.startswith("/api/"):
        return page_not_found(request, exception)
    detail = "There is nothing at this address. /api/v1/docs/ lists those of the API."
    return JsonResponse({"code": "not_found", "detail": detail, "problems": []}, status=404)


def too_many(request: HttpRequest) -> HttpResponse:
    """429 with the time after which the longest of the limits that apply begins anew."""
    name = (request.resolver_match.url_name if request.resolver_match else None) or ""
    rates = parse_rates(app_settings.RATE_LIMITS.get(_LIMITS.get(name, "")))
    seconds = ceil(max((rate.duration for rate in rates), default=60))
    context = {"minutes": ceil(seconds / 60), "back": request.path if name in _LIMITS else ""}
    response = render(request, "429.html", context, status=429)
    response.headers["Retry-After"] = str(seconds)
    return response
