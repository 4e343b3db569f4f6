"""Room in the shared cache that cannot grow: a fixed number of places, each for one value.

The cache's server carries the queue of work too, and never drops anything by itself. So what visitors can make more of
by asking must not have a key each: a key says which place is meant, and whoever comes there last stays. No index is
kept, nothing is counted, and no process can be wrong about how much there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from django.core.cache import cache


class Slots:
    """`number` places that are called `name`, for values that are remembered for `lifetime` seconds."""

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
