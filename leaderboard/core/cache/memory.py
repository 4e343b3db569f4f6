"""Things that this process made a moment ago and may need again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from cachetools import TLRUCache

#: Seconds.
LIFETIME = 120

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by key: at most `size` of them, or of what `weigh` says of each, and none longer than its lifetime."""

    def __init__(self, size: int, weigh: Callable[[T], int] = lambda _: 1) -> None:
        self._values: TLRUCache[str, tuple[float, T], float] = TLRUCache(
            size, ttu=lambda _, kept, now: now + kept[0], getsizeof=lambda kept: weigh(kept[1])
        )
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """The value, unless it is not here or too old."""
        with self._lock:
            found = self._values.get(key)
        return found[1] if found else None

    def put(self, key: str, value: T, lifetime: float = LIFETIME) -> None:
        """Keep the value, in place of those used longest ago where there is too much; not one too large for all."""
        with self._lock, suppress(ValueError):
            self._values[key] = (lifetime, value)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
