"""Bodies of requests that come too slowly are given up: each holds a thread of its web process until it is there.

A proxy that buffers requests keeps slow senders from us; where there is none, this does. What reads the body is not
asked for anything: it finds the end of the stream, as where a connection breaks.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: What is read at a time, in bytes.
BLOCK = 64 * 1024
#: After so many seconds of waiting for a block the sender is taken to be gone.
SILENCE = 30.0
#: From so many seconds of waiting on it brings so many bytes a second at least, and as many as it takes to be there
#: within so many seconds.
GRACE, LEAST_RATE, LONGEST = 30.0, 4096, 3600.0
#: Seconds between two looks at that.
LOOK = 1.0


class TooSlow(OSError):
    """The body was given up. Django makes its UnreadablePostError of it."""


class WatchedBody:
    """A request's body, for as long as it is waited for: time in which nobody reads it is not the sender's."""

    def __init__(self, stream: Any, connection: socket.socket, length: int) -> None:
        self._stream, self._connection, self._length = stream, connection, length
        self._least = max(LEAST_RATE, length / LONGEST)
        self._came, self._waited = 0, 0.0
        self._waits_since: float | None = None
        self._watching: threading.Thread | None = None
        self._over = threading.Event()
        self._given_up = False

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer at the end. Raises TooSlow once it was given up."""
        left = self._length - self._came if size is None or size < 0 else size
        blocks = []
        while left > 0 and (block := self._take(self._stream.read, min(left, BLOCK))):
            blocks.append(block)
            left -= len(block)
        return b"".join(blocks)

    def readline(self, size: int = -1) -> bytes:
        """A line, or the bytes of it that `size` allows. Raises TooSlow once it was given up."""
        return self._take(self._stream.readline, size)

    def close(self) -> None:
        """The request is answered: nobody reads on."""
        self._over.set()

    def _take(self, read: Callable[[int], bytes], size: int) -> bytes:
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, daemon=True, name="slow sender")
            self._watching.start()
        began = self._waits_since = time.monotonic()
        try:
            block = read(size)
        finally:
            self._waits_since = None
            self._waited += time.monotonic() - began
        self._came += len(block)
        if self._came >= self._length:
            self._over.set()
        if self._given_up:
            raise TooSlow("the request came too slowly")
        return block

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            if self._is_too_slow():
                self._given_up = True
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RD)
                return

    def _is_too_slow(self) -> bool:
        since = self._waits_since
        if since is None:
            return False
        here = time.monotonic() - since
        waited = self._waited + here
        # A block counts when it is whole: one may be on its way.
        return here > SILENCE or (waited > GRACE and self._came + BLOCK < self._least * waited)


def watch_body(environ: dict[str, Any]) -> Callable[[], None]:
    """Have the body of a request watched, where it has one and comes over a connection; what to call at its end."""
    connection, length = environ.get("gunicorn.socket"), environ.get("CONTENT_LENGTH") or ""
    if connection is None or not length.isdecimal() or int(length) == 0:
        return lambda: None
    body = WatchedBody(environ["wsgi.input"], connection, int(length))
    environ["wsgi.input"] = body
    return body.close
