"""Limits on how slowly a request body may arrive, because each occupies a thread of the web process.

A buffering proxy protects the site from slow senders; this module does so if there is no proxy. Readers of an abandoned
body see the end of the stream, as for a broken connection.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

#: Number of bytes read at a time.
BLOCK = 64 * 1024
#: Seconds of waiting for a block after which the connection is treated as lost.
SILENCE = 30.0
#: Seconds of waiting after which a minimum rate applies, that rate in bytes per second, and the maximum time
#: of a body in seconds. Larger bodies need a higher rate to arrive in time; those without a length are
#: abandoned at the maximum time.
GRACE, MIN_RATE, MAX_SECONDS = 30.0, 4096, 3600.0
#: Seconds between two checks of the rate.
LOOK = 1.0


class TooSlow(OSError):
    """The request body was abandoned. Django converts it to UnreadablePostError."""


class WatchedBody:
    """A request body that is abandoned if its sender is too slow.

    The limits apply to time spent waiting for the sender, not to time in which the application does not read. `length`
    is 0 for a body in chunks.
    """

    def __init__(self, stream: Any, connection: socket.socket, length: int) -> None:
        self._stream, self._connection = stream, connection
        self._length = length or sys.maxsize
        self._min_rate = max(MIN_RATE, length / MAX_SECONDS)
        self.max_seconds = MAX_SECONDS
        self._received, self._total_wait = 0, 0.0
        self._wait_start: float | None = None
        self._watching = threading.Thread(target=self._watch, daemon=True, name="slow sender")
        self._finished, self._abandoned = threading.Event(), False

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end. Raises TooSlow if the body was abandoned."""
        target_size = self._length - self._received if size is None or size < 0 else size
        read, content = self._stream.read, bytearray()
        while len(content) < target_size and (block := self._receive(read, min(target_size - len(content), BLOCK))):
            content += block
        return bytes(content)

    def readline(self, size: int = -1) -> bytes:
        """Return a line of at most `size` bytes. Raises TooSlow if the body was abandoned."""
        return self._receive(self._stream.readline, size)

    def close(self) -> None:
        """Stop watching once the request is answered."""
        self._finished.set()

    def _receive(self, read: Callable[[int], bytes], size: int) -> bytes:
        """Return the block that `read(size)` returns, and add the time to the total wait. Raises TooSlow."""
        if self._watching.ident is None:
            self._watching.start()
        began = self._wait_start = time.monotonic()
        try:
            block = read(size)
        finally:
            self._wait_start = None
            self._total_wait += time.monotonic() - began
        self._received += len(block)
        if self._received >= self._length or not block:
            self._finished.set()
        if self._abandoned:
            raise TooSlow("the request arrived too slowly")
        return block

    def _watch(self) -> None:
        """Abandon the body, and shut down its connection for reading, if a block or the whole body takes too long."""
        while not self._abandoned and not self._finished.wait(LOOK):
            if (wait_start := self._wait_start) is None:
                continue
            current_wait = time.monotonic() - wait_start
            total_wait = self._total_wait + current_wait
            # Only complete blocks are counted, and another may be in transit.
            slow = total_wait > GRACE and self._received + BLOCK < self._min_rate * total_wait
            if current_wait > SILENCE or slow or total_wait > self.max_seconds:
                self._abandoned = True
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RD)


def is_chunked(environ: Mapping[str, Any]) -> bool:
    """Return whether a request body arrives in chunks, without a length."""
    chunked = environ.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
    return chunked and bool(environ.get("wsgi.input_terminated"))


def watch_body(environ: dict[str, Any]) -> Callable[[], None]:
    """Watch the request body, if there is one, for slow senders; return a function to call after the response."""
    connection, text = environ.get("gunicorn.socket"), environ.get("CONTENT_LENGTH") or ""
    length = int(text) if text.isdecimal() else 0
    if connection is None or not (length or is_chunked(environ)):
        return lambda: None
    body = environ["wsgi.input"] = WatchedBody(environ["wsgi.input"], connection, length)
    return body.close
