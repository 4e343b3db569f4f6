"""Stored files: runs are stored once, and private content has no path in processes that may not read it."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from leaderboard.core.storage.runs import open_run, run_path, store_run
from leaderboard.core.storage.store import Area, path_of

NAME = "0" * 64


@pytest.mark.parametrize("area", [Area.QRELS, Area.CURATION])
def test_private_content_is_refused_where_private_storage_is_off(area: Area, settings: Any) -> None:
    assert path_of(area, NAME).name == NAME
    settings.PRIVATE_STORAGE = False
    with pytest.raises(PermissionError, match=f"no access to {area.value}"):
        path_of(area, NAME)
    assert path_of(Area.RUNS, NAME).name == NAME


def test_a_stored_run_is_kept_once_under_the_checksum_of_its_text(tmp_path: Path) -> None:
    text = b"q1 Q0 d1 1 2.5 tag\n" * 1000
    plain, compressed = tmp_path / "run.txt", tmp_path / "run.gz"
    plain.write_bytes(text)
    compressed.write_bytes(gzip.compress(text))
    assert store_run(plain) == store_run(compressed) == (hashlib.sha256(text).hexdigest(), len(text))
    marked = tmp_path / "marked.txt"
    marked.write_bytes(b"\xef\xbb\xbf" + text)
    assert store_run(marked) == store_run(plain)
    stored = run_path(store_run(plain).sha256)
    assert stored.stat().st_size < len(text) / 10
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]
    with open_run(stored.name) as stream:
        assert stream.read() == text
