"""Response cache for anonymous visitors, which stores compressed pages.

The key of a page includes its URL, its variant, and the revision of its datasets, so that a change of a board
leads to a new key, and no page has to be purged. Changes that the revision does not cover (such as the title of a
source) appear after at most one and a half `LIFETIME`s, or two on comparison pages.

All processes share a fixed number of slots for common variants. Variants with parameters of unlimited variety (a text,
a bound) are cached only in the process that rendered them. docs/decisions/0020 explains the sizes.
"""

import gzip
from collections.abc import Callable
from functools import lru_cache, wraps
from hashlib import blake2b
from typing import Concatenate, NamedTuple, ParamSpec

from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.utils.http import parse_etags
from isal import igzip

from leaderboard.core.cache.memory import LIFETIME, FixedCache, TTLCache
from leaderboard.core.cache.metrics import count_page
from leaderboard.core.http.site_url import is_own_address, site_address
from leaderboard.models import Membership, User

#: One above the lowest level: twice the size of the best compression, in a twentieth of its time.
COMPRESSION_LEVEL = 2

#: Slots that all processes share: at most 1,024 × 128 KiB on the server that also carries the queue.
SHARED_PAGES, LARGEST_SHARED_BYTES = 1024, 128 * 1024
#: Bytes of compressed pages that each process stores.
RECENT_BYTES = 32 * 2**20
#: Approximate memory overhead of a page.
_OVERHEAD_BYTES = 1024

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


class PageVariant(NamedTuple):
    """A variant of a page. Pages of `common` variants are cached for all processes, and others only in one."""

    view: str = ""
    common: bool = True


class CachedPage(NamedTuple):
    """A rendered page: entity tag, content type, and gzip-compressed body."""

    etag: str
    content_type: str
    compressed: bytes
    disposition: str

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""
        return len(self.compressed) + _OVERHEAD_BYTES


#: Recently served pages of this process. A request to the cache server would cost more than the rest of a hit.
#: The module's docstring states how long pages in both caches may be stale.
_recent_pages: TTLCache[CachedPage] = TTLCache(RECENT_BYTES)
_shared_pages = FixedCache("page", SHARED_PAGES, LIFETIME)


def _find(key: str, *, common: bool) -> CachedPage | None:
    """Return the page from the cache of this process or, if it is `common`, the shared one; count the outcome."""
    page = _recent_pages.get(key)
    if page is not None:
        count_page("own")
    elif common and (shared_page := _shared_pages.get(key)) is not None:
        page = CachedPage(*shared_page)
        count_page("shared")
        # Its age is unknown, so it is cached here for half the lifetime.
        _recent_pages.put(key, page, page.size, LIFETIME / 2)
    else:
        count_page("made")
    return page


def cache_page(
    revision: Callable[..., str],
    variant: Callable[[HttpRequest], PageVariant | None] = lambda request: PageVariant(),
) -> Callable[[View[P]], View[P]]:
    """Return a decorator that caches the successful responses of a view for anonymous visitors.

    Args:
        revision: Function of the view's keyword arguments that returns the revision; called on every request.
        variant: Function of the request that returns the variant of the page, or None if it should not be cached.
    """

    def decorate(view: View[P]) -> View[P]:
        """Return the view with a cache of pages with status 200 for anonymous visitors; others always call the view."""

        @wraps(view)
        def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            """Return the cached page, or render and cache it; requests of signed-in users always call the view."""
            is_cacheable = is_anonymous_visit(request) and not settings.DEBUG  # In debug mode templates may change.
            page_variant = variant(request) if is_cacheable else None
            if page_variant is None:
                count_page("unkept")
                response = view(request, *args, **kwargs)
                response.headers.setdefault("Cache-Control", "private, no-cache")
                return response
            # Pages contain hashed file names, so each release needs its own.
            release = getattr(staticfiles_storage, "manifest_hash", "")
            key_text = f"{request.path}\n{page_variant.view}\n{revision(*args, **kwargs)}\n{release}"
            key = blake2b(key_text.encode(), digest_size=16).hexdigest()
            page = _find(key, common=page_variant.common)
            if page is None:
                response = view(request, *args, **kwargs)
                if response.status_code != 200:
                    return response
                if isinstance(response, SimpleTemplateResponse):  # API responses are rendered late.
                    response.render()
                compressed = igzip.compress(response.content, COMPRESSION_LEVEL, mtime=0)
                page = CachedPage(
                    f'W/"{blake2b(compressed, digest_size=12).hexdigest()}"',
                    response.headers["Content-Type"],
                    compressed,
                    response.headers.get("Content-Disposition", ""),
                )
                _recent_pages.put(key, page, page.size)
                if page_variant.common and len(page.compressed) <= LARGEST_SHARED_BYTES:
                    _shared_pages.set(key, tuple(page))
            return _serve(request, page)

        return answer

    return decorate


def vary_on_site_address(
    variant: Callable[[HttpRequest], PageVariant | None] = lambda request: PageVariant(),
) -> Callable[[HttpRequest], PageVariant | None]:
    """Return `variant` extended by the site's address, for pages that contain it."""

    def extended_variant(request: HttpRequest) -> PageVariant | None:
        base_variant = variant(request)
        if base_variant is None:
            return None
        return PageVariant(
            f"{site_address(request)} {base_variant.view}", base_variant.common and is_own_address(request)
        )

    return extended_variant


def is_anonymous_visit(request: HttpRequest) -> bool:
    """Return whether the request only reads, and the visitor has neither a session nor pending messages.

    Without a session cookie the visitor is anonymous; otherwise loading the session costs a query.
    """
    cookies = request.COOKIES
    if request.method not in ("GET", "HEAD") or "messages" in cookies:
        return False
    return settings.SESSION_COOKIE_NAME not in cookies or not request.session.keys()


def _serve(request: HttpRequest, page: CachedPage) -> HttpResponse:
    """Return the response with a page: 304 if the client has it, compressed if it accepts gzip, else plain."""
    if etag_matches(request.META.get("HTTP_IF_NONE_MATCH", ""), page.etag):
        response = HttpResponse(status=304)
    elif accepts_gzip(request.META.get("HTTP_ACCEPT_ENCODING", "")):
        response = HttpResponse(page.compressed, content_type=page.content_type)
        response.headers["Content-Encoding"] = "gzip"
    else:
        response = HttpResponse(gzip.decompress(page.compressed), content_type=page.content_type)
    if page.disposition:
        response.headers["Content-Disposition"] = page.disposition
    response.headers["ETag"] = page.etag
    response.headers["Vary"] = "Cookie, Accept-Encoding, HX-Request, HX-History-Restore-Request"
    response.headers["Cache-Control"] = "no-cache"
    return response


@lru_cache(256)
def accepts_gzip(header: str) -> bool:
    """Return whether `Accept-Encoding` allows gzip: by name, else by `*`, with a weight above 0."""
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((part.partition("=")[2] for part in parameters if part.split("=")[0].strip() == "q"), "1")
        try:
            weights[coding] = float(quality)
        except ValueError:
            weights[coding] = 0.0
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def etag_matches(condition: str, etag: str) -> bool:
    """Return whether `If-None-Match` contains the entity tag, by weak comparison, or `*`."""
    tags = parse_etags(condition) if condition else []
    return "*" in tags or etag.removeprefix("W/") in (tag.removeprefix("W/") for tag in tags)


def own_teams(request: HttpRequest) -> list[int]:
    """Return the ids of the visitor's teams; empty for anonymous visitors, who share cached pages."""
    if is_anonymous_visit(request) or not isinstance(request.user, User):
        return []
    return list(Membership.objects.filter(user=request.user).values_list("team_id", flat=True))
