"""Places for pieces that are on their way: each holds a thread of its web process for as long as its sender likes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

#: How many pieces one person may send at once to one web process.
EACH = 2
#: After so many seconds who finds no place tries again.
RETRY_SECONDS = 5

_lock = threading.Lock()
_taken: Counter[int] = Counter()


class TooManyPieces(Exception):
    """The person sends as many pieces as one may, or everybody together as many as there are threads for."""


@contextmanager
def piece_slot(person: int) -> Iterator[None]:
    """Hold a place of this process while a piece comes. Raises TooManyPieces."""
    with _lock:
        if _taken[person] >= EACH or _taken.total() >= settings.PIECES_AT_ONCE:
            raise TooManyPieces
        _taken[person] += 1
    try:
        yield
    finally:
        with _lock:
            _taken[person] -= 1
            if not _taken[person]:
                del _taken[person]
