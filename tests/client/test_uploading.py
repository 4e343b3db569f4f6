"""Uploads that others began, that the site still reads, or that it has no time for."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from runboard import Client, Refused, SiteUnavailable, uploading
from runboard.uploading import upload
from tests.client.loopback import Answer, Request, playing

CONTENT = b"weights" * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHERS = hashlib.sha256(b"others").hexdigest()


class Uploads:
    """A site's uploads: `rows` by id, with what was announced of each; the next statuses of PATCH."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, str] = {}
        self.statuses: list[int] = []
        self.wait = "0"
        self.kept: int | None = None  # the offset after any PATCH, where it is not what was sent

    def add(self, name: str, offset: int, sha256: str = "", announced: str = "") -> None:
        self.rows[name] = {
            "id": name, "kind": "model", "file_name": "model.zip", "length": len(CONTENT), "offset": offset,
            "complete": bool(sha256), "sha256": sha256, "created": "", "expires": "", "url": "",
        }  # fmt: skip
        if announced:
            self.metadata[name] = f"kind bW9kZWw=,sha256 {base64.b64encode(announced.encode()).decode()}"

    def answer(self, asked: Request) -> Answer:
        name = asked.path.removeprefix("/api/v1/uploads/").strip("/")
        if asked.method == "POST":
            self.add("new", 0)
            self.metadata["new"] = asked.headers["Upload-Metadata"]
            return Answer(self.rows["new"], 201)
        if not name:
            return Answer(list(self.rows.values()))
        row = self.rows[name]
        if asked.method == "PATCH":
            if self.statuses:
                return Answer({"detail": "Too many requests."}, self.statuses.pop(), {"Retry-After": self.wait})
            row["offset"] = row["offset"] + len(asked.body) if self.kept is None else self.kept
            return Answer(b"", 204)
        if asked.method == "GET" and row["offset"] == row["length"] and not row["complete"]:
            before = dict(row)
            row.update(complete=True, sha256=SHA256)  # read by the next time that somebody asks
            return Answer(before)
        if asked.method == "DELETE":
            del self.rows[name]
        return Answer(row, headers={"Upload-Metadata": self.metadata.get(name, "")})


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> Uploads:
    monkeypatch.setattr(uploading, "WAITS", (0, 0))
    monkeypatch.setattr(uploading, "VERIFICATION_PAUSE", 0)
    return Uploads()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.zip"
    path.write_bytes(CONTENT)
    return path


def sent(uploads: Uploads, model: Path) -> tuple[str, list[str]]:
    """The upload's id, and the methods by which the site was changed."""
    with playing(uploads.answer) as site:
        found = upload(Client(site.address, "token"), model, "model", lambda *_: None)
    return found, [asked.method for asked in site.asked if asked.method not in ("GET", "HEAD")]


def test_an_upload_that_the_site_still_reads_is_waited_for(uploads: Uploads, model: Path) -> None:
    uploads.add("abc", len(CONTENT), announced=SHA256)
    assert sent(uploads, model) == ("abc", [])


def test_uploads_of_other_files_are_left_alone(uploads: Uploads, model: Path) -> None:
    uploads.add("whole", len(CONTENT), OTHERS)
    uploads.add("begun", 100, announced=OTHERS)
    uploads.add("unknown", 100)
    assert sent(uploads, model) == ("new", ["POST", "PATCH"])
    assert set(uploads.rows) == {"whole", "begun", "unknown", "new"}


def test_ones_own_goes_on_also_under_another_name(uploads: Uploads, model: Path) -> None:
    uploads.add("abc", 100, announced=SHA256)
    assert sent(uploads, model.rename(model.with_name("other.zip"))) == ("abc", ["PATCH"])


def test_a_busy_site_is_asked_again(uploads: Uploads, model: Path) -> None:
    uploads.statuses = [429, 503]
    assert sent(uploads, model) == ("new", ["POST", "PATCH", "PATCH", "PATCH"])


@pytest.mark.parametrize(("status", "error"), [(429, Refused), (503, SiteUnavailable)])
def test_a_site_that_is_busy_for_hours_is_said(
    status: int, error: type[Exception], uploads: Uploads, model: Path
) -> None:
    uploads.statuses, uploads.wait = [status], "7200"
    with pytest.raises(error, match="Try again in 2 h"):
        sent(uploads, model)


@pytest.mark.parametrize("kept", [0, -5, 10**6])
def test_a_site_that_keeps_nothing_of_what_is_sent_is_not_sent_it_for_ever(
    kept: int, uploads: Uploads, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uploads.kept = kept
    with pytest.raises(SiteUnavailable, match=r"reports the same offset as before|bytes\."):
        sent(uploads, model)
    assert "Trying again" in capsys.readouterr().err
