"""What a curator asked for and cannot have."""

from __future__ import annotations


class JudgingRefused(Exception):
    """The message says what is in the way, and what would do. Nothing was changed."""


class ConcurrentChange(JudgingRefused):
    """Somebody else changed it first: look again."""
