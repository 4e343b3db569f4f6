"""Senders that drip hold no thread: what comes too slowly is given up, and said so; what comes well is left alone."""

from __future__ import annotations

import io
import socket
import time
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from leaderboard.core.http import slow_requests
from leaderboard.core.http.errors import error_response
from leaderboard.core.http.slow_requests import TooSlow, WatchedBody, watch_body
from leaderboard.wsgi import FaultTolerantApplication


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOOK": 0.02, "GRACE": 0.1, "SILENCE": 0.2, "MIN_RATE": 2**20}.items():
        monkeypatch.setattr(slow_requests, name, value)


def reads(pieces: list[bytes], pause: float, length: int, wait: float = 0.0) -> bytes:
    """What is read of a body that comes so; `wait`: how long nobody reads in between."""
    sender, ours = socket.socketpair()
    with sender, ours, ours.makefile("rb") as stream:

        def send() -> None:
            for piece in pieces:
                with suppress(OSError):
                    sender.sendall(piece)
                time.sleep(pause)

        sending = Thread(target=send)
        sending.start()
        body = WatchedBody(stream, ours, length)
        try:
            first = body.read(1)
            time.sleep(wait)
            return first + body.read()
        finally:
            body.close()
            sending.join()


@pytest.mark.parametrize(
    ("pieces", "pause", "length"),
    [([b"x"] * 30, 0.02, 100_000), ([b"x" * 70_000], 0.0, 100_000)],
    ids=["drips", "falls silent"],
)
def test_who_is_too_slow_is_given_up(pieces: list[bytes], pause: float, length: int) -> None:
    with pytest.raises(TooSlow):
        reads(pieces, pause, length)


def test_who_is_quick_is_left_alone_however_long_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRACE", "SILENCE"):  # on a busy machine the thread that sends may stand still for a while
        monkeypatch.setattr(slow_requests, name, 1.0)
    content = [bytes([number]) * 50_000 for number in range(4)]
    assert reads(content, 0.01, 200_000, wait=1.5) == b"".join(content)


def test_a_connection_that_breaks_ends_the_body_as_before() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert WatchedBody(io.BytesIO(b"abc"), ours, 10).read() == b"abc"


def test_the_sender_is_told(rf: RequestFactory) -> None:
    """The whole way: gunicorn's socket, the application, Django's reading of a form, the answer."""
    sender, ours = socket.socketpair()
    began: list[Any] = []

    def application(environ: dict[str, Any], start_response: Any) -> HttpResponse:
        request: HttpRequest = rf.generic("POST", "/api/v1/check/", **{"wsgi.input": environ["wsgi.input"]})
        request._stream = environ["wsgi.input"]
        try:
            assert request.body
        except OSError as error:
            return error_response(request, error)
        pytest.fail("it was read")

    with sender, ours, ours.makefile("rb") as stream:
        sender.sendall(b"x")
        environ = rf.post("/api/v1/check/", b"", content_type="text/plain").environ
        environ |= {"wsgi.input": stream, "gunicorn.socket": ours, "CONTENT_LENGTH": "1000"}
        told: Any = FaultTolerantApplication(application)(environ, lambda *said: began.append(said))  # type: ignore[arg-type]
    assert told.status_code == 408
    assert b"too slowly" in told.content or b"too_slow" in told.content


def test_requests_without_a_body_are_not_watched() -> None:
    environ: dict[str, Any] = {"wsgi.input": io.BytesIO(), "gunicorn.socket": object(), "CONTENT_LENGTH": ""}
    stream = environ["wsgi.input"]
    watch_body(environ)()
    assert environ["wsgi.input"] is stream
