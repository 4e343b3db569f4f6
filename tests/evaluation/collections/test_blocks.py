"""A corpus in blocks: a gzip file for everyone, and read from any document on without what comes before."""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.collections import beir
from evaluation.collections.beir import (
    corpus_fingerprint,
    count_documents,
    read_corpus,
    read_table,
    write_blocks,
)


def lines_of(count: int, words: int = 40) -> list[bytes]:
    """So many documents, a line each, of different lengths."""
    return [
        json.dumps({"_id": f"d{number}", "title": "", "text": f"word{number} " * (1 + number % words)}).encode() + b"\n"
        for number in range(count)
    ]


def in_blocks(folder: Path, lines: list[bytes]) -> Path:
    target = folder / "corpus.jsonl.gz"
    write_blocks(io.BytesIO(b"".join(lines)), target)
    return target


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines."""
    monkeypatch.setattr(beir, "BLOCK_BYTES", 500)


def test_it_is_a_gzip_file_like_any_other(tmp_path: Path, small_blocks: None) -> None:
    lines = lines_of(300)
    path = in_blocks(tmp_path, lines)
    assert gzip.decompress(path.read_bytes()) == b"".join(lines)
    assert subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout == b"".join(lines)
    assert len(list(read_corpus(path))) == 300


@pytest.mark.parametrize("first", [0, 1, 7, 150, 298, 299, 300, 5000])
def test_reading_from_any_document_on(tmp_path: Path, small_blocks: None, first: int) -> None:
    path = in_blocks(tmp_path, lines_of(300))
    assert [document.id for document in read_corpus(path, first_document=first)] == [f"d{n}" for n in range(first, 300)]
    assert count_documents(path) == 300


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["short", "long", "blank"]), max_size=60), st.integers(0, 70), st.booleans())
def test_any_lines_from_any_document_on(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], first: int, last_line_ends: bool
) -> None:
    """Blank lines are no documents; the last line may have no end; what is read is what a plain file gives."""
    made = {"short": lambda n: b'{"_id": "d%d", "text": ""}\n' % n, "long": lambda n: lines_of(n + 1)[-1] * 1}
    lines = [b" \n" if kind == "blank" else made[kind](number) for number, kind in enumerate(kinds)]
    text = b"".join(lines) if last_line_ends else b"".join(lines).removesuffix(b"\n")
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "plain.jsonl").write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beir, "BLOCK_BYTES", 200)
        write_blocks(io.BytesIO(text), folder / "blocks.gz")
    expected = list(read_corpus(folder / "plain.jsonl"))[first:]
    assert list(read_corpus(folder / "blocks.gz", first_document=first)) == expected
    assert list(read_corpus(folder / "plain.jsonl", first_document=first)) == expected
    assert count_documents(folder / "blocks.gz") == len(list(read_corpus(folder / "plain.jsonl")))


def test_what_comes_before_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten documents take as many bytes of the file in the middle, and at its end, as at its beginning."""
    monkeypatch.setattr(beir, "BLOCK_BYTES", 1 << 14)
    noise = random.Random(7)
    lines = [b'{"_id": "d%d", "text": "%s"}\n' % (n, noise.randbytes(150).hex().encode()) for n in range(40_000)]
    path = in_blocks(tmp_path, lines)
    size = path.stat().st_size
    for first in (0, 20_000, 39_000):
        before = _bytes_read()
        documents = list(islice(read_corpus(path, first_document=first), 10))
        assert documents[0].id == f"d{first}"
        # The reader's buffer is a mebibyte of the file.
        assert _bytes_read() - before < size / 3


def _bytes_read() -> int:
    """Bytes that this process has asked the system for so far."""
    rows = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(rows["rchar"])


def test_a_table_in_several_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra field has 65,535 bytes at most."""
    monkeypatch.setattr(beir, "BLOCK_BYTES", 1)
    path = in_blocks(tmp_path, lines_of(9000, words=2))
    table = read_table(path)
    assert table is not None
    assert len(table.rows) == 9001
    assert [document.id for document in islice(read_corpus(path, first_document=8000), 2)] == ["d8000", "d8001"]
    assert gzip.decompress(path.read_bytes()) == b"".join(lines_of(9000, words=2))


def test_other_files_have_no_table(tmp_path: Path, small_blocks: None) -> None:
    """A plain one, an ordinary gzip, and one that was cut or changed: they are read from their beginning."""
    lines = lines_of(100)
    good = in_blocks(tmp_path, lines).read_bytes()
    path = tmp_path / "other"
    for content in (
        b"",
        b"{}",
        b"".join(lines),
        gzip.compress(b"".join(lines)),
        good[:-1],
        good + b"\n",
        good[:-60],
    ):
        path.write_bytes(content)
        assert read_table(path) is None
    for place in range(len(good) - 400, len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 255]) + good[place + 1 :])
        assert read_table(path) is None
    path.write_bytes(gzip.compress(b"".join(lines)))
    assert next(read_corpus(path, first_document=42)).id == "d42"


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    first = in_blocks(tmp_path, lines_of(500)).read_bytes()
    assert in_blocks(tmp_path, lines_of(500)).read_bytes() == first


def test_a_fingerprint_tells_texts_and_orders_apart(tmp_path: Path, small_blocks: None) -> None:
    lines = lines_of(300)
    changed = [lines[0].replace(b"word0", b"wurd0"), *lines[1:]]
    texts = [lines, changed, lines[:-1], lines[::-1]]
    assert len({corpus_fingerprint(in_blocks(tmp_path, text)) for text in texts}) == len(texts)
    assert corpus_fingerprint(in_blocks(tmp_path, lines)) == corpus_fingerprint(in_blocks(tmp_path, lines))
    plain, copy = tmp_path / "corpus.jsonl", tmp_path / "copy.jsonl"
    plain.write_bytes(b"".join(lines))
    copy.write_bytes(b"".join(changed))
    assert corpus_fingerprint(plain) != corpus_fingerprint(copy)
