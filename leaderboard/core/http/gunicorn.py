"""Configuration of gunicorn (`--config python:leaderboard.core.http.gunicorn`).

gunicorn's own responses to malformed and rejected requests have the same headers as all others. gunicorn ignores the
headers with which a request states its scheme or script name. Behind a proxy, Django evaluates `X-Forwarded-Proto` if
`BEHIND_PROXY` is set.
"""

import gc
import socket
from typing import Any

from django.conf import settings
from gunicorn.workers.gthread import ThreadWorker

from leaderboard.core.http.middleware import policy_headers


class _Connection:
    """A socket wrapper that inserts the policy headers after the status line of an error response."""

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
    """gunicorn's threaded worker, with policy headers on its own error responses."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        super().handle_error(req, _Connection(client), addr, exc)


# Collection is off until workers start: loading the application creates no garbage, and collecting takes a third of a
# second.
gc.disable()


def when_ready(server: Any) -> None:
    """Preload before forking, so that workers share what each would load at its first request."""
    warm_up = getattr(server.app.wsgi(), "warm_up", None)  # Other applications have no `warm_up`.
    if server.cfg.preload_app and warm_up:
        warm_up()
        # Loaded objects are permanent: freezing them keeps garbage collection from copying their memory.
        gc.collect()
        gc.freeze()
    gc.enable()


def post_worker_init(worker: Any) -> None:
    settings.PIECES_AT_ONCE = max(worker.cfg.threads - 2, 1)


# Names that gunicorn reads.
worker_class = Worker
forwarded_allow_ips = ""
forwarder_headers = ""
