"""Compressed files: what is read, what is refused, and that nothing expands without bounds."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from evaluation.archives.compression import MIB, FileLimits, open_blocks, open_expanded, open_lines
from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import Qrels
from evaluation.runs.score import ScoringTarget, check_run, score_run

RUN = "".join(f"{query} Q0 d{rank} {rank} {-rank} tag\n" for query in range(40) for rank in range(1, 200)).encode()
COMPRESS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": zstandard.compress,
    "zstd without size": lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
}


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "run"
    path.write_bytes(content)
    return path


def refused(path: Path, limits: FileLimits | None = None) -> tuple[str, str]:
    """The code and the message of the refusal."""
    with pytest.raises(InvalidContent) as raised:
        for _ in open_blocks(path, limits):
            pass
    (problem,) = raised.value.report.problems
    return problem.code, problem.message


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_compressed_run_scores_as_the_plain_one(tmp_path: Path, kind: str) -> None:
    target = ScoringTarget(Qrels.from_dict({"7": {"d3": 1}}), [str(query) for query in range(40)])
    path = written(tmp_path, COMPRESS[kind](RUN))
    scored = score_run(path, target, ["RR"])
    assert scored.means == {"RR": 1 / 3}
    assert scored.report.statistics.expanded_bytes == len(RUN)
    assert b"".join(open_blocks(path)) == RUN
    with open_expanded(path, FileLimits()) as file:
        assert file.kind == kind.split()[0]


@pytest.mark.parametrize("kind", COMPRESS)
def test_members_one_after_the_other_are_one_file(tmp_path: Path, kind: str) -> None:
    compress = COMPRESS[kind]
    assert b"".join(open_blocks(written(tmp_path, compress(RUN[:1000]) + compress(b"") + compress(RUN[1000:])))) == RUN


def test_the_kind_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.gz"
    path.write_bytes(RUN)
    assert b"".join(open_blocks(path)) == RUN


@pytest.mark.parametrize("kind", COMPRESS)
def test_damaged_and_unfinished_data_is_refused(tmp_path: Path, kind: str) -> None:
    data = COMPRESS[kind](RUN)
    assert refused(written(tmp_path, data[: len(data) // 2]))[0] == "compression"
    assert refused(written(tmp_path, data + b"more"))[0] == "compression"
    middle = len(data) // 2
    broken = data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 30]) + data[middle + 30 :]
    if kind == "zstd without size":  # has no checksum, so the damage may be lines that say so
        assert not check_run(written(tmp_path, broken), ScoringTarget()).valid
    else:
        assert refused(written(tmp_path, broken))[0] == "compression"


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(RUN))
    data[-8] ^= 1
    assert refused(written(tmp_path, bytes(data)))[0] == "compression"


CSV = "Write its rows as CSV with a line of column names"
PICKLE = "Write its content as JSON or CSV, and send that: `json.dump` for a dict, `to_csv` for a frame."
TEXT = "Send plain text, uncompressed or as .gz, .zst, or .bz2. Pack several files into a zip."


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize(("content", "name", "hint"), [
    (lzma.compress(RUN), "an xz file", TEXT), (b"PK\x03\x04" + RUN, "a zip file", TEXT),
    (b"PAR1\x15\x04\x15", "a Parquet file",
     f"{CSV}, and send that: `frame.to_csv('table.csv', index=False)` in pandas."),
    *((pickle.dumps(RUN, protocol), "a Python pickle", PICKLE) for protocol in range(2, 6)),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", "a Git LFS pointer",
     "It only names a file. Run `git lfs pull`, and send the file itself."),
    (b"%PDF-1.7\n", "a PDF file", "Send the data itself as text, not a document about it."),
    (b"SQLite format 3\0\x10\0", "an SQLite database", f"{CSV}, and send that."),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an Excel file", "Save the sheet as CSV, and send that."),
    (b"\x93NUMPY\1\0v\0{", "a NumPy file", f"{CSV}, with ids of queries and documents, and send that."),
])  # fmt: skip
def test_other_kinds_are_named_with_what_to_send(
    tmp_path: Path, content: bytes, name: str, hint: str, compress: Callable[[bytes], bytes]
) -> None:
    (problem,) = check_run(written(tmp_path, compress(content)), ScoringTarget()).problems
    assert problem.code == "compression"
    assert problem.message == f"this is {name}, which is not supported"
    assert problem.hint == hint


@pytest.mark.parametrize("query", ["PAR1", "version", "SQLite", "NUMPY"])
def test_query_ids_that_begin_as_other_kinds_do_are_read(tmp_path: Path, query: str) -> None:
    for separator in (" ", "\t"):
        line = separator.join((query, "Q0", "d1", "1", "2.5", "tag")).encode()
        report = check_run(written(tmp_path, line), ScoringTarget(query_ids=[query]))
        assert report.problems == ()
        assert report.statistics.known_queries == 1


def test_a_file_compressed_twice_is_refused(tmp_path: Path) -> None:
    assert "twice" in refused(written(tmp_path, gzip.compress(zstandard.compress(RUN))))[1]


def bomb(kind: str, megabytes: int) -> bytes:
    """Zeros, compressed without ever being held."""
    if kind == "gzip":
        compressor = zlib.compressobj(9, wbits=31)
    else:
        compressor = bz2.BZ2Compressor() if kind == "bz2" else zstandard.ZstdCompressor(level=3).compressobj()
    block = bytes(MIB)
    return b"".join(compressor.compress(block) for _ in range(megabytes)) + compressor.flush()


@pytest.mark.parametrize("kind", ["gzip", "bz2", "zstd"])
def test_a_bomb_is_stopped_early_and_in_little_memory(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, bomb(kind, 200))
    tracemalloc.start()
    try:
        code, message = refused(path)
        assert code == "expansion"
        assert "50 times" in message
        assert tracemalloc.get_traced_memory()[1] < 48 * MIB
    finally:
        tracemalloc.stop()
    (problem,) = check_run(path, ScoringTarget()).problems
    assert problem.code == "expansion"


def test_the_expanded_size_is_limited(tmp_path: Path) -> None:
    for compress in COMPRESS.values():
        path = written(tmp_path, compress(RUN))
        assert refused(path, FileLimits(max_expanded_bytes=len(RUN) - 1))[0] == "expansion"
        assert sum(map(len, open_blocks(path, FileLimits(max_expanded_bytes=len(RUN))))) == len(RUN)
    assert refused(written(tmp_path, RUN), FileLimits(max_stored_bytes=len(RUN) - 1))[0] == "size"


def test_a_frame_that_demands_a_huge_window_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert refused(written(tmp_path, compressor.compress(RUN) + compressor.flush()))[0] == "compression"


def test_lines_end_with_lf_or_crlf(tmp_path: Path) -> None:
    assert list(open_lines(written(tmp_path, b"a\r\nb\n\nc"))) == [b"a", b"b", b"", b"c"]
