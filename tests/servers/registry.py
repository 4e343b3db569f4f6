"""A registry of container images on this machine, over HTTPS, and a second host that stores its layers."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = "someone/small-image"
TOKEN = "a-token-for-everyone"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class FakeRegistry:
    """A registry with one repository. `asked` are the paths that were asked for, with their headers.

    `sent` replaces what it sends for a digest, `breaks` the bytes after which it closes a connection (once for each
    entry), and `lengths` the size that it announces. `endless` digests never end. With `asks_token`, it answers 401
    without a token; `redirects` sends layers from the other host. Layers wait while `gate` is not set.
    """

    def __init__(self) -> None:
        self.manifests: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.sent: dict[str, bytes] = {}
        self.breaks: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}
        self.endless: set[str] = set()
        self.asks_token = self.redirects = self.is_private = False
        self.ignores_ranges = False
        self.gate = threading.Event()
        self.gate.set()
        self.location = ""
        self.status = 200
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.address = self.other_address = ""

    def add(self, config: bytes, layers: Sequence[bytes], /, **changes: Any) -> str:
        """Add an image and return the digest of its manifest. `changes` replaces fields of the manifest."""
        for content in (config, *layers):
            self.blobs[digest_of(content)] = content
        manifest = {"schemaVersion": 2, "config": entry(config), "layers": list(map(entry, layers)), **changes}
        return self.add_manifest(manifest)

    def add_index(self, digests: Mapping[str, str]) -> str:
        """Add an index of manifests by platform, such as linux/amd64, and return its digest."""
        rows = []
        for platform, digest in digests.items():
            system, _, architecture = platform.partition("/")
            rows.append({"digest": digest, "size": 1, "platform": {"os": system, "architecture": architecture}})
        return self.add_manifest({"schemaVersion": 2, "manifests": rows})

    def add_manifest(self, manifest: Mapping[str, Any]) -> str:
        content = json.dumps(manifest).encode()
        self.manifests[digest_of(content)] = content
        return digest_of(content)

    def blobs_asked(self) -> list[tuple[str, str, dict[str, str]]]:
        return [row for row in self.asked if "/blobs/" in row[1]]


def entry(content: bytes) -> dict[str, Any]:
    return {"digest": digest_of(content), "size": len(content)}


def _handler(registry: FakeRegistry, host: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.asked.append((host, self.path, dict(self.headers)))
            if self.path.startswith("/token"):
                self.answer(403 if registry.is_private else 200, json.dumps({"token": TOKEN}).encode())
            elif host == "registry" and registry.asks_token and self.headers["Authorization"] != f"Bearer {TOKEN}":
                challenge = f'Bearer realm="{registry.other_address}/token",service="here",scope="repository:x:pull"'
                self.answer(401, b"{}", **{"WWW-Authenticate": challenge})
            elif registry.status != 200:
                self.answer(registry.status, b"{}")
            elif "/manifests/" in self.path:
                digest = self.path.rpartition("/")[2]
                content = registry.sent.get(digest, registry.manifests.get(digest))
                self.answer(404 if content is None else 200, content or b"{}")
            elif host == "registry" and (registry.redirects or registry.location):
                location = registry.location or f"{registry.other_address}{self.path}"
                self.answer(307, b"", Location=location)
            else:
                self.send_blob(self.path.rpartition("/")[2])

        def send_blob(self, digest: str) -> None:
            content = registry.sent.get(digest, registry.blobs.get(digest))
            if content is None:
                return self.answer(404, b"{}")
            registry.gate.wait(60)
            first = 0
            if (wanted := self.headers["Range"]) and not registry.ignores_ranges:
                first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if first else 200)
            if digest in registry.endless:
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(b"x" * 65536)
                except OSError:
                    self.close_connection = True
                    return None
            self.send_header("Content-Length", str(registry.lengths.get(digest, len(content) - first)))
            self.end_headers()
            if breaks := registry.breaks.get(digest):
                self.wfile.write(content[first : first + breaks.pop(0)])
                self.wfile.flush()
                self.close_connection = True
            else:
                self.wfile.write(content[first:])
            return None

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def serving(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """Serve a registry at `address`, and its layers at `other_address`, while the block lasts."""
    registry = FakeRegistry()
    with ExitStack() as stack:
        ports = []
        for host in ("registry", "layers"):
            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry, host))
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        registry.address = f"localhost:{ports[0]}"
        registry.other_address = f"https://localhost:{ports[1]}"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield registry
