"""Limits on how slowly the body of a request may arrive: each holds a thread of its web process until then.

A proxy that buffers requests keeps slow senders away. Without one, this does. The reader of a body that was given up
finds the end of the stream, as where a connection breaks.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

#: What is read at a time, in bytes.
BLOCK = 64 * 1024
#: After so many seconds of waiting for a block the sender is taken to be gone.
SILENCE = 30.0
#: After so many seconds of waiting, a body brings at least so many bytes a second, and as many as it takes to be there
#: within so many seconds. One without a length is given up then.
GRACE, LEAST_RATE, LONGEST = 30.0, 4096, 3600.0
#: Seconds between two looks at that.
LOOK = 1.0


class TooSlow(OSError):
    """The body was given up. Django makes its UnreadablePostError of it."""


class WatchedBody:
    """A request's body, for as long as it is waited for: time in which nobody reads it is not the sender's.

    `length` is 0 for a body that comes in chunks.
    """

    def __init__(self, stream: Any, connection: socket.socket, length: int) -> None:
        self._stream, self._connection = stream, connection
        self._length = length or sys.maxsize
        self._least = max(LEAST_RATE, length / LONGEST)
        self.longest = LONGEST
        self._came, self._waited = 0, 0.0
        self._waits_since: float | None = None
        self._watching = threading.Thread(target=self._watch, daemon=True, name="slow sender")
        self._over, self._given_up = threading.Event(), False

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer at the end. Raises TooSlow once it was given up."""
        wanted = self._length - self._came if size is None or size < 0 else size
        read, content = self._stream.read, bytearray()
        while len(content) < wanted and (block := self._take(read, min(wanted - len(content), BLOCK))):
            content += block
        return bytes(content)

    def readline(self, size: int = -1) -> bytes:
        """Return a line, or the bytes of it that `size` allows. Raises TooSlow once it was given up."""
        return self._take(self._stream.readline, size)

    def close(self) -> None:
        """Stop watching: the request is answered."""
        self._over.set()

    def _take(self, read: Callable[[int], bytes], size: int) -> bytes:
        if self._watching.ident is None:
            self._watching.start()
        began = self._waits_since = time.monotonic()
        try:
            block = read(size)
        finally:
            self._waits_since = None
            self._waited += time.monotonic() - began
        self._came += len(block)
        if self._came >= self._length or not block:
            self._over.set()
        if self._given_up:
            raise TooSlow("the request came too slowly")
        return block

    def _watch(self) -> None:
        while not self._given_up and not self._over.wait(LOOK):
            if (since := self._waits_since) is None:
                continue
            here = time.monotonic() - since
            waited = self._waited + here
            # A block counts when it is whole: one may be on its way.
            slow = waited > GRACE and self._came + BLOCK < self._least * waited
            if here > SILENCE or slow or waited > self.longest:
                self._given_up = True
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RD)


def is_chunked(environ: Mapping[str, Any]) -> bool:
    """Return whether a request's body comes in chunks, without a length."""
    chunked = environ.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
    return chunked and bool(environ.get("wsgi.input_terminated"))


def watch_body(environ: dict[str, Any]) -> Callable[[], None]:
    """Watch the body of a request that has one and comes over a connection. Returns what to call at its end."""
    connection, text = environ.get("gunicorn.socket"), environ.get("CONTENT_LENGTH") or ""
    length = int(text) if text.isdecimal() else 0
    if connection is None or not (length or is_chunked(environ)):
        return lambda: None
    body = environ["wsgi.input"] = WatchedBody(environ["wsgi.input"], connection, length)
    return body.close
