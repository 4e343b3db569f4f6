"""A cache that may be away: a page is then computed, not refused, and nobody waits for it.

Limits on how often somebody may do something are then counted by each process for itself: looser, by the number of
processes, but not gone.
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

#: Seconds for which a server that did not answer is not asked again: each asking may take its whole patience.
PAUSE = 5.0
#: How the keys of rate limits begin, of the API's and of accounts.
_LIMITS = ("throttle_", "allauth")

_DIGEST_BYTES = 16
#: The length of the JSON part, behind the signature.
_LENGTH = struct.Struct(">I")
#: Stands in the JSON part for bytes, which lie behind it in the same order: how many they are.
_BYTES = "\0bytes"
#: Numbers stand as they are, so that the server can count them up; a signed value is longer than any.
_LONGEST_NUMBER = len(str(-(2**63)))


class _LocalCounts(LocMemCache):
    """What this process counts by itself."""

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        self.add(key, 0, version=version)
        return super().incr(key, delta, version)


class ForgivingRedisCache(RedisCache):
    """Django's Redis cache, treating a server that does not answer as an empty cache, and keeping no pickles."""

    #: Shared by the objects that Django makes for each thread.
    _silent_until = 0.0
    _here = _LocalCounts("limits while the cache is away", {})

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        """As Django makes it. One attempt is enough: what is not at hand is computed."""
        options = {**params.get("OPTIONS", {}), "retry": Retry(NoBackoff(), 0), "serializer": SignedValues}
        super().__init__(server, {**params, "OPTIONS": options})

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The cached value, or `default` when it is missing, not ours, or the server is away."""
        value = self._ask(super().get, key, None, version, away=None)
        return default if value is None else value

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        """The cached values by key, without those that are not ours; empty when the server is away."""
        values: dict[Any, Any] = self._ask(super().get_many, keys, version, away={})
        return {key: value for key, value in values.items() if value is not None}

    def set(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> None:
        """Store the value where the server answers."""
        self._ask(super().set, key, value, timeout, version, away=None)

    def set_many(self, data: Any, timeout: Any = 3600, version: int | None = None) -> Any:
        """Store the values by key where the server answers, in one question; the keys that were not stored."""
        return self._ask(super().set_many, data, timeout, version, away=list(data))

    def add(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> bool:
        """Store the value unless there is one; True when the server is away, so that no lock is waited for."""
        return bool(self._ask(super().add, key, value, timeout, version, away=True))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """The number after it was counted up. Raises ValueError where there is none; not while the server is away."""
        return int(self._ask(super().incr, key, delta, version, away=delta))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove the value where the server answers."""
        return bool(self._ask(super().delete, key, version, away=False))

    def _ask(self, ask: Callable[..., Any], key: Any, *arguments: Any, away: Any) -> Any:
        """What the server says. While it is away: of a limit what this process counted, else `away`."""
        if monotonic() >= ForgivingRedisCache._silent_until:
            try:
                return ask(key, *arguments)
            except RedisError as error:
                ForgivingRedisCache._silent_until = monotonic() + PAUSE
                logger.warning("cache away: %s; not asked again for %s s", type(error).__name__, PAUSE)
        if str(key).startswith(_LIMITS):
            return getattr(self._here, ask.__name__)(key, *arguments)
        return away


class SignedValues:
    """The serializer of the cache: None, numbers, texts, bytes and lists of these, as JSON and bytes, signed.

    Never as pickles: a pickle is code for whoever reads it, and the cache's server is reached by every worker. So what
    is read from it is data, and only what a process with our `SECRET_KEY` wrote. Any other value counts as missing: one
    that somebody else wrote, one written under a key that was replaced since, one of another version of the site.
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
