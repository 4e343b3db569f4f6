"""A hub of models on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.evaluation.small_checkpoint import files

NAME, COMMIT = "someone/small-model", "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """A hub with one model; `asked` are the paths that were asked for."""

    def __init__(self) -> None:
        self.files = files() | {"pytorch_model.bin": b"pickle", "modeling.py": b"raise SystemExit"}
        self.sizes: dict[str, int] = {}
        self.asked: list[str] = []
        self.status = 200

    def answer(self, path: str) -> bytes | None:
        """The body for a path."""
        self.asked.append(path)
        if path == f"/api/models/{NAME}/revision/{COMMIT}?blobs=true":
            return json.dumps(
                {"sha": COMMIT, "siblings": [self._entry(name) for name in self.files]}
            ).encode()
        start = f"/{NAME}/resolve/{COMMIT}/"
        return self.files.get(path.removeprefix(start)) if path.startswith(start) else None

    def _entry(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        entry = {"rfilename": name, "size": self.sizes.get(name, len(data))}
        large = {"lfs": {"sha256": hashlib.sha256(data).hexdigest()}} if name.endswith(".safetensors") else {}
        return {**entry, **large}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[FakeHub]:
    """A hub on this machine, which the site may fetch from."""
    fake = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = fake.answer(self.path)
            self.send_response(fake.status if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SECRET_KEY", "not for the hub")
    settings.HUB_DOWNLOADS = True
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()
