"""Hit counters of the page cache, counted per process and added to the shared cache periodically."""

import logging
import threading
import time
from collections import Counter
from typing import Literal

from django.core.cache import cache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

#: Outcomes: cached in this process; cached by another process; rendered; not cacheable.
Outcome = Literal["own", "shared", "made", "unkept"]
OUTCOMES: tuple[Outcome, ...] = ("own", "shared", "made", "unkept")
#: Seconds between two additions by a process, so that a hit does not cost a request to the cache server.
ADDING_INTERVAL = 10.0

_pending_counts: Counter[Outcome] = Counter()
_lock = threading.Lock()
_added_at = 0.0


def count_page(outcome: Outcome) -> None:
    """Count a page with this outcome; about every `ADDING_INTERVAL` seconds, add the counts to the shared cache."""
    global _added_at
    with _lock:
        _pending_counts[outcome] += 1
        if time.monotonic() - _added_at < ADDING_INTERVAL:
            return
        _added_at = time.monotonic()
    _add()


def totals() -> dict[Outcome, int]:
    """Return the number of pages by outcome over all processes, since the cache was last cleared."""
    _add()
    counts = cache.get_many([_key(outcome) for outcome in OUTCOMES])
    return {outcome: int(counts.get(_key(outcome), 0)) for outcome in OUTCOMES}


def _add() -> None:
    """Add this process's counts to the shared cache; drop them if the server is unavailable."""
    with _lock:
        counts = dict(_pending_counts)
        _pending_counts.clear()
    try:
        for outcome, number in counts.items():
            cache.add(_key(outcome), 0, timeout=None)
            cache.incr(_key(outcome), number)
    except (RedisError, ValueError) as error:
        logger.info("pages were not counted: %s", type(error).__name__)


def _key(outcome: Outcome) -> str:
    return f"pages-counted:{outcome}"
