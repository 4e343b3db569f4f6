"""A program of a team that takes messages, on this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from leaderboard.models import User
from submissions.accounts.teams import personal_team
from submissions.models import Webhook
from submissions.notifications.webhooks import add_webhook


class Receiver:
    """A program that takes messages on this machine, and answers as told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.status, self.headers, self.drip = 204, {}, False
        self.dripped_to_the_end = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append((dict(self.headers), body))
                if receiver.drip:
                    receiver.drip_slowly(self)
                    return
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?from=runboard"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def drip_slowly(self, handler: BaseHTTPRequestHandler) -> None:
        """An answer that does not end for two minutes, a byte at a time."""
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(2400):
                handler.wfile.write(b"z")
                handler.wfile.flush()
                time.sleep(0.05)
            self.dripped_to_the_end = True
        except OSError:
            return

    def json(self, number: int = -1) -> dict[str, Any]:
        """The body of a message."""
        found: dict[str, Any] = json.loads(self.received[number][1])
        return found


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A running one, on the loopback address, which the embedded site may send to."""
    settings.WEBHOOKS_LOOPBACK = True
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def webhook(receiver: Receiver, alice: User) -> Webhook:
    """Alice's team's."""
    return add_webhook(personal_team(alice), receiver.url, alice)
