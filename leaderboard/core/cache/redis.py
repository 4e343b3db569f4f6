"""A cache that may be away: a page is then computed, not refused, and nobody waits for it.

Limits on how often somebody may do something are then counted by each process for itself: looser, by the number of
processes, but not gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from leaderboard.core.cache.encoding import SignedValues

logger = logging.getLogger(__name__)

#: Seconds for which a server that did not answer is not asked again: each asking may take its whole patience.
PAUSE = 5.0
#: How the keys of rate limits begin, of the API's and of accounts.
_LIMITS = ("throttle_", "allauth")

T = TypeVar("T")


class ForgivingRedisCache(RedisCache):
    """Django's Redis cache, treating a server that does not answer as an empty cache, and keeping no pickles."""

    #: Shared by the objects that Django makes for each thread.
    _silent_until = 0.0
    _here = LocMemCache("limits while the cache is away", {})

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        """As Django makes it. One attempt is enough: what is not at hand is computed."""
        options = {**params.get("OPTIONS", {}), "retry": Retry(NoBackoff(), 0), "serializer": SignedValues}
        super().__init__(server, {**params, "OPTIONS": options})

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The cached value, or `default` when it is missing, not ours, or the server is away."""
        ask = super().get
        found = self._ask(
            lambda: ask(key, None, version),
            lambda: self._here.get(key, None, version) if _is_limit(key) else None,
        )
        return default if found is None else found

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        """The cached values by key, without those that are not ours; empty when the server is away."""
        ask = super().get_many
        found: dict[Any, Any] = self._ask(lambda: ask(keys, version), dict)
        return {key: value for key, value in found.items() if value is not None}

    def set(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> None:
        """Store the value where the server answers."""
        ask = super().set
        self._ask(
            lambda: ask(key, value, timeout, version),
            lambda: self._here.set(key, value, timeout, version) if _is_limit(key) else None,
        )

    def set_many(self, data: Any, timeout: Any = 3600, version: int | None = None) -> Any:
        """Store the values by key where the server answers, in one question; the keys that were not stored."""
        ask = super().set_many
        return self._ask(lambda: ask(data, timeout, version), lambda: list(data))

    def add(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> bool:
        """Store the value unless there is one; True when the server is away, so that no lock is waited for."""
        ask = super().add
        return self._ask(
            lambda: bool(ask(key, value, timeout, version)),
            lambda: self._here.add(key, value, timeout, version) if _is_limit(key) else True,
        )

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """The number after it was counted up. Raises ValueError where there is none; not while the server is away."""
        ask = super().incr
        return self._ask(lambda: int(ask(key, delta, version)), lambda: self._count_here(key, delta, version))

    def _count_here(self, key: Any, delta: int, version: int | None) -> int:
        self._here.add(key, 0, version=version)
        return int(self._here.incr(key, delta, version))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove the value where the server answers."""
        ask = super().delete
        return self._ask(lambda: bool(ask(key, version)), lambda: self._here.delete(key, version))

    def _ask(self, ask: Callable[[], T], instead: Callable[[], T]) -> T:
        """What the server says, or what is said in its place while it is away."""
        if monotonic() < ForgivingRedisCache._silent_until:
            return instead()
        try:
            return ask()
        except RedisError as error:
            ForgivingRedisCache._silent_until = monotonic() + PAUSE
            logger.warning("cache away: %s; not asked again for %s s", type(error).__name__, PAUSE)
            return instead()


def _is_limit(key: Any) -> bool:
    return str(key).startswith(_LIMITS)
