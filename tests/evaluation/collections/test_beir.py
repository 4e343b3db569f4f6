"""Reading and checking collections: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.collections.beir import Document, Query, read_corpus, read_queries
from evaluation.collections.check import check_corpus, check_queries
from evaluation.core.problems import InvalidContent, Problem
from tests.fuzz.bombs import BOMBS

GOOD = '{"_id": "d1", "title": "One", "text": "a b"}\n{"_id": "d2", "title": "", "text": ""}\n'


def write(folder: Path, content: str | bytes, name: str = "corpus.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def problems_of(path: Path) -> dict[str, Problem]:
    """The problems that checking the corpus reports, by code; reading it must refuse it as well."""
    with pytest.raises(InvalidContent) as caught:
        check_corpus(path)
    return {problem.code: problem for problem in caught.value.report.problems}


def test_documents_are_read_in_order_and_empty_ones_are_kept(tmp_path: Path) -> None:
    assert list(read_corpus(write(tmp_path, GOOD))) == [Document("d1", "One", "a b"), Document("d2", "", "")]


def test_a_missing_or_null_title_is_an_empty_title(tmp_path: Path) -> None:
    path = write(tmp_path, '{"_id": "1", "text": "x"}\n{"_id": "2", "title": null, "text": "y"}\n')
    assert [document.title for document in read_corpus(path)] == ["", ""]


def test_queries_are_read_whatever_else_they_hold(tmp_path: Path) -> None:
    path = write(tmp_path, '{"_id": "q1", "text": "why", "metadata": {"url": "x"}}\n', "queries.jsonl")
    assert list(read_queries(path)) == [Query("q1", "why")]


def test_gzip_is_told_from_its_bytes_not_from_the_name(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(GOOD.encode()), "corpus.jsonl")
    assert [document.id for document in read_corpus(path)] == ["d1", "d2"]
    assert check_corpus(path).sha256 == hashlib.sha256(GOOD.encode()).hexdigest()


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n\r\n").encode())
    assert [document.id for document in read_corpus(path)] == ["d1", "d2"]


def test_a_lone_surrogate_becomes_a_replacement_character(tmp_path: Path) -> None:
    path = write(tmp_path, '{"_id": "1", "text": "smile \\ud83d!", "score": NaN}\n')
    assert next(read_corpus(path)).text == "smile \ufffd!"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("not json", "malformed_json"),
        ('["d1", "text"]', "malformed_json"),
        ('{"_id": "x", "text": "a"', "malformed_json"),
        ("[" * 100_000, "malformed_json"),
        ('{"text": "a"}', "missing_id"),
        ('{"_id": "", "text": "a"}', "missing_id"),
        ('{"_id": null, "text": "a"}', "missing_id"),
        ('{"_id": 7.0, "text": "a"}', "not_a_string"),
        ('{"_id": true, "text": "a"}', "not_a_string"),
        ('{"_id": 123456789012345678901, "text": "a"}', "not_a_string"),
        ('{"_id": "x", "text": 7.5}', "not_a_string"),
        ('{"_id": NaN, "text": "a"}', "missing_id"),
        ('{"_id": "x", "text": Infinity}', "not_a_string"),
        ('{"_id": "x", "title": -Infinity, "text": "a"}', "not_a_string"),
        ('{"_id": "x", "text": ["a"]}', "not_a_string"),
        ('{"_id": "x", "title": false, "text": "a"}', "not_a_string"),
        ('{"_id": "x", "contents": "a"}', "missing_text"),
        ('{"_id": "a b", "text": "a"}', "unusable_id"),
        ('{"_id": "a\\u0000", "text": "a"}', "unusable_id"),
        (json.dumps({"_id": "x" * 257, "text": ""}), "unusable_id"),
        ('{"_id": "d1", "text": "again"}', "duplicate_id"),
        (b'{"_id": "x", "text": "caf\xe9"}', "not_utf8"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, line: str | bytes, code: str) -> None:
    bad = line.encode() if isinstance(line, str) else line
    path = write(tmp_path, GOOD.encode() + bad + b"\n")
    problem = problems_of(path)[code]
    assert (problem.severity, problem.count, problem.lines) == ("error", 1, (3,))
    assert problem.message.startswith("corpus.jsonl: 1 line ")
    assert problem.hint
    if code != "duplicate_id":
        with pytest.raises(InvalidContent):
            list(read_corpus(path))


def test_null_texts_and_whole_numbers_are_read(tmp_path: Path) -> None:
    lines = [
        '{"_id": 7, "text": null}',
        '{"_id": "2", "title": null}',
        '{"_id": "3", "title": 20, "text": 0}',
    ]
    path = write(tmp_path, "\n".join(lines))
    assert list(read_corpus(path)) == [("7", "", ""), ("2", "", ""), ("3", "20", "0")]
    assert list(read_queries(path)) == [("7", ""), ("2", ""), ("3", "0")]


def test_nan_is_read_as_null(tmp_path: Path) -> None:
    lines = (
        '{"_id": "1", "title": "a", "text": NaN}\n'
        '{"_id": "2", "title": NaN, "text": "b c"}\n'
        '{"_id": "3", "text": NaN}\n'
    )
    path = write(tmp_path, lines)
    assert list(read_corpus(path)) == [("1", "a", ""), ("2", "", "b c"), ("3", "", "")]
    assert list(read_queries(path)) == [("1", ""), ("2", "b c"), ("3", "")]
    found, nulls = check_corpus(path), check_corpus(write(tmp_path, lines.replace("NaN", "null")))
    assert (found.records, found.empty, found.mean_words) == (3, 1, 1.0)
    assert (nulls.empty, nulls.mean_words) == (1, 1.0)
    assert check_queries(write(tmp_path, lines, "queries.jsonl")).empty == 2


@pytest.mark.parametrize("field", ["abstract", "contents"])
def test_a_file_without_any_text_is_refused(tmp_path: Path, field: str) -> None:
    path = write(tmp_path, "".join(json.dumps({"_id": f"d{n}", field: "a"}) + "\n" for n in range(7)))
    problem = problems_of(path)["missing_text"]
    assert (problem.count, problem.lines) == (7, (1, 2, 3, 4, 5))


def test_all_classes_of_problems_are_told_together_with_counts_and_first_five_lines(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "broken\n" * 7 + '{"text": "no id"}\n' + GOOD)
    problems = problems_of(path)
    assert problems["malformed_json"].count == 7
    assert problems["malformed_json"].lines == (3, 4, 5, 6, 7)
    assert problems["missing_id"].lines == (10,)
    assert problems["duplicate_id"].lines == (11, 12)


def test_reading_stops_yielding_at_the_first_problem(tmp_path: Path) -> None:
    path = write(tmp_path, '{"_id": "1", "text": ""}\nbroken\n{"_id": "2", "text": ""}\nbroken\n')
    seen = []
    with pytest.raises(InvalidContent) as caught:
        seen.extend(document.id for document in read_corpus(path))
    assert caught.value.report.problems[0].lines == (2, 4)
    assert "2" not in seen


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "\n\n"))["empty_file"].message == "corpus.jsonl has no document"


def test_a_line_over_the_limit_is_refused_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.collections.beir.MAX_LINE_BYTES", 100)
    path = write(tmp_path, GOOD + json.dumps({"_id": "long", "text": "x" * 1000}) + "\n" + "bad\n")
    problems = problems_of(path)
    assert problems["line_too_long"].lines == (3,)
    assert problems["malformed_json"].lines == (4,)


def test_a_truncated_gzip_file_is_their_fault_and_says_so(tmp_path: Path) -> None:
    text = "".join(json.dumps({"_id": str(n), "text": hashlib.md5(b"%d" % n).hexdigest()}) + "\n" for n in range(2000))
    path = write(tmp_path, gzip.compress(text.encode())[:-2000], "corpus.jsonl.gz")
    assert "damaged" in problems_of(path)["damaged_file"].message


def test_a_file_that_expands_beyond_reason_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path, BOMBS["gzip, 64 members"].make(), "corpus.jsonl.gz")
    assert "50 times" in problems_of(path)["expansion"].message


def test_statistics_of_a_corpus(tmp_path: Path) -> None:
    ids: list[str] = []
    shares: list[float] = []
    path = write(tmp_path, GOOD)
    statistics = check_corpus(path, on_id=ids.append, progress=shares.append)
    assert (statistics.records, statistics.empty, statistics.mean_words) == (2, 1, 1.5)
    assert statistics.share_with_titles == 0.5
    assert statistics.bytes == statistics.stored_bytes == len(GOOD)
    assert statistics.sha256 == hashlib.sha256(GOOD.encode()).hexdigest()
    assert ids == ["d1", "d2"]
    assert shares[-1] == 1.0


def test_statistics_of_queries(tmp_path: Path) -> None:
    path = write(tmp_path, '{"_id": "a", "text": "one two three"}\n{"_id": "b", "text": " "}\n', "queries.jsonl")
    statistics = check_queries(path)
    assert (statistics.records, statistics.mean_words, statistics.empty) == (2, 1.5, 1)


def test_progress_may_stop_the_reading(tmp_path: Path) -> None:
    def stop(_: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        check_corpus(write(tmp_path, GOOD * 3000), progress=stop)


@given(ids=st.lists(st.sampled_from([f"d{number}" for number in range(12)]), min_size=1, max_size=40))
def test_duplicates_are_found_exactly(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": identifier, "text": ""}) + "\n" for identifier in ids))
    expected = [line for line, identifier in enumerate(ids, 1) if identifier in ids[: line - 1]]
    if expected:
        problem = problems_of(path)["duplicate_id"]
        assert (problem.count, problem.lines) == (len(expected), tuple(expected[:5]))
    else:
        assert check_corpus(path).records == len(ids)


@pytest.mark.parametrize("compared", [0, 1, 1000])
def test_duplicates_are_counted_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: int
) -> None:
    monkeypatch.setattr("evaluation.collections.check._SUSPECTS_COMPARED", compared)
    rows: list[dict[str, Any]] = [{"_id": str(number % 40), "text": ""} for number in range(100)]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    problem = problems_of(path)["duplicate_id"]
    assert (problem.count, problem.lines) == (60, (41, 42, 43, 44, 45))
