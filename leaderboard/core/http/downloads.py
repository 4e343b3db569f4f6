"""Files handed out: always as an attachment, never as a page, and only by a view that has asked who may have them.

With `ACCEL_REDIRECT` the proxy sends what lies in the store: the answer is empty and names the file below
`/protected/`, which nginx maps to the folder of state in an internal location. What is private (judgements, pools) is
sent by this process always: the proxy has no access to it. nginx takes over the type, the disposition and the caching
of such an answer and drops its other headers, so its location adds `nosniff` and the policy of `SANDBOX` again.
"""

from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified
from django.utils.http import content_disposition_header

from leaderboard.core.storage.store import Area, local_path

#: Where the proxy has the store.
PROTECTED = "/protected/"
#: The policy of whatever is opened all the same.
SANDBOX = "sandbox; default-src 'none'"


def send_stored(area: Area, sha256: str, name: str, content_type: str) -> HttpResponseBase:
    """A file of the store as an attachment of this name, by the proxy where there is one that can.

    Raises FileNotFoundError, and ValueError for an area that is private.
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
    """A file that the proxy cannot read, streamed from here; nobody keeps it."""
    response = as_attachment(FileResponse(path.open("rb"), content_type=content_type), name)
    response.headers["Cache-Control"] = "private, no-store"
    return response


def send_text(text: str | bytes, name: str, content_type: str, *, saved: bool = True) -> HttpResponse:
    """Return content under a name, to be saved or, if not `saved`, shown."""
    disposition = content_disposition_header(saved, name) or "inline"
    return HttpResponse(text, content_type=content_type, headers={"Content-Disposition": disposition})


def as_attachment(response: HttpResponseBase, name: str) -> HttpResponseBase:
    """The same answer, to be saved under this name and not opened."""
    response.headers["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = SANDBOX
    return response


def send_unless_unchanged(
    request: HttpRequest, sha256: str, send: Callable[[], HttpResponseBase], *, public: bool
) -> HttpResponseBase:
    """What `send` gives, or 304 to who has the content already.

    Shared caches may keep what is `public`; everybody asks again before using what they keep.
    """
    etag = f'"{sha256}"'
    known = etag in request.headers.get("If-None-Match", "")
    response = HttpResponseNotModified() if known else send()
    response.headers["ETag"] = etag
    response.headers["Content-Security-Policy"] = SANDBOX
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-cache" if public else "private, no-cache"
    return response
