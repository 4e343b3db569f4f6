"""Those outside: programs that submit and readers of pages, over real connections, while servers come and go."""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from leaderboard.models import User
from submissions.accounts.access import make_token
from tests.faults.site import Site
from tests.submissions.collections import run_text

#: What an answer to a repeated upload says when the first one had been accepted.
KNOWN = ("already_submitted", "system_name_taken")


@dataclass(frozen=True)
class Answer:
    """What came back: a whole answer, or none (status 0: nothing, -1: a part)."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        """The body, of an answer of the API."""
        return json.loads(self.body)

    @property
    def is_whole(self) -> bool:
        """Whether no part is missing: its length is right, and a page or an object ends as it should."""
        kind = self.headers.get("Content-Type", "")
        if self.status == -1:
            return False
        if self.status in (200, 503) and kind.startswith("text/html"):
            return self.body.rstrip().endswith(b"</html>")
        if kind.startswith("application/json") and self.body:
            try:
                json.loads(self.body)
            except ValueError:
                return False
        return True


def ask(address: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """GET, or POST where there is a body. A connection that is refused, or cut before any answer, has status 0."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        response = connection.getresponse()
    except (ConnectionError, http.client.RemoteDisconnected):
        connection.close()
        return Answer(0, seconds=time.monotonic() - began)
    try:
        content = response.read()
    except (http.client.HTTPException, OSError):
        return Answer(-1, seconds=time.monotonic() - began)
    finally:
        connection.close()
    return Answer(response.status, content, dict(response.getheaders()), time.monotonic() - began)


def form(fields: Mapping[str, str], name: str, content: bytes, field_name: str = "file") -> tuple[bytes, str]:
    """A multipart body with one file, and its content type."""
    mark = uuid.uuid4().hex
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    ]
    parts.append(f'--{mark}\r\nContent-Disposition: form-data; name="{field_name}"; filename="{name}"\r\n\r\n')
    return "".join(parts).encode() + content + f"\r\n--{mark}--\r\n".encode(), f"multipart/form-data; boundary={mark}"


def submit(address: str, token: str, system: str, dataset: str, content: bytes, name: str = "run.txt") -> Answer:
    """POST /api/v1/submissions/ with one file."""
    fields = {"kind": "run", "system": system, "architecture": "dense", "dataset": dataset}
    body, kind = form(fields, name, content)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    return ask(address, "/api/v1/submissions/", body=body, headers=headers)


class Submitter(threading.Thread):
    """Somebody's program: sends one run after the other, each again until it is told that it is there."""

    def __init__(self, address: str, person: User, dataset: str, number: int) -> None:
        super().__init__(daemon=True, name=f"submitter-{number}")
        self.address, self.dataset, self.number = address, dataset, number
        self.token = make_token(person, "test")
        self.answers: list[Answer] = []
        #: The system of each run that was acknowledged.
        self.acknowledged: list[str] = []
        self.unexpected: list[str] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Send until told to end; what was begun is sent to its end."""
        count = 0
        while not self.ended.is_set():
            count += 1
            system = f"System {self.number}-{count}"
            text = run_text(depth=15 + count % 50, skip=count % 3, tag=f"{self.number}x{count}")
            self._send(system, text.encode())

    def _send(self, system: str, content: bytes) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            answer = submit(self.address, self.token, system, self.dataset, content)
            self.answers.append(answer)
            if answer.status == 201 or (answer.status == 400 and answer.json["code"] in KNOWN):
                self.acknowledged.append(system)
                return
            if answer.status not in (0, 503) or not answer.is_whole:
                self.unexpected.append(f"{answer.status}: {answer.body[:300]!r}")
                return
            time.sleep(0.05)


class Reader(threading.Thread):
    """Somebody who reads the same pages over and over."""

    def __init__(self, address: str, paths: Sequence[str], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(daemon=True, name="reader")
        self.address, self.paths, self.headers = address, paths, headers
        self.seen: Counter[int] = Counter()
        self.slowest = 0.0
        self.unexpected: list[str] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Read until told to end."""
        while not self.ended.is_set():
            for path in self.paths:
                answer = ask(self.address, path, headers=self.headers)
                self.seen[answer.status] += 1
                self.slowest = max(self.slowest, answer.seconds)
                if answer.status not in (200, 503) or not answer.is_whole:
                    self.unexpected.append(f"{path}: {answer.status} {answer.body[-200:]!r}")


def meanwhile(threads: Sequence[Submitter | Reader], act: Callable[[], None]) -> None:
    """Do something while they work; they have ended afterwards."""
    for thread in threads:
        thread.start()
    try:
        act()
    finally:
        for thread in threads:
            thread.ended.set()
        for thread in threads:
            thread.join(150)


def serve(site: Site) -> None:
    """Have the site's web server run: the one of an earlier test goes on."""
    if "web" not in site.services:
        site.start_web()
