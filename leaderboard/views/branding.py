"""The operator's logo and accent colour, at addresses of their own: the policy for browsers allows nothing inline."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.templatetags.static import static
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from leaderboard.core.branding import LOGO_TYPES, style_sheet
from leaderboard.core.http.downloads import SANDBOX
from leaderboard.core.http.query_parameters import reads


@require_safe
@cache_control(max_age=3600)
@reads("*")
def site_css(request: HttpRequest) -> HttpResponse:
    """The accent colour as a style sheet."""
    if settings.ACCENT is None:
        raise Http404("ACCENT_COLOUR is not set.")
    return HttpResponse(style_sheet(settings.ACCENT), content_type="text/css; charset=utf-8")


@require_safe
@cache_control(max_age=3600)
@reads("*")
def site_logo(request: HttpRequest) -> HttpResponse:
    """The logo. Opened by itself an SVG file runs no script."""
    if settings.SITE_LOGO is None or not settings.SITE_LOGO.is_file():
        raise Http404("SITE_LOGO is not set.")
    kind = LOGO_TYPES.get(settings.SITE_LOGO.suffix.lower(), "application/octet-stream")
    response = HttpResponse(settings.SITE_LOGO.read_bytes(), content_type=kind)
    response.headers["Content-Security-Policy"] = f"{SANDBOX}; style-src 'unsafe-inline'"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


@require_safe
@reads("*")
def favicon(request: HttpRequest) -> HttpResponseBase:
    """Where the mark is, for browsers and tools that ask for it under this name whatever a page says."""
    return redirect("site-logo" if settings.SITE_LOGO else static("img/mark.svg"))
