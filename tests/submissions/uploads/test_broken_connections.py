"""Uploads in pieces that break off: connections, slow senders, killed writers, full disks."""

from __future__ import annotations

import hashlib
import io
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.test import RequestFactory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from leaderboard.core.http import slow_requests
from leaderboard.models import User
from submissions.api import uploads as protocol
from submissions.core.errors import Refused
from submissions.models import Upload
from submissions.uploads import service, storage
from tests.factories import make_user
from tests.submissions.tus import PIECE, UPLOADS, Tus, content_of
from tests.submissions.tus import no_pieces as no_pieces
from tests.submissions.tus import tus as tus

pytestmark = pytest.mark.django_db


class Breaking(io.RawIOBase):
    """A request's body whose connection breaks after some bytes."""

    def __init__(self, content: bytes) -> None:
        self.rest = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        """The next bytes; raises OSError at the end of those that came."""
        if block := self.rest.read(min(size, 7)):
            return block
        raise ConnectionResetError


def test_what_came_before_the_connection_broke_is_kept(tus: Tus) -> None:
    address = tus.begin(100)
    broken = {"wsgi.input": Breaking(b"x" * 40), "CONTENT_LENGTH": "100"}
    headers = {**tus.headers, "Upload-Offset": "0"}
    tus.client.generic("PATCH", address, b"", PIECE, headers=headers, CONTENT_TYPE=PIECE, **broken)
    assert tus.offset(address) == 40
    assert tus.patch(address, b"y" * 60, 40)["Upload-Offset"] == "100"
    assert content_of(address) == b"x" * 40 + b"y" * 60


def test_a_sender_that_says_nothing_is_taken_to_be_gone(rf: RequestFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_requests, "SILENCE", 0.05)
    monkeypatch.setattr(slow_requests, "LOOK", 0.02)
    sender, ours = socket.socketpair()
    with sender, ours, ours.makefile("rb") as stream:
        sender.sendall(b"x")
        told: dict[str, Any] = {"wsgi.input": stream, "gunicorn.socket": ours, "CONTENT_LENGTH": "100"}
        slow_requests.watch_body(told)
        assert list(protocol.read_blocks(rf.generic("PATCH", UPLOADS, b"", PIECE, **told))) == []


@pytest.mark.parametrize(
    ("rate", "drops", "ends"), [(2**20, 1000, True), (0, 20, False)], ids=["too slow", "quick enough"]
)
def test_a_sender_that_drips_is_ended(
    rf: RequestFactory, monkeypatch: pytest.MonkeyPatch, rate: int, drops: int, ends: bool
) -> None:
    for name, value in {"GRACE": 0.1, "MIN_RATE": rate, "LOOK": 0.05, "MAX_SECONDS": 60.0}.items():
        monkeypatch.setattr(slow_requests, name, value)
    sender, ours = socket.socketpair()
    with sender, ours, ours.makefile("rb") as stream:
        length = str(5 * drops)
        told: dict[str, Any] = {"wsgi.input": stream, "gunicorn.socket": ours, "CONTENT_LENGTH": length}
        slow_requests.watch_body(told)

        def drip() -> None:
            with suppress(OSError):  # whoever is ended is cut off
                for _ in range(drops):
                    sender.sendall(b"x" * 5)
                    time.sleep(0.03)

        dripping = Thread(target=drip)
        dripping.start()
        came = b"".join(protocol.read_blocks(rf.generic("PATCH", UPLOADS, b"", PIECE, **told)))
        dripping.join()
        assert (len(came) < 5 * drops) is ends


def test_what_a_killed_writer_left_beyond_the_count_is_cut_off(tus: Tus) -> None:
    address = tus.begin(6)
    tus.patch(address, b"abc", 0)
    with storage.path_of(Upload.objects.get().pk).open("ab") as file:
        file.write(b"\0\0\0")
    assert tus.offset(address) == 3
    assert tus.patch(address, b"def", 3)["Upload-Offset"] == "6"
    assert content_of(address) == b"abcdef"


@pytest.mark.parametrize("asked", [True, False], ids=["after HEAD", "at once"])
def test_what_came_whole_before_a_kill_can_be_submitted(
    alice: User, tus: Tus, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    address = tus.begin(10)
    whole = service._mark_complete
    monkeypatch.setattr(service, "_mark_complete", killed)
    with pytest.raises(KeyboardInterrupt):
        tus.patch(address, b"0123456789", 0)
    monkeypatch.setattr(service, "_mark_complete", whole)
    assert Upload.objects.get().completed_at is None
    if asked:
        assert tus.offset(address) == 10
        assert Upload.objects.get().completed_at is not None
    found = service.completed_upload(alice, address.split("/")[-2], "run")
    assert found.sha256 == hashlib.sha256(b"0123456789").hexdigest()


def test_a_full_disk_keeps_what_was_counted(tus: Tus, monkeypatch: pytest.MonkeyPatch) -> None:
    address = tus.begin(100)
    tus.patch(address, b"a" * 10, 0)

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "disk_errors", full)
    with pytest.raises(OSError, match="No space"), storage.lock_file(Upload.objects.get().pk) as file:
        storage.append_blocks(file, 10, 100, [b"b"], lambda safe: None)
    monkeypatch.undo()
    assert tus.offset(address) == 10
    assert content_of(address) == b"a" * 10


class Offsets(TestCase):
    """However a file comes, the count, the file and the checksum are those of what was sent."""

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        content=st.binary(max_size=300),
        moves=st.lists(
            st.tuples(st.sampled_from(["good", "wrong", "broken", "killed"]), st.integers(0, 120)), max_size=8
        ),
    )
    def test_any_order_of_events(self, content: bytes, moves: list[tuple[str, int]]) -> None:
        """Good pieces, wrong offsets, broken connections and killed writers, in any order."""
        owner = make_user()
        upload = service.begin_upload(owner, length=len(content), kind="run")
        at = 0
        for move, size in [*moves, ("good", len(content))]:
            piece = content[at : at + size]
            if move == "wrong":
                with pytest.raises(Refused):
                    service.receive_bytes(upload, at + 1 + size, iter([piece]))
            elif move == "killed":
                with pytest.raises(KeyboardInterrupt), storage.lock_file(upload.pk) as file:
                    storage.append_blocks(file, at, len(content), _killed(piece), lambda safe: None)
            else:
                service.receive_bytes(upload, at, iter([piece[:3], piece[3:]]))
                at += len(piece)
            found = Upload.objects.get(pk=upload.pk)
            assert found.offset == at <= storage.path_of(upload.pk).stat().st_size
            upload = found
        assert storage.path_of(upload.pk).read_bytes() == content
        assert Upload.objects.get(pk=upload.pk).sha256 == hashlib.sha256(content).hexdigest()


def _killed(piece: bytes) -> Iterator[bytes]:
    yield piece
    raise KeyboardInterrupt
