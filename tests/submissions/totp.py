"""Codes as an authenticator app makes them (RFC 6238), written apart from the library that checks them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time


def code_now(secret: str, steps: int = 0) -> str:
    """The six digits that belong to the secret now, or so many steps of 30 seconds later."""
    counter = int(time.time() // 30) + steps
    digest = hmac.digest(base64.b32decode(secret), counter.to_bytes(8, "big"), hashlib.sha1)
    start = digest[-1] & 15
    return f"{(int.from_bytes(digest[start : start + 4], 'big') & 0x7FFFFFFF) % 1_000_000:06d}"
