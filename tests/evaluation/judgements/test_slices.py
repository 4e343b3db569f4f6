"""Classes of queries and files of tags."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import read_tags
from evaluation.judgements.slices import document_class, length_class, script_class, type_class


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "short"),
        ("vitamin D", "short"),
        ("deafness after measles", "short"),
        ("does vitamin D help", "medium"),
        ("one two three four five six seven eight", "medium"),
        ("one two three four five six seven eight nine", "long"),
        ("糖尿病治疗", "medium"),  # Each ideograph is a word.
    ],
)
def test_lengths(text: str, expected: str) -> None:
    assert length_class(text) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Is Liquid Smoke Safe?", "en", "question"),
        ("how contaminated are our children", "en", "question"),
        ("糖尿病能治好吗？", "zh", "question"),
        ("Wie wirkt Aspirin", "de", "question"),
        ("Wie wirkt Aspirin", "en", "keywords"),
        ("however measured", "en", "keywords"),
        ("turmeric curcumin", "en", "keywords"),
        ("one two three four five", "en", "keywords"),
        ("Our Tax Dollars Subsidize Unhealthy Foods", "en", "statement"),
        ("  ", "en", "keywords"),
    ],
)
def test_types(text: str, language: str, expected: str) -> None:
    assert type_class(text, language) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("β-carotene and α", "latin"),
        ("витамин D", "cyrillic"),
        ("糖尿病", "han"),
        ("糖尿病の治療", "japanese"),
        ("당뇨병", "hangul"),
        ("مرض السكري", "arabic"),
        ("1918 ?", ""),
    ],
)
def test_scripts(text: str, expected: str) -> None:
    assert script_class(text) == expected


def test_relevant_documents_are_compared_with_thirds_of_the_collection() -> None:
    assert [document_class(words, (100, 200)) for words in (100, 100.5, 200, 201)] == [
        "short", "medium", "medium", "long",
    ]  # fmt: skip


def parse_tags(tmp_path: Path, content: bytes) -> dict[str, list[str]]:
    path = tmp_path / "tags.tsv"
    path.write_bytes(content)
    return read_tags(path)


def test_tags_with_a_header_and_several_tags_of_a_query(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfquery-id\ttag\r\nq1\thard\r\n\r\nq1\tnews\r\nq2\thard\r\n"
    expected = {"q1": ["hard", "news"], "q2": ["hard"]}
    assert parse_tags(tmp_path, content) == expected
    assert parse_tags(tmp_path, gzip.compress(content)) == expected
    assert parse_tags(tmp_path, b"q1\thard") == {"q1": ["hard"]}


@pytest.mark.parametrize(
    ("content", "code", "lines"),
    [
        (b"", "empty", ()),
        (b"query-id\ttag\n", "empty", ()),
        (b"q1\thard\nq1\thard\n", "duplicate", (2,)),
        (b"q1 hard\nq2\tnews\textra\n", "fields", (1, 2)),
        (b"q1\t<script>\nq2\t" + b"x" * 41 + b"\n", "tag", (1, 2)),
        ("q1\tpartie-é\nq2\t\u202egnp\n".encode(), "tag", (1, 2)),
        (b"q1\t\n", "tag", (1,)),
        (b"q 1\thard\n", "identifier", (1,)),
        (b"q\xff\thard\n", "encoding", (1,)),
    ],
)
def test_a_file_of_tags_with_an_error_names_its_lines(
    content: bytes, code: str, lines: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(InvalidContent) as error:
        parse_tags(tmp_path, content)
    assert [(problem.code, problem.lines) for problem in error.value.report.problems] == [(code, lines)]
