"""Things that this process made a moment ago and may need again."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

#: Seconds.
LIFETIME = 120

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by key: at most `size` of them, none longer than its lifetime."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """The value, unless it is not here or too old."""
        found = self._values.get(key)
        return found[1] if found is not None and found[0] > monotonic() else None

    def put(self, key: str, value: T, lifetime: float = LIFETIME) -> None:
        """Keep the value, and drop the one that was put here first where there are too many."""
        with self._lock:
            self._values[key] = (monotonic() + lifetime, value)
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
