"""Users and views that may store uploaded files. No other file is written to the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import get_resolver

from submissions.uploads.handler import TAKE_FILES, LimitedUploadHandler
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the chunks that reach the disk."""
    chunks: list[int] = []
    original = LimitedUploadHandler.receive_data_chunk

    def receive(self: LimitedUploadHandler, raw_data: bytes, start: int) -> None:
        chunks.append(len(raw_data))
        original(self, raw_data, start)

    monkeypatch.setattr(LimitedUploadHandler, "receive_data_chunk", receive)
    return chunks


def send(client: Client, address: str) -> int:
    """The status that a form with a file is answered with."""
    return client.post(address, {"file": SimpleUploadedFile("run.txt", b"1 Q0 d 1 1 t\n" * 1000)}).status_code


@pytest.mark.parametrize(
    "address",
    ["/account/login/", "/submit/model/", "/datasets/", "/api/v1/submissions/", "/api/v1/uploads/", "/admin/login/"],
)
def test_a_stranger_writes_nothing(address: str, written: list[int]) -> None:
    assert send(Client(enforce_csrf_checks=True), address) in (401, 403, 302)
    assert written == []


def test_a_form_that_takes_no_files_gets_none(written: list[int]) -> None:
    client = Client()
    client.force_login(make_user())
    send(client, "/account/profile/")
    assert written == []
    assert not list(Path(settings.FILE_UPLOAD_TEMP_DIR).glob("*.upload*"))


def test_the_submit_page_takes_files(written: list[int]) -> None:
    client = Client()
    client.force_login(make_user())
    assert send(client, "/submit/") < 500
    assert sum(written) == 13_000


def test_every_view_that_takes_files_exists() -> None:
    names = {name for name in get_resolver().reverse_dict if isinstance(name, str)}
    assert {name for name in TAKE_FILES if ":" not in name} <= names
