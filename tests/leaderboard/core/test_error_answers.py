"""What is answered when something of ours fails: always an id, never a bare error, and no question to the database."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError, connections
from django.test import Client
from psycopg.errors import DiskFull as ServerDiskFull

from leaderboard.core.checks import check_durability
from leaderboard.core.http import errors
from leaderboard.core.storage import disk
from leaderboard.core.storage.store import PARTIAL, Area, path_of, put
from leaderboard.views import site as files

pytestmark = pytest.mark.django_db


@pytest.fixture
def calm(client: Client) -> Client:
    """A visitor who is shown faults, as a browser is."""
    client.raise_request_exception = False
    return client


def raising(error: BaseException) -> Any:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


def from_server(error: Exception) -> OperationalError:
    wrapped = OperationalError(str(error))
    wrapped.__cause__ = error
    return wrapped


AWAY = [OperationalError("server closed the connection"), InterfaceError("connection is closed")]
FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    disk.DiskFull(Path("somewhere")),
    from_server(ServerDiskFull("could not extend file")),
]


@pytest.mark.parametrize("error", [*AWAY, *FULL, RuntimeError("x")], ids=repr)
def test_a_view_that_fails_has_a_page_with_an_id(
    error: Exception, calm: Client, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    kind = errors.DISK_FULL if error in FULL else errors.DATABASE_AWAY if error in AWAY else errors.BROKEN
    monkeypatch.setattr(files, "static", raising(error))
    with django_assert_num_queries(0):
        answer = calm.get("/favicon.ico")
    assert answer.status_code == kind.status
    assert answer.headers.get("Retry-After") == (str(kind.wait) if kind.wait else None)
    assert answer.headers["Cache-Control"] == "no-store"
    page = answer.content.decode()
    assert kind.heading in page
    assert "Fault <code>" in page
    assert page.rstrip().endswith("</html>")


@pytest.mark.parametrize("path", ["/submissions/", "/api/v1/submissions/"])
def test_sessions_that_cannot_be_read_are_no_bare_error(
    path: str, calm: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What middleware raises comes to no view: it is answered all the same, in the kind of the address."""
    calm.cookies["sessionid"] = "x" * 32
    monkeypatch.setattr(SessionStore, "load", raising(AWAY[0]))
    answer = calm.get(path)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
    if path.startswith("/api/"):
        assert answer.json()["code"] == "unavailable"
        assert answer.json()["problems"] == []
        assert answer.json()["fault"] in answer.json()["detail"]
    else:
        assert "We are briefly unavailable" in answer.content.decode()


def test_a_page_of_faults_that_fails_is_a_line_of_text(calm: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "static", raising(RuntimeError("x")))
    monkeypatch.setattr(errors, "render_to_string", raising(ValueError("no manifest")))
    answer = calm.get("/favicon.ico")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")
    assert "our fault" in answer.content.decode()


def test_a_disk_that_fills_leaves_no_part_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(64))
    folder = path_of(Area.RUNS, "ab" * 32).parent
    monkeypatch.setattr("shutil.copyfileobj", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(disk.DiskFull) as caught:
        put(Area.RUNS, source, "ab" * 32)
    assert caught.value.filename == str(folder)
    assert not list(folder.glob(f"{PARTIAL}*"))
    assert not (folder / ("ab" * 32)).exists()


@pytest.mark.database
def test_a_server_that_forgets_what_it_has_committed_is_warned_of() -> None:
    connection = connections["default"]
    found = {problem.msg.split(" with ")[1].split(":")[0] for problem in check_durability(None, ["default"])}
    if connection.vendor != "postgresql":
        assert found == set()
        return
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    try:
        more = {problem.msg.split(" with ")[1].split(":")[0] for problem in check_durability(None, ["default"])}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET synchronous_commit")
    assert "synchronous_commit=off" not in found
    assert "synchronous_commit=off" in more
