"""Static files are compressed under the names that pages link, and only under those."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import brotli
from django.core.files.base import ContentFile

from leaderboard.core.staticfiles import StaticFilesStorage


def test_only_files_with_hashed_names_are_compressed(tmp_path: Path) -> None:
    storage = StaticFilesStorage(location=tmp_path, base_url="/static/")
    words = random.Random(1).choices(["left", "right", "up", "down"], k=20_000)
    texts = {"small.css": b"p { color: red }\n" * 50, "large.js": " ".join(words).encode()}
    for name, text in texts.items():
        storage.save(name, ContentFile(text))
    outdated = tmp_path / "small.css.br"
    outdated.write_bytes(brotli.compress(b"p { color: blue }"))  # Releases that compressed every name left such files.
    list(storage.post_process({name: (storage, name) for name in texts}))
    assert not outdated.exists()
    for name, text in texts.items():
        linked = tmp_path / storage.stored_name(name)
        assert linked.name != name
        assert (tmp_path / name).read_bytes() == linked.read_bytes() == text
        assert brotli.decompress(linked.with_name(f"{linked.name}.br").read_bytes()) == text
        assert gzip.decompress(linked.with_name(f"{linked.name}.gz").read_bytes()) == text
    assert len([*tmp_path.glob("*.br"), *tmp_path.glob("*.gz")]) == 2 * len(texts)
