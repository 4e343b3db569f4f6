"""Whom to tell of a fault of security, where tools and people look for it (RFC 9116)."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from leaderboard.core.http.site_url import site_address

#: RFC 9116 wants less than a year. Whoever keeps the answer for its day has the rest of this to act on it.
VALID = timedelta(days=180)


@require_safe
@cache_control(max_age=86400, public=True)
def security_txt(request: HttpRequest) -> HttpResponse:
    """The operator's contacts, until when they hold, and where this stands. Raises Http404 where none are set."""
    if not settings.SECURITY_CONTACT:
        raise Http404(
            "The operator of this site has named no contact for reports of security (SECURITY_CONTACT)."
        )
    expires = datetime.combine((timezone.now() + VALID).date(), time(), UTC)
    lines = [f"Contact: {contact}" for contact in settings.SECURITY_CONTACT]
    lines += [f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}", "Preferred-Languages: en"]
    address = site_address(request)
    if address.startswith("https://"):
        lines.append(f"Canonical: {address}{reverse('security-txt')}")
    if settings.SECURITY_POLICY:
        lines.append(f"Policy: {settings.SECURITY_POLICY}")
    return HttpResponse("\n".join(lines) + "\n", content_type="text/plain; charset=utf-8")
