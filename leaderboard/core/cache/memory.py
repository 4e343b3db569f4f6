"""Caches of a fixed size: one in this process, and one in the shared server."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from threading import Lock
from typing import Any, Generic, TypeVar

from cachetools import TLRUCache
from django.core.cache import cache

#: Seconds. A value whose key changes with it is never stale, and has the long lifetime.
LIFETIME, LONG_LIFETIME = 120, 3600

T = TypeVar("T")


class TTLCache(Generic[T]):
    """Values of this process by key: their sizes add up to `size` at most, and each has a lifetime."""

    def __init__(self, size: int) -> None:
        self._values: TLRUCache[str, tuple[float, int, T], float] = TLRUCache(
            size, ttu=lambda _, kept, now: now + kept[0], getsizeof=lambda kept: kept[1]
        )
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """Return the value, or None if it is missing or too old."""
        with self._lock:
            found = self._values.get(key)
        return found[2] if found else None

    def put(self, key: str, value: T, size: int, lifetime: float = LIFETIME) -> None:
        """Store the value in place of the least recently used ones, unless it is larger than the cache."""
        with self._lock, suppress(ValueError):
            self._values[key] = (lifetime, size, value)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()


class FixedCache:
    """A fixed number of places in the shared cache, called `name`, each for one value, kept for `lifetime` seconds.

    The cache's server carries the queue of work too, and never drops anything by itself. So what visitors can make more
    of by asking must not have a key each: a key says which place is meant, and whoever comes there last stays. No index
    is kept, nothing is counted, and no process can be wrong about how much there is.
    """

    def __init__(self, name: str, number: int, lifetime: int) -> None:
        self._name, self._number, self._lifetime = name, number, lifetime

    def get(self, key: str) -> Any:
        """The value, None where it is not here (any more)."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Those of the values that are here, by key. One question to the server."""
        places = {key: self._place(key) for key in keys}
        found = cache.get_many({place for place, _ in places.values()})
        return {
            key: found[place][1]
            for key, (place, name) in places.items()
            if place in found and found[place][0] == name
        }

    def set(self, key: str, value: Any) -> None:
        """Remember the value, in the place of what was there."""
        self.set_many({key: value})

    def set_many(self, values: Mapping[str, Any]) -> None:
        """Remember the values by key, each in the place of what was there. One question to the server."""
        placed = [(*self._place(key), value) for key, value in values.items()]
        cache.set_many({place: (name, value) for place, name, value in placed}, self._lifetime)

    def _place(self, key: str) -> tuple[str, bytes]:
        name = blake2b(key.encode(), digest_size=16).digest()
        return f"{self._name}:{int.from_bytes(name[:8]) % self._number}", name
