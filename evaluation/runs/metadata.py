"""What a run says of itself, cut to what may be kept: one rule for comments, predictions, and whatever comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

#: Entries of one object or list.
MOST_ENTRIES = 64
#: Characters; an entry with a longer name is left out, a longer text is cut.
LONGEST_NAME = 200
LONGEST_TEXT = 2000
#: How deep objects and lists may be nested.
DEEPEST = 16
#: All of it, as JSON.
MOST_BYTES = 64 * 1024

_LEFT_OUT = object()


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are text, numbers, truths, and objects and lists of those, in order, as far as there is room.

    NUL, which a database need not take, becomes U+FFFD. The result as compact JSON has at most `MOST_BYTES` bytes;
    to keep what was kept changes nothing.
    """
    kept: dict[str, Any] = _Room(MOST_BYTES).object(metadata, DEEPEST)
    return kept


class _Room:
    """The bytes of JSON that are left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> bool:
        """Whether there was so much room; what does not fit takes none, so that something smaller still may."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def value(self, value: Any, depth: int) -> Any:
        """The value, or as much of it as is kept, or `_LEFT_OUT`."""
        if isinstance(value, str):
            value = value[: LONGEST_TEXT - 1] + "…" if len(value) > LONGEST_TEXT else value
            value = value.replace("\0", "\ufffd")
        elif isinstance(value, (Mapping, list)):
            return self._nested(value, depth)
        elif not isinstance(value, (int, float)):
            return _LEFT_OUT
        return value if self.take(len(orjson.dumps(value))) else _LEFT_OUT

    def _nested(self, value: Mapping[str, Any] | list[Any], depth: int) -> Any:
        if depth == 0 or not self.take(2):  # its brackets
            return _LEFT_OUT
        return self.items(value, depth) if isinstance(value, list) else self.object(value, depth)

    def object(self, entries: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """The entries that are kept."""
        kept: dict[str, Any] = {}
        for given, value in entries.items():
            if len(kept) == MOST_ENTRIES:
                break
            if len(given) > LONGEST_NAME:
                continue
            name = given.replace("\0", "\ufffd")
            before = self.left
            found = self.value(value, depth - 1) if self.take(len(orjson.dumps(name)) + 2) else _LEFT_OUT
            if found is _LEFT_OUT:
                self.left = before
            else:
                kept[name] = found
        return kept

    def items(self, values: list[Any], depth: int) -> list[Any]:
        """The items that are kept."""
        found = (self.value(value, depth - 1) for value in values[:MOST_ENTRIES] if self.take(1))
        return [value for value in found if value is not _LEFT_OUT]
