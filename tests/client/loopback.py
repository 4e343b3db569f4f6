"""A server on loopback that plays a site, well or badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A request to the server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """A response: `content` is sent unchanged if it is bytes, else as JSON."""

    content: Any
    status: int = 200
    headers: dict[str, str] = {}


class Loopback:
    """Server with its address and the requests that it received."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.asked: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                asked = Request(self.command, self.path, dict(self.headers), body)
                outer.asked.append(asked)
                found = answer(asked)
                sent = found.content if isinstance(found.content, bytes) else json.dumps(found.content).encode()
                self.send_response(found.status)
                for name, value in {"Content-Length": str(len(sent)), **found.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:
                """Disable the request log."""

        for method in ("GET", "HEAD", "POST", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.respond)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"


@contextmanager
def playing(answer: Callable[[Request], Answer]) -> Iterator[Loopback]:
    """Run the server during the block."""
    found = Loopback(answer)
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
