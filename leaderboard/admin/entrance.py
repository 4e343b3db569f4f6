"""The way into curation: the site's own sign-in, and the second factor where staff need one. No form of its own."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache

from leaderboard.models import User


@never_cache
def login(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """Send on: to sign in, to set up or show a second factor, or to where somebody wanted to go."""
    wanted = _wanted(request)
    person = request.user
    if not isinstance(person, User):
        return _to("account_login", wanted)
    if not (person.is_active and person.is_staff):
        raise PermissionDenied
    if person.curates:
        return HttpResponseRedirect(wanted)  # an address, and no name of a view
    if Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).exists():
        return _to("mfa_reauthenticate", wanted)
    messages.warning(request, "Curation needs a second factor. Set one up here, then go on.")
    return redirect("mfa_activate_totp")


def _wanted(request: HttpRequest) -> str:
    """Where somebody came from, on this site alone."""
    asked = request.GET.get("next") or request.POST.get("next") or ""
    own = url_has_allowed_host_and_scheme(asked, {request.get_host()}, require_https=request.is_secure())
    return asked if own and not asked.startswith(reverse("admin:login")) else reverse("admin:index")


def _to(name: str, wanted: str) -> HttpResponse:
    return redirect(f"{reverse(name)}?{urlencode({'next': wanted})}")
