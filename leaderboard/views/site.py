"""Pages about the site: documentation, operator's pages, branding, security contacts, and errors."""

from datetime import UTC, datetime, time, timedelta
from math import ceil

from allauth.account import app_settings
from allauth.core.internal.ratelimit import parse_rates
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from leaderboard.comparison.search import similar_pages
from leaderboard.core.branding import LOGO_TYPES, style_sheet
from leaderboard.core.cache.pages import cache_page
from leaderboard.core.documents import document, names
from leaderboard.core.http.downloads import SANDBOX
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import site_address
from leaderboard.core.text.markdown import to_html


# Texts change only with a release, which is part of the cache key.
@require_safe
@cache_page(lambda: "")
def docs(request: HttpRequest) -> HttpResponse:
    """Show the index of the documentation."""
    return render(request, "leaderboard/docs.html", {"section": "docs"})


@require_safe
@cache_page(lambda name: "")
def doc(request: HttpRequest, name: str) -> HttpResponse:
    """Show a page of the documentation."""
    if name not in names():
        raise Http404
    return render(request, "leaderboard/doc.html", {"section": "docs", "document": document(name)})


@require_safe
def site_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the operator's terms, privacy, or contact page, or the default privacy page of the software.

    Raises Http404 if the operator has not provided the page.
    """
    file = settings.SITE_PAGES.get(name)
    if name not in settings.SITE_PAGES or (file is not None and not file.is_file()):
        raise Http404(f"The operator of this site has not provided this page ({name}.md in SITE_PAGES_FOLDER).")
    text = to_html(file.read_text()) if file else ""
    context = {"section": name, "name": name, "text": text, "session_days": settings.SESSION_COOKIE_AGE // 86400}
    return render(request, "leaderboard/site_page.html", context)


@require_safe
@cache_control(max_age=3600)
@reads("*")
def site_css(request: HttpRequest) -> HttpResponse:
    """Return a style sheet with the accent color. Raises Http404 if none is configured."""
    if settings.ACCENT is None:
        raise Http404("ACCENT_COLOUR is not set.")
    return HttpResponse(style_sheet(settings.ACCENT), content_type="text/css; charset=utf-8")


@require_safe
@cache_control(max_age=3600)
@reads("*")
def site_logo(request: HttpRequest) -> HttpResponse:
    """Return the logo, with a policy that prevents scripts in SVG files. Raises Http404 if there is none."""
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
    """Redirect /favicon.ico to the site's logo, for clients that request that path by default."""
    return redirect("site-logo" if settings.SITE_LOGO else static("img/mark.svg"))


#: Validity of security.txt. RFC 9116 recommends less than a year; the response may be cached for a day.
VALIDITY = timedelta(days=180)


@require_safe
@cache_control(max_age=86400, public=True)
def security_txt(request: HttpRequest) -> HttpResponse:
    """Return the operator's security contacts with expiry date and canonical URL. Raises Http404 if there are none."""
    if not settings.SECURITY_CONTACT:
        raise Http404("The operator of this site has not set a security contact (SECURITY_CONTACT).")
    expires = datetime.combine((timezone.now() + VALIDITY).date(), time(), UTC)
    lines = [f"Contact: {contact}" for contact in settings.SECURITY_CONTACT]
    lines += [f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}", "Preferred-Languages: en"]
    address = site_address(request)
    if address.startswith("https://"):
        lines.append(f"Canonical: {address}{reverse('security-txt')}")
    if settings.SECURITY_POLICY:
        lines.append(f"Policy: {settings.SECURITY_POLICY}")
    return HttpResponse("\n".join(lines) + "\n", content_type="text/plain; charset=utf-8")


#: Rate limits of account pages by URL name.
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
    """Return the API's error for API URLs, else the site's error page with the missing name and similar pages."""
    if not request.path.startswith("/api/"):
        may_know_pages = settings.ACCESS == "public" or request.user.is_authenticated
        missing, near = similar_pages(request.path) if may_know_pages else ({}, [])
        return render(request, "404.html", {"missing": missing, "near": near}, status=404)
    detail = "This URL does not exist. See /api/v1/docs/ for the URLs of the API."
    return JsonResponse({"code": "not_found", "detail": detail, "problems": []}, status=404)


def too_many(request: HttpRequest) -> HttpResponse:
    """Return 429, with the duration of the longest applicable rate limit (default: a minute) as Retry-After."""
    name = (request.resolver_match.url_name if request.resolver_match else None) or ""
    rates = parse_rates(app_settings.RATE_LIMITS.get(_LIMITS.get(name, "")))
    seconds = ceil(max((rate.duration for rate in rates), default=60))
    context = {"minutes": ceil(seconds / 60), "back": request.path if name in _LIMITS else ""}
    response = render(request, "429.html", context, status=429)
    response.headers["Retry-After"] = str(seconds)
    return response
