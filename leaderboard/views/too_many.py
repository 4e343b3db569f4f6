"""Too many requests: how long to wait, on a page like the others."""

from __future__ import annotations

from math import ceil

from allauth.account import app_settings
from allauth.core.internal.ratelimit import parse_rates
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

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


def too_many(request: HttpRequest) -> HttpResponse:
    """429 with the time after which the longest of the limits that apply begins anew."""
    seconds = _seconds(request)
    minutes = ceil(seconds / 60)
    form = request.resolver_match is not None and request.resolver_match.url_name in _LIMITS
    context = {"minutes": minutes, "back": request.path if form else ""}
    response = render(request, "429.html", context, status=429)
    response.headers["Retry-After"] = str(seconds)
    return response


def _seconds(request: HttpRequest) -> int:
    name = request.resolver_match.url_name if request.resolver_match else None
    rates = parse_rates(app_settings.RATE_LIMITS.get(_LIMITS.get(name or "", "")))
    return ceil(max((rate.duration for rate in rates), default=60))
