"""A Redis cache that never blocks a page: if the server fails, the site computes the values instead.

While the server is unavailable, each process enforces rate limits with its own counters. The limits still apply, but
are multiplied by the number of processes.
"""

import hmac
import json
import logging
import struct
from collections.abc import Callable
from hashlib import blake2b
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

logger = logging.getLogger(__name__)

#: Seconds without requests after a server failed to answer: each request may take the whole timeout.
PAUSE = 5.0
#: Key prefixes of the rate limits of the API and of accounts.
_LIMITS = ("throttle_", "allauth")

_DIGEST_BYTES = 16
#: Length of the JSON part that follows the signature.
_LENGTH = struct.Struct(">I")
#: Placeholder in the JSON part for bytes, which follow it in the same order; its value is their number.
_BYTES = "\0bytes"
#: Length of the longest integer. Integers are stored unsigned so that the server can increment them; a
#: signed value is longer than any.
_LONGEST_NUMBER = len(str(-(2**63)))


class _LocalCounts(LocMemCache):
    """Rate limit counters of this process."""

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        self.add(key, 0, version=version)
        return super().incr(key, delta, version)


class ForgivingRedisCache(RedisCache):
    """Django's Redis cache, which treats an unavailable server as an empty cache and stores no pickles."""

    #: Shared by the cache objects that Django creates for each thread.
    _silent_until = 0.0
    _local_counts = _LocalCounts("limits while the cache is away", {})

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        """Create the cache as Django does, with a single attempt per request."""
        options = {**params.get("OPTIONS", {}), "retry": Retry(NoBackoff(), 0), "serializer": SignedValues}
        super().__init__(server, {**params, "OPTIONS": options})

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """Return the cached value, or `default` if it is missing, not signed by us, or the server is unavailable."""
        value = self._ask(super().get, key, None, version, fallback=None)
        return default if value is None else value

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        """Return the cached values by key, except missing and unsigned ones; empty if the server is unavailable."""
        values: dict[Any, Any] = self._ask(super().get_many, keys, version, fallback={})
        return {key: value for key, value in values.items() if value is not None}

    def set(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> None:
        """Store the value if the server is available."""
        self._ask(super().set, key, value, timeout, version, fallback=None)

    def set_many(self, data: Any, timeout: Any = 3600, version: int | None = None) -> Any:
        """Store the values in one request and return the keys that could not be stored."""
        return self._ask(super().set_many, data, timeout, version, fallback=list(data))

    def add(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> bool:
        """Store the value unless one exists; True if the server is unavailable, so that no caller waits for a lock."""
        return bool(self._ask(super().add, key, value, timeout, version, fallback=True))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Return the incremented number. Raises ValueError if the key is missing, unless the server is unavailable."""
        return int(self._ask(super().incr, key, delta, version, fallback=delta))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Delete the value if the server is available."""
        return bool(self._ask(super().delete, key, version, fallback=False))

    def _ask(self, ask: Callable[..., Any], key: Any, *arguments: Any, fallback: Any) -> Any:
        """Call the server; if it is unavailable, use local counts for rate limits and `fallback` for other keys."""
        if monotonic() >= ForgivingRedisCache._silent_until:
            try:
                return ask(key, *arguments)
            except RedisError as error:
                ForgivingRedisCache._silent_until = monotonic() + PAUSE
                logger.warning("cache unavailable: %s; next attempt in %s s", type(error).__name__, PAUSE)
        if str(key).startswith(_LIMITS):
            return getattr(self._local_counts, ask.__name__)(key, *arguments)
        return fallback


class SignedValues:
    """Serializer that stores None, numbers, text, bytes and lists of these as signed JSON and bytes.

    Pickles are never used: loading one runs code, and every worker can write to the cache server. Values must be signed
    with our `SECRET_KEY`. Values of other writers, of a replaced key, or of another version of the site are treated as
    missing. Tuples are returned as lists.
    """

    def __init__(self) -> None:
        self._key = blake2b(settings.SECRET_KEY.encode(), person=b"shared cache").digest()

    def dumps(self, value: Any) -> bytes | int:
        """Serialize the value. Raises TypeError for types other than those of JSON and bytes.

        Integers are returned unchanged, so that the server can increment them.
        """
        if type(value) is int:
            return value
        parts: list[bytes] = []

        def set_aside(part: object) -> dict[str, int]:
            if not isinstance(part, bytes):
                raise TypeError(f"The shared cache cannot store a {type(part).__name__}.")
            parts.append(part)
            return {_BYTES: len(part)}

        text = json.dumps(value, default=set_aside, separators=(",", ":")).encode()
        content = b"".join((_LENGTH.pack(len(text)), text, *parts))
        return self._signature(content) + content

    def loads(self, stored: bytes) -> Any:
        """Return the value, or None if it is not signed by us."""
        if len(stored) <= _LONGEST_NUMBER:
            return int(stored) if stored.removeprefix(b"-").isdigit() else None
        content = memoryview(stored)[_DIGEST_BYTES:]
        if not hmac.compare_digest(self._signature(content), stored[:_DIGEST_BYTES]):
            return None
        (length,) = _LENGTH.unpack_from(content)
        position = _LENGTH.size + length

        def put_back(part: dict[str, Any]) -> Any:
            nonlocal position
            if _BYTES not in part:
                return part
            begin, position = position, position + part[_BYTES]
            return bytes(content[begin:position])

        return json.loads(bytes(content[_LENGTH.size : position]), object_hook=put_back)

    def _signature(self, content: bytes | memoryview) -> bytes:
        return blake2b(content, key=self._key, digest_size=_DIGEST_BYTES).digest()
