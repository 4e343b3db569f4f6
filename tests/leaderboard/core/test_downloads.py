"""Files are handed out as attachments: by this process or by the proxy before it; judgements by this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.core.http.downloads import as_attachment, send_private, send_stored
from leaderboard.core.storage.store import Area, put
from leaderboard.datasets.files import offer_file, store_file
from leaderboard.models import Dataset, DatasetFile
from tests.submissions.collections import make_collection

CONTENT = b"<script>alert(1)</script>"


@pytest.fixture
def offered(db: None, tmp_path: Path) -> str:
    """The address of a file that a dataset offers."""
    dataset: Dataset = make_collection(tmp_path)
    path = tmp_path / "queries"
    path.write_bytes(CONTENT)
    assert dataset.current_version is not None
    offer_file(dataset.current_version, DatasetFile.Kind.QUERIES, store_file(path), "queries.jsonl")
    return "/datasets/demo/files/queries.jsonl"


@pytest.mark.parametrize("by_proxy", [False, True])
def test_a_file_comes_as_an_attachment_by_either_way(offered: str, settings: Any, by_proxy: bool) -> None:
    settings.ACCEL_REDIRECT = by_proxy
    answer = Client().get(offered)
    assert answer.status_code == 200
    assert answer.headers["Content-Disposition"] == 'attachment; filename="queries.jsonl"'
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    if by_proxy:
        place = answer.headers["X-Accel-Redirect"]
        assert place.startswith("/protected/store/files/")
        assert (Path(settings.VAR) / place.removeprefix("/protected/")).read_bytes() == CONTENT
        assert answer.content == b""
    else:
        assert "X-Accel-Redirect" not in answer.headers
        assert b"".join(answer.streaming_content) == CONTENT  # type: ignore[attr-defined]
    known = Client().get(offered, headers={"If-None-Match": answer.headers["ETag"]})
    assert known.status_code == 304
    assert "X-Accel-Redirect" not in known.headers


@pytest.mark.django_db
def test_nothing_private_is_named_to_the_proxy(tmp_path: Path, settings: Any) -> None:
    settings.ACCEL_REDIRECT = True
    path = tmp_path / "qrels"
    path.write_bytes(b"q1\td1\t1\n")
    sha256 = put(Area.QRELS, path)
    with pytest.raises(ValueError, match="send_private"):
        send_stored(Area.QRELS, sha256, "qrels.tsv", "text/plain")
    answer = send_private(path, "qrels.tsv", "text/plain")
    assert "X-Accel-Redirect" not in answer.headers
    assert answer.headers["Cache-Control"] == "private, no-store"
    answer.close()


def test_a_file_that_is_gone_is_a_fault_and_no_empty_answer(settings: Any) -> None:
    for settings.ACCEL_REDIRECT in (False, True):
        with pytest.raises(FileNotFoundError):
            send_stored(Area.FILES, "0" * 64, "name", "text/plain")


@pytest.mark.parametrize("name", ['a"b.txt', "a\r\nSet-Cookie: x=1.txt", "ünïcode.txt", "../../etc/passwd"])
def test_a_name_is_quoted_and_starts_no_header(name: str) -> None:
    from django.http import BadHeaderError, HttpResponse

    try:
        header = as_attachment(HttpResponse(), name).headers["Content-Disposition"]
    except BadHeaderError:
        return
    assert header.startswith("attachment")
    assert "\r" not in header
    assert "\n" not in header
