"""Whole pages for visitors who are nobody in particular, kept as the bytes that go out.

A page is kept under its address, its view of the board and the revision of the datasets it shows, so a change of a
board leads to another key and nothing has to be purged. What the revision does not count (another title of a source)
is seen after one and a half `LIFETIME`s at the latest.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from typing import Any, Concatenate, NamedTuple, ParamSpec

from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from isal import igzip

from leaderboard.remembered import LIFETIME, Remembered

#: A little more than the least: twice the size of the best, for a twentieth of its time.
COMPRESSION_LEVEL = 2

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


class Kept(NamedTuple):
    """A page as it goes out: its entity tag, its type, and its bytes compressed with gzip."""

    etag: str
    content_type: str
    compressed: bytes
    disposition: str


class Recent(Remembered[Kept]):
    """The pages that this process served last: asking the cache's server costs more than everything else of a hit."""


_recent = Recent(64)


def _fetched(key: str) -> Kept | None:
    found: Any = cache.get(key)
    if found is None:
        return None
    page = Kept(*found)
    # How old it is, nobody knows: so it is kept here for half as long.
    _recent.put(key, page, LIFETIME / 2)
    return page


def forget_pages() -> None:
    """Forget every kept page of this process and of the shared cache; for commands and tests."""
    _recent.clear()
    cache.clear()


def kept_page(
    revision: Callable[..., str], variant: Callable[[HttpRequest], str | None] = lambda request: ""
) -> Callable[[View[P]], View[P]]:
    """Keep what the view answers.

    `revision(**arguments of the view)` is asked on every request; `variant(request)` says which view of the page is
    meant, None for one that is not worth keeping.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            chosen = variant(request) if is_nobody(request) else None
            if chosen is None:
                return _unkept(view(request, *args, **kwargs))
            key = _key(request.path, chosen, revision(*args, **kwargs))
            found = _recent.get(key) or _fetched(key)
            if found is None:
                response = view(request, *args, **kwargs)
                if response.status_code != 200:
                    return response
                found = _keep(response)
                _recent.put(key, found)
                cache.set(key, tuple(found), LIFETIME)
            return _served(request, found)

        return answer

    return decorate


def is_nobody(request: HttpRequest) -> bool:
    """Whether the visitor has neither a session nor a message waiting, and only reads."""
    cookies = request.COOKIES
    return (
        request.method in ("GET", "HEAD")
        and settings.SESSION_COOKIE_NAME not in cookies
        and "messages" not in cookies
    )


def _key(path: str, variant: str, revision: str) -> str:
    # Pages name hashed style sheets: those of another release are other pages.
    release = getattr(staticfiles_storage, "manifest_hash", "")
    return "page:" + blake2b(f"{path}\n{variant}\n{revision}\n{release}".encode(), digest_size=16).hexdigest()


def _keep(response: HttpResponse) -> Kept:
    compressed = igzip.compress(response.content, COMPRESSION_LEVEL, mtime=0)
    return Kept(
        f'W/"{blake2b(compressed, digest_size=12).hexdigest()}"',
        response.headers["Content-Type"],
        compressed,
        response.headers.get("Content-Disposition", ""),
    )


def _served(request: HttpRequest, page: Kept) -> HttpResponse:
    if page.etag in request.headers.get("If-None-Match", ""):
        response = HttpResponse(status=304)
    elif "gzip" in request.headers.get("Accept-Encoding", ""):
        response = HttpResponse(page.compressed, content_type=page.content_type)
        response.headers["Content-Encoding"] = "gzip"
    else:
        response = HttpResponse(gzip.decompress(page.compressed), content_type=page.content_type)
    if page.disposition:
        response.headers["Content-Disposition"] = page.disposition
    response.headers["ETag"] = page.etag
    response.headers["Vary"] = "Cookie, Accept-Encoding, HX-Request"
    response.headers["Cache-Control"] = "no-cache"
    return response


def _unkept(response: HttpResponse) -> HttpResponse:
    response.headers.setdefault("Cache-Control", "private, no-cache")
    return response
