"""How values are written into the shared cache: as JSON and bytes, signed, never as pickles.

A pickle is code for whoever reads it, and the cache's server is reached by every worker. So what is read from it is
data, and only what a process with our `SECRET_KEY` wrote. Any other value counts as missing: one that somebody else
wrote, one written under a key that was replaced since, one of another version of the site.
"""

from __future__ import annotations

import hmac
import json
import struct
from hashlib import blake2b
from typing import Any

from django.conf import settings

_DIGEST_BYTES = 16
#: The length of the JSON part, behind the signature.
_LENGTH = struct.Struct(">I")
#: Stands in the JSON part for bytes, which lie behind it in the same order: how many they are.
_BYTES = "\0bytes"
#: Numbers stand as they are, so that the server can count them up; a signed value is longer than any.
_LONGEST_NUMBER = len(str(-(2**63)))


class SignedValues:
    """The serializer of `leaderboard.core.cache.redis`: None, numbers, texts, bytes and lists of these.

    Tuples come back as lists.
    """

    def __init__(self) -> None:
        self._key = blake2b(settings.SECRET_KEY.encode(), person=b"shared cache").digest()

    def dumps(self, value: Any) -> bytes | int:
        """What the server is to keep. Raises TypeError for what is neither JSON nor bytes."""
        if type(value) is int:
            return value
        parts: list[bytes] = []

        def set_aside(part: object) -> dict[str, int]:
            if not isinstance(part, bytes):
                raise TypeError(f"The shared cache keeps no {type(part).__name__}.")
            parts.append(part)
            return {_BYTES: len(part)}

        text = json.dumps(value, default=set_aside, separators=(",", ":")).encode()
        content = b"".join((_LENGTH.pack(len(text)), text, *parts))
        return self._signature(content) + content

    def loads(self, stored: bytes) -> Any:
        """The value; None where it is not one that we wrote."""
        if len(stored) <= _LONGEST_NUMBER:
            return int(stored) if stored.removeprefix(b"-").isdigit() else None
        content = memoryview(stored)[_DIGEST_BYTES:]
        if not hmac.compare_digest(self._signature(content), stored[:_DIGEST_BYTES]):
            return None
        (length,) = _LENGTH.unpack_from(content)
        at = _LENGTH.size + length

        def put_back(found: dict[str, Any]) -> Any:
            nonlocal at
            if _BYTES not in found:
                return found
            begin, at = at, at + found[_BYTES]
            return bytes(content[begin:at])

        return json.loads(bytes(content[_LENGTH.size : at]), object_hook=put_back)

    def _signature(self, content: bytes | memoryview) -> bytes:
        return blake2b(content, key=self._key, digest_size=_DIGEST_BYTES).digest()
