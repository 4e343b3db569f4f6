"""How gunicorn serves the site: its configuration (`--config python:leaderboard.core.http.gunicorn`).

What it answers by itself, to what is no request or one that it refuses, has the headers of every other answer. It
believes nothing that a request says of its scheme or of where the site begins. Behind a proxy it is Django that looks
at `X-Forwarded-Proto`, where `BEHIND_PROXY` says so.
"""

import gc
import socket
from typing import Any

from django.conf import settings
from gunicorn.workers.gthread import ThreadWorker

from leaderboard.core.http.middleware import policy_headers


class _Connection:
    """A connection over which one error goes out: the policy's headers are added behind its first line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def sendall(self, answer: bytes) -> None:
        status, _, rest = answer.partition(b"\r\n")
        headers = {"Cache-Control": "no-store", **policy_headers()}
        lines = [f"{name}: {value}".encode("latin-1") for name, value in headers.items()]
        self._connection.sendall(b"\r\n".join([status, *lines, rest]))


class Worker(ThreadWorker):
    """gunicorn's worker with threads."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Log the error and answer it."""
        super().handle_error(req, _Connection(client), addr, exc)


def when_ready(server: Any) -> None:
    """Load what each worker would load at its first request. They are forked from here next, and share it."""
    warm_up = getattr(server.app.wsgi(), "warm_up", None)  # other applications than the site have none
    if server.cfg.preload_app and warm_up:
        warm_up()
        # What is loaded stays: no collection of garbage goes through it again, or copies its memory.
        gc.collect()
        gc.freeze()


def post_worker_init(worker: Any) -> None:
    """Leave two of the worker's threads to readers while it receives upload pieces."""
    settings.PIECES_AT_ONCE = max(worker.cfg.threads - 2, 1)


# The names that gunicorn reads.
worker_class = Worker
forwarded_allow_ips = ""
forwarder_headers = ""
