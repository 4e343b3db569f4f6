"""A server that tells what the proxy sent it, in place of curation: `python echo.py PORT`."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers it got; `?accel=PATH` asks the proxy to send a file instead."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        body = json.dumps({"headers": dict(self.headers), "port": self.client_address[1]}).encode()
        self.send_response(200)
        for path in parse_qs(urlsplit(self.path).query).get("accel", []):
            self.send_header("X-Accel-Redirect", path)
            self.send_header("Content-Disposition", 'attachment; filename="run.txt"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
