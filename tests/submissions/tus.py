"""A sender of uploads in pieces, for their tests."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client

from leaderboard.models import User
from submissions.uploads import storage
from tests.submissions.clients import Api

UPLOADS = "/api/v1/uploads/"
PIECE = "application/offset+octet-stream"


def encoded(**values: str) -> str:
    """Upload-Metadata."""
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in values.items())


class Tus:
    """A sender with a token who knows the protocol."""

    def __init__(self, user: User) -> None:
        self.headers = {**Api(user).headers, "Tus-Resumable": "1.0.0"}
        self.client = Client()

    def ask(self, method: str, address: str, data: bytes = b"", content_type: str = "", **headers: str) -> Any:
        """A request; `headers` with underscores for hyphens, None of ours where they are empty."""
        named = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        sent = {name: value for name, value in named.items() if value}
        kind = content_type or PIECE
        return self.client.generic(method, address, data, kind, headers=sent, CONTENT_TYPE=kind)

    def begin(self, length: int, **metadata: str) -> str:
        """The address of a new upload."""
        told = {"Upload_Metadata": encoded(**metadata)} if metadata else {}
        answer = self.ask("POST", UPLOADS, Upload_Length=str(length), **told)
        assert answer.status_code == 201, answer.content
        return str(answer["Location"]).removeprefix("http://testserver")

    def patch(self, address: str, data: bytes, offset: int, **headers: str) -> Any:
        """The next piece."""
        return self.ask("PATCH", address, data, Upload_Offset=str(offset), **headers)

    def offset(self, address: str) -> int:
        """How far it is."""
        return int(self.ask("HEAD", address)["Upload-Offset"])


@pytest.fixture(autouse=True)
def no_pieces() -> None:
    """Files of tests before: their rows were rolled back."""
    for path in storage.folder().glob("*"):
        path.unlink()


@pytest.fixture
def tus(alice: User) -> Tus:
    """Alice, who knows the protocol."""
    return Tus(alice)


def content_of(address: str) -> bytes:
    """What lies on disk."""
    return storage.path_of(address.split("/")[-2]).read_bytes()
