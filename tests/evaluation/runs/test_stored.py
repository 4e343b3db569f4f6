"""A run kept on disk: trec_eval's order, any arrangement of lines, compressed or not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evaluation.core.problems import InvalidRun
from evaluation.runs.stored import IndexedRun


def written(folder: Path, *lines: str) -> Path:
    path = folder / "run.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def stored(run: Path) -> IndexedRun:
    folder = run.parent / "stored"
    IndexedRun.write(run, folder)
    return IndexedRun(folder)


def test_order_is_trec_evals_whatever_the_ranks_say(tmp_path: Path) -> None:
    run = written(tmp_path, "q1 Q0 a 1 1.5 x", "q1 Q0 c 2 2.5 x", "q1 Q0 b 3 2.5 x", "q2 Q0 a 1 -1 x")
    ids, scores = stored(run).documents("q1")
    assert ids == ["c", "b", "a"]
    assert scores.tolist() == [2.5, 2.5, 1.5]


def test_lines_of_a_query_may_lie_apart(tmp_path: Path) -> None:
    lines = ["q1 Q0 a 1 3 x", "q2 Q0 a 1 1 x", "q1 Q0 é 2 4 x", "q1 Q0 c 3 2 x"]
    assert stored(written(tmp_path, *lines)).documents("q1")[0] == ["é", "a", "c"]


def test_a_document_named_twice_is_there_once(tmp_path: Path) -> None:
    run = written(tmp_path, "q Q0 a 1 3 x", "q Q0 a 2 1 x", "q Q0 b 3 2 x")
    assert stored(run).documents("q")[0] == ["a", "b"]


def test_headers_and_compression_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "run.txt.gz"
    path.write_bytes(gzip.compress(b"# tag: x\r\nq Q0 a 1 3 x\r\n\r\n"))
    assert stored(path).documents("q")[0] == ["a"]


@pytest.mark.parametrize("line", ["q Q0 a 1 nan x", "q Q0 a 1 1e60 x", "q Q0 a 1 one x", "q Q0 a 1", "q 0 a"])
def test_a_line_that_is_none_of_a_run_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidRun, match="line 2 is not a line of a run"):
        stored(written(tmp_path, "q Q0 a 1 2 x", line))


def test_a_carriage_return_within_a_line_is_white_space(tmp_path: Path) -> None:
    run = tmp_path / "run.txt"
    run.write_bytes(b"q Q0 a\r1 3 x\nq Q0 b 2 2 x\n")
    assert stored(run).documents("q")[0] == ["a", "b"]
