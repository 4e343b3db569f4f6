"""Files of judgments by subtopic."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import Qrels
from evaluation.judgements.subtopics import (
    Subtopics,
    highest_grades,
    read_subtopics,
    write_subtopics,
)

TEXT = "\ufeff1 2 b 1\r\n1\t1\tb\t2.0\n\n1 1 a -2\n1 2 a 0\n2 1 a -1\n"


def test_judgments_by_subtopic_are_read_and_written_in_one_form(tmp_path: Path) -> None:
    path, again = tmp_path / "subtopic-qrels.txt", tmp_path / "again.txt"
    path.write_text(TEXT, "utf-8")
    grades = read_subtopics(path)
    assert highest_grades(grades) == {b"1": {b"b": 2, b"a": 0}, b"2": {b"a": -1}}
    write_subtopics(grades, again)
    assert again.read_text() == "1 1 a -2\n1 2 a 0\n1 1 b 2\n1 2 b 1\n2 1 a -1\n"
    assert read_subtopics(again) == grades


def test_subtopics_follow_the_judgments(tmp_path: Path) -> None:
    (tmp_path / "subtopic-qrels.txt").write_text(TEXT, "utf-8")
    qrels = Qrels.from_dict({"0": {"x": 1}, "1": {"a": 0, "b": 2, "c": 1}})
    subtopics = Subtopics.align(read_subtopics(tmp_path / "subtopic-qrels.txt"), qrels)
    assert subtopics.qrels.as_dict() == {"1 1": {"b": 2}, "1 2": {"a": 0, "b": 1}}
    assert subtopics.query.tolist() == [1, 1]
    assert subtopics.offsets.tolist() == [0, 0, 1, 3, 3]
    assert subtopics.qrels.grades[subtopics.judgement_numbers].tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 1 a", "not `query subtopic document grade`: 1 line"),
        (b"1 1 a x", "not `query subtopic document grade`"),
        (b"1 1 c 1", "a document judged twice for a subtopic"),
        (b"1 1 \xff 1", "not `query subtopic document grade`"),
        (b"1 " + b"s" * 257 + b" a 1", "not `query subtopic document grade`"),
        (None, "the file has no judgments"),
    ],
)
def test_problems_name_the_line(tmp_path: Path, line: bytes | None, message: str) -> None:
    path = tmp_path / "subtopic-qrels.txt"
    path.write_bytes(b"" if line is None else b"1 1 c 1\n" + line + b"\n")
    with pytest.raises(InvalidContent, match=message) as refused:
        read_subtopics(path)
    assert [problem.lines for problem in refused.value.report.problems] == [(2,) if line else ()]
