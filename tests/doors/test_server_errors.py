"""What gunicorn answers by itself, and what it believes of a request: asked of the real one, over a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from leaderboard.management.supervisor import services
from tests.doors.test_headers import HEADERS
from tests.servers import processes

#: Requests that do not reach the site, and the answer's status.
REFUSED = {
    "no HTTP": (b"nonsense\r\n\r\n", 400),
    "a version of tomorrow": (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n", 400),
    "an address that is too long": (b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    "an unknown coding": (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n", 501),
    "too many headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 200 + b"\r\n", 431),
    "an expectation": (b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n\r\n", 417),
}
#: What a request says of the site, and would be believed of a proxy.
CLAIMS = (
    b"SCRIPT_NAME: /page",
    b"SCRIPT_NAME: /%2Fevil.example",
    b"X-Forwarded-Proto: https",
    b"PATH_INFO: /other",
)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """gunicorn as `make run` starts it, but for the application behind it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    arguments = services.web(port, {}).arguments[:-1]
    process = processes.start(
        [*arguments, "tests.doors.environ_echo:application"], tmp_path / "log", cwd=settings.BASE_DIR
    )
    while not is_open(port):
        assert process.poll() is None, processes.last_lines(tmp_path / "log")
    yield port
    processes.stop(process)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, request: bytes) -> tuple[int, Message, bytes]:
    """The status, the headers and the body of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    status, _, rest = answer.partition(b"\r\n")
    head, _, body = rest.partition(b"\r\n\r\n")
    return int(status.split()[1]), message_from_bytes(head), body


def test_gunicorns_own_answers_have_the_policy_and_nothing_a_request_says_moves_the_site(
    port: int, client: Client
) -> None:
    policy = set(client.get("/nowhere/").headers["Content-Security-Policy"].split("; "))
    for what, (request, expected) in REFUSED.items():
        status, headers, body = ask(port, request)
        assert status == expected, what
        assert {name: headers[name] for name in HEADERS} == HEADERS, what
        (told,) = headers.get_all("Content-Security-Policy", [])
        assert set(told.split("; ")) == policy, what
        assert headers["Content-Length"] == str(len(body)), what
    for claim in CLAIMS:
        request = b"GET /page/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + claim + b"\r\n\r\n"
        status, _, body = ask(port, request)
        assert (status, json.loads(body)) == (200, ["", "http", "/page/"]), claim
