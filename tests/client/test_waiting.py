"""A site that asks to wait: what is sent again is sent whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runboard import Client, Refused


class Busy:
    """A server on loopback that answers with these statuses, one after the other, and keeps what it was sent."""

    def __init__(self, *statuses: int) -> None:
        self.bodies: list[bytes] = []
        left, bodies = iter(statuses), self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(next(left))
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def busy(request: pytest.FixtureRequest) -> Iterator[Busy]:
    found = Busy(*request.param)
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.txt"
    path.write_text("q1 Q0 d1 1 2.0 tag\n")
    return path


@pytest.mark.parametrize("busy", [(429, 429, 200)], indirect=True)
def test_a_file_is_sent_whole_each_time(busy: Busy, run: Path) -> None:
    Client(f"http://127.0.0.1:{busy.server.server_port}", "token").check("small", run)
    assert len(busy.bodies) == 3
    assert all(b"q1 Q0 d1 1 2.0 tag" in body for body in busy.bodies)


@pytest.mark.parametrize("busy", [(429,) * 9], indirect=True)
def test_it_is_not_asked_for_ever(busy: Busy, run: Path) -> None:
    with pytest.raises(Refused):
        Client(f"http://127.0.0.1:{busy.server.server_port}", "token").check("small", run)
    assert len(busy.bodies) == 4
