"""A hub of models and collections on this machine, with one repository."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Files that a hub keeps apart, and says the checksums of.
LARGE = (".safetensors", ".parquet")


class FakeHub:
    """A hub with one repository; `asked` are the paths that were asked for.

    What it says of a file's size (`sizes`) and what it sends of it (`sent`) may differ from the file. `page` is
    answered in place of anything else; a `slow` hub sends one byte at a time.
    """

    def __init__(self, kind: Literal["models", "datasets"], name: str, files: dict[str, bytes]) -> None:
        self.files = files
        self.sent: dict[str, bytes] = {}
        self.sizes: dict[str, int] = {}
        self.commit = COMMIT
        self.status = 200
        self.page = b""
        self.slow = False
        self.asked: list[str] = []
        self.card: dict[str, Any] = {}
        self._listings = [f"/api/{kind}/{name}/revision/{at}?blobs=true" for at in ("main", "v1", COMMIT)]
        self._start = f"/{'datasets/' if kind == 'datasets' else ''}{name}/resolve/{COMMIT}/"

    def answer(self, path: str) -> bytes | None:
        """The body for a path."""
        self.asked.append(path)
        if self.page:
            return self.page
        if path in self._listings:
            entries = [self._entry(name) for name in self.files]
            return json.dumps({"sha": self.commit, "siblings": entries, "cardData": self.card}).encode()
        name = path.removeprefix(self._start)
        return self.sent.get(name, self.files.get(name))

    def _entry(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        entry: dict[str, Any] = {"rfilename": name, "size": self.sizes.get(name, len(data))}
        large = {"lfs": {"sha256": hashlib.sha256(data).hexdigest()}} if name.endswith(LARGE) else {}
        return {**entry, **large}


@contextmanager
def answering(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The hub at an address of this machine, which HF_ENDPOINT names, while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = hub.answer(self.path)
            self.send_response(404 if body is None else hub.status)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            for piece in (body or b"",) if not hub.slow else (bytes([byte]) for byte in body or b""):
                self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()
