"""File downloads, always sent as attachments, from views that have checked permissions.

With `ACCEL_REDIRECT`, the proxy sends files of the store: the response is empty and names the file below
`/protected/`, which nginx maps to the state folder in an internal location. This process always sends private files
(judgments, pools), to which the proxy has no access. nginx keeps the type, disposition and caching headers of such a
response and drops all others, so its location must add `nosniff` and the policy `SANDBOX` again.
"""

from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified
from django.utils.http import content_disposition_header

from leaderboard.core.storage.store import Area, local_path

#: URL prefix under which the proxy serves the store.
PROTECTED = "/protected/"
#: Content security policy for downloads that a browser opens anyway.
SANDBOX = "sandbox; default-src 'none'"


def send_stored(area: Area, sha256: str, name: str, content_type: str) -> HttpResponseBase:
    """Send a file of the store as an attachment, through the proxy if it supports that.

    Raises FileNotFoundError, and ValueError for a private area.
    """
    if not area.value.startswith("store/"):
        raise ValueError(f"{area.value} is sent by send_private")
    path = local_path(area, sha256)
    if not settings.ACCEL_REDIRECT:
        return as_attachment(FileResponse(path.open("rb"), content_type=content_type), name)
    if not path.is_file():
        raise FileNotFoundError(path.name)
    response = as_attachment(HttpResponse(content_type=content_type), name)
    response.headers["X-Accel-Redirect"] = PROTECTED + path.relative_to(settings.VAR).as_posix()
    return response


def send_private(path: Path, name: str, content_type: str) -> HttpResponseBase:
    """Stream a file that the proxy cannot read, and forbid caching."""
    response = as_attachment(FileResponse(path.open("rb"), content_type=content_type), name)
    response.headers["Cache-Control"] = "private, no-store"
    return response


def send_text(text: str | bytes, name: str, content_type: str, *, saved: bool = True) -> HttpResponse:
    """Return content under a name, as an attachment if `saved`, else inline."""
    disposition = content_disposition_header(saved, name) or "inline"
    return HttpResponse(text, content_type=content_type, headers={"Content-Disposition": disposition})


def as_attachment(response: HttpResponseBase, name: str) -> HttpResponseBase:
    """Return the response with headers that make browsers save it under a name instead of opening it."""
    response.headers["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = SANDBOX
    return response


def send_unless_unchanged(
    request: HttpRequest, sha256: str, send: Callable[[], HttpResponseBase], *, public: bool
) -> HttpResponseBase:
    """Return the response of `send`, or 304 if the client already has the content.

    Shared caches may store `public` responses, but every client must revalidate.
    """
    etag = f'"{sha256}"'
    is_current = etag in request.headers.get("If-None-Match", "")
    response = HttpResponseNotModified() if is_current else send()
    response.headers["ETag"] = etag
    response.headers["Content-Security-Policy"] = SANDBOX
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-cache" if public else "private, no-cache"
    return response
