"""The site as gunicorn serves it, with the room for kept pages full, as it is after some hours.

Otherwise ten minutes of readers fill that room, 32 MiB in each process (docs/decisions/0020), and a growth that has an
end could not be told from one that has none. What fills it is too old to be answered with, and goes first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from leaderboard.core.cache import pages
from leaderboard.core.cache.memory import TTLCache
from leaderboard.core.cache.pages import RECENT_BYTES, CachedPage
from leaderboard.wsgi import application as site

#: A page of a board, compressed, about.
PAGE_BYTES = 12 * 1024
_lock = Lock()
_filled = False


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """What the site answers. The first request of each process fills: before the fork it would be shared memory."""
    global _filled
    with _lock:
        if not _filled:
            fill(pages._recent_pages, RECENT_BYTES)
            _filled = True
    answer: Iterable[bytes] = site(environ, start_response)
    return answer


application.warm_up = site.warm_up  # type: ignore[attr-defined]


def fill(kept: TTLCache[CachedPage], size: int) -> None:
    """Put pages that nobody asks for into all of the room."""
    for number in range(size // PAGE_BYTES):
        page = CachedPage("", "", os.urandom(PAGE_BYTES), "")
        kept.put(f"{number:032x}", page, page.size, lifetime=86_400)
