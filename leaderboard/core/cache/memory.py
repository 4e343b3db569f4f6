"""Things that this process made a moment ago and may need again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

#: Seconds.
LIFETIME = 120

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by key: at most `size` of them, or of what `weigh` says of each, and none longer than its lifetime."""

    def __init__(self, size: int, weigh: Callable[[T], int] = lambda _: 1) -> None:
        self._size = size
        self._weigh = weigh
        self._weight = 0
        self._values: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """The value, unless it is not here or too old."""
        found = self._values.get(key)
        return found[1] if found is not None and found[0] > monotonic() else None

    def put(self, key: str, value: T, lifetime: float = LIFETIME) -> None:
        """Keep the value, and drop those that were put here first where there is too much.

        One that is too large for all of the room is not kept, and costs the others theirs.
        """
        with self._lock:
            before = self._values.pop(key, None)
            self._weight += self._weigh(value) - (self._weigh(before[1]) if before else 0)
            self._values[key] = (monotonic() + lifetime, value)
            while self._weight > self._size:
                self._weight -= self._weigh(self._values.popitem(last=False)[1][1])

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
            self._weight = 0
