"""Caches of fixed size, in this process and on the shared server."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from threading import Lock
from typing import Any, Generic, TypeVar

from cachetools import TLRUCache
from django.core.cache import cache

#: Lifetimes in seconds. Values under a key that changes with them are never stale and have the long lifetime.
LIFETIME, LONG_LIFETIME = 120, 3600

T = TypeVar("T")


class TTLCache(Generic[T]):
    """A cache in this process with a lifetime for each value and a total size of at most `size`."""

    def __init__(self, size: int) -> None:
        self._values: TLRUCache[str, tuple[float, int, T], float] = TLRUCache(
            size, ttu=lambda _, item, now: now + item[0], getsizeof=lambda item: item[1]
        )
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """Return the value, or None if it is missing or expired."""
        with self._lock:
            item = self._values.get(key)
        return item[2] if item else None

    def put(self, key: str, value: T, size: int, lifetime: float = LIFETIME) -> None:
        """Store the value for `lifetime` seconds, evicting old values, unless it is larger than the cache.

        `size` is in the unit of the cache's size.
        """
        with self._lock, suppress(ValueError):
            self._values[key] = (lifetime, size, value)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


class FixedCache:
    """A cache with a fixed number of slots on the shared server, each for one value.

    The cache server also carries the job queue and never evicts values. Visitors could create any number of keys by
    their requests. The hash of a key therefore selects a slot, and the latest value replaces the previous one. This
    needs no index and no counters.

    Args:
        name: Prefix of the slots' keys.
        number: Number of slots.
        lifetime: Seconds until a value expires.
    """

    def __init__(self, name: str, number: int, lifetime: int) -> None:
        self._name, self._number, self._lifetime = name, number, lifetime

    def get(self, key: str) -> Any:
        """Return the value, or None if it is missing or was replaced."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the available values by key, in one request to the server."""
        places = {key: self._slot(key) for key in keys}
        slots = cache.get_many({place for place, _ in places.values()})
        return {
            key: slots[place][1] for key, (place, name) in places.items() if place in slots and slots[place][0] == name
        }

    def set(self, key: str, value: Any) -> None:
        self.set_many({key: value})

    def set_many(self, values: Mapping[str, Any]) -> None:
        """Store the values in one request to the server, replacing what their slots contain."""
        slot_items = [(*self._slot(key), value) for key, value in values.items()]
        cache.set_many({place: (name, value) for place, name, value in slot_items}, self._lifetime)

    def _slot(self, key: str) -> tuple[str, bytes]:
        name = blake2b(key.encode(), digest_size=16).digest()
        return f"{self._name}:{int.from_bytes(name[:8]) % self._number}", name
