"""Runs read as rankings: trec_eval's order, any arrangement of lines, compressed or not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evaluation.engines.rankings import read_rankings
from evaluation.errors import InvalidRun


def written(folder: Path, *lines: str) -> Path:
    path = folder / "run.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_order_is_trec_evals_whatever_the_ranks_say(tmp_path: Path) -> None:
    run = written(tmp_path, "q1 Q0 a 1 1.5 x", "q1 Q0 c 2 2.5 x", "q1 Q0 b 3 2.5 x", "q2 Q0 a 1 -1 x")
    found = read_rankings(run, depth=2)
    assert found["q1"].document_ids == ["c", "b"]
    assert found["q1"].scores.tolist() == [2.5, 2.5]
    assert found["q2"].document_ids == ["a"]


def test_lines_of_a_query_may_lie_apart(tmp_path: Path) -> None:
    lines = ["q1 Q0 a 1 3 x", "q2 Q0 a 1 1 x", "q1 Q0 é 2 4 x", "q1 Q0 c 3 2 x"]
    assert read_rankings(written(tmp_path, *lines), depth=2)["q1"].document_ids == ["é", "a"]


def test_a_document_named_twice_is_there_once(tmp_path: Path) -> None:
    run = written(tmp_path, "q Q0 a 1 3 x", "q Q0 a 2 1 x", "q Q0 b 3 2 x")
    assert read_rankings(run, depth=10)["q"].document_ids == ["a", "b"]


def test_headers_and_compression_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "run.txt.gz"
    path.write_bytes(gzip.compress(b"# tag: x\r\nq Q0 a 1 3 x\r\n\r\n"))
    assert read_rankings(path, depth=10)["q"].document_ids == ["a"]


@pytest.mark.parametrize("line", ["q Q0 a 1 nan x", "q Q0 a 1 1e60 x", "q Q0 a 1 one x", "q Q0 a 1", "q 0 a"])
def test_a_line_that_is_none_of_a_run_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidRun, match="line 2 is not one of a run"):
        read_rankings(written(tmp_path, "q Q0 a 1 2 x", line), depth=10)
