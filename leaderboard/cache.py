"""A cache that may be away: a page is then computed, not refused."""

from __future__ import annotations

import logging
from typing import Any

from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)


class ForgivingRedisCache(RedisCache):
    """Django's Redis cache, treating a server that does not answer as an empty cache."""

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The cached value, or `default` when it is missing or the server is away."""
        try:
            return super().get(key, default, version)
        except RedisError as error:
            logger.warning("cache away: %s", type(error).__name__)
            return default

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        """The cached values by key; empty when the server is away."""
        try:
            return super().get_many(keys, version)
        except RedisError as error:
            logger.warning("cache away: %s", type(error).__name__)
            return {}

    def set(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> None:
        """Store the value where the server answers."""
        try:
            super().set(key, value, timeout, version)
        except RedisError as error:
            logger.warning("cache away: %s", type(error).__name__)

    def add(self, key: Any, value: Any, timeout: Any = 3600, version: int | None = None) -> bool:
        """Store the value unless there is one; True when the server is away, so that no lock is waited for."""
        try:
            return bool(super().add(key, value, timeout, version))
        except RedisError as error:
            logger.warning("cache away: %s", type(error).__name__)
            return True

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove the value where the server answers."""
        try:
            return bool(super().delete(key, version))
        except RedisError as error:
            logger.warning("cache away: %s", type(error).__name__)
            return False
