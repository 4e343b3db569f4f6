"""Messages about a run file name the first wrong line, its content, and the format that the file seems to have."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import PROBLEM_CODES
from evaluation.judgements.qrels import Qrels
from evaluation.kernel.layout import BLANK, NOTED
from evaluation.runs.problems import check_registered
from tests.evaluation.runs.checking import GOOD, check, only, run_of


@pytest.mark.parametrize(("content", "found"), [
    (GOOD + "1 Q0 c 3 1.5\n", "line 4 has 5 fields: `1 Q0 c 3 1.5`"),
    (GOOD.replace("2.5", "nan"), "line 2 has the score `nan`: `1 Q0 b 2 nan tag`"),
    (GOOD + "2 Q0 a 2 1 tag\n", "line 4 repeats `a` for the query `2`: `2 Q0 a 2 1 tag`"),
    (GOOD + "1\tQ0\tc\x07\u202e\n", "line 4 has 3 fields: `1\\tQ0\\tc\\x07\\u202e`"),
    (GOOD + "\n1 Q0 c 3 1 tag\n", "line 4 is blank"),
    (GOOD.encode().replace(b" b ", b" \xff "), "line 2: `1 Q0 \\xff 2 2.5 tag`"),
    (GOOD + "2 Q0 " + "x" * 300 + " 2 1 t\n", "line 4 has ids of 1 and 300 bytes: `2 Q0 " + "x" * 74 + "…`"),
    ("1 Q0 a 1 1 tag\n" + "y" * 3_000_000 + "\n", "line 2: `" + "y" * 79 + "…`"),
    (b"\xef\xbb\xbf# made by hand\n1 Q0 a 1 tag\n", "line 2 has 5 fields: `1 Q0 a 1 tag`"),
    ("7 Q0 a 1 1 tag\n", "line 1 has the query `7`: `7 Q0 a 1 1 tag`"),
])  # fmt: skip
def test_a_message_quotes_the_first_line_and_says_what_it_has(tmp_path: Path, content: str | bytes, found: str) -> None:
    message = check(tmp_path, content).problems[0].message
    assert found in message
    assert message.isprintable()


def test_a_message_quotes_a_line_deep_in_a_compressed_file(tmp_path: Path) -> None:
    lines = [f"{number} Q0 a 1 1 tag" for number in range(150_000)]
    lines[140_000] = "140000 Q0 a 1 1,5 tag"
    problem = only(check(tmp_path, gzip.compress("\n".join(lines).encode()), query_ids=()))
    assert (problem.code, problem.lines) == ("score", (140_001,))
    assert "line 140,001 has the score `1,5`: `140000 Q0 a 1 1,5 tag`" in problem.message


def test_a_document_of_another_corpus_is_named(tmp_path: Path) -> None:
    documents = DocumentIds.build(["a"], tmp_path / "ids")
    problem = only(check(tmp_path, GOOD, document_ids=documents))
    assert "line 2 has the document `b`: `1 Q0 b 2 2.5 tag`" in problem.message


def test_blank_lines_between_others_are_among_the_lines_that_are_counted(tmp_path: Path) -> None:
    report = check(tmp_path, "one\n\n\ntwo\n\n")
    assert report.statistics.lines == only(report).count == 4


@pytest.mark.parametrize("header", ["query_id Q0 doc_id rank score tag", "qid docno score", "topic\titer\tdocno\trank"])
def test_a_header_line_is_recognised(tmp_path: Path, header: str) -> None:
    problem = only(check(tmp_path, f"# comment\n{header}\n{GOOD}"))
    assert (problem.code, problem.count, problem.lines) in (("fields", 1, (2,)), ("score", 1, (2,)))
    assert problem.message.endswith("line 2 looks like a header")
    assert problem.hint == "Remove the line of column names."


@pytest.mark.parametrize("content", [
    "1 0 a 1\n1 0 b 0\n2 0 a 2\n", "query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t0\n", "1 Q0 a -1\n",
])  # fmt: skip
def test_judgements_are_recognised(tmp_path: Path, content: str) -> None:
    problem = only(check(tmp_path, content))
    assert problem.code == "fields"
    assert "looks like relevance judgments (qrels)" in problem.message
    assert "Send a system's ranking instead." in problem.hint
    assert "qrels" not in only(check(tmp_path, GOOD + "1 0 a 1\n")).message


def test_missing_queries_are_named_where_queries_are_everyones(tmp_path: Path) -> None:
    queries = [f"q{number}" for number in range(9)] + ["1"]
    run, qrels = "1 Q0 a 1 3 tag\n", Qrels.from_dict({query: {"a": 1} for query in queries[3:5]})

    def missing(**target: object) -> str:
        return only(check(tmp_path, run, query_ids=queries, **target)).message

    named = missing(names_queries=True)
    assert named.startswith("9 of the 10 queries of the dataset are missing;")
    assert named.endswith("score 0 (q0, q1, q2, q3, q4 …)")
    assert missing().endswith("score 0")
    # of hidden judgements it is the dataset's queries that are named, never those that are judged alone
    hidden = missing(names_queries=True, qrels=Qrels.from_dict({"judged": {"a": 1}, "1": {"a": 1}}))
    assert "10 of the 11" in hidden
    assert "judged)" not in hidden
    assert "(q0, q1, q2, q3, q4 …)" in hidden
    named = missing(names_queries=True, qrels=qrels, hidden=False)
    assert named == "2 of the 2 judged queries are missing; they score 0 (q3, q4)"


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, zstandard.ZstdCompressor().compress])
def test_damaged_compression_is_said_in_plain_words(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = compress(run_of("1", 5000).encode())
    damaged = [content[:-30], content[:12] + b"\xff" * 40 + content[52:], content + b"more"]
    for each in damaged:
        problem = only(check(tmp_path, each))
        why = problem.message.partition(" bytes: ")[2]
        assert (problem.code, why) in [
            ("compression", "the file is truncated"),
            ("compression", "other data follows the compressed data"),
            ("compression", "it cannot be decompressed"),
        ]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
def test_a_wrong_checksum_alone_is_not_said_to_be_data_that_does_not_expand(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    content = bytearray(compress(run_of("1", 5000).encode()))
    content[-6 if compress is gzip.compress else -1] ^= 1
    problem = only(check(tmp_path, bytes(content)))
    assert problem.code == "compression"
    assert problem.message.endswith("data is damaged: its checksum is wrong")


def test_a_problem_that_the_kernel_counts_is_registered_with_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing registration fails at import with its name."""
    reported = [PROBLEM_CODES[name] for name in NOTED if name != BLANK]
    check_registered(NOTED, reported)
    with pytest.raises(LookupError, match="not both: a_new_one"):
        check_registered((*NOTED, "a_new_one"), reported)
    with pytest.raises(LookupError, match="not both: ties"):
        check_registered([name for name in NOTED if name != "ties"], reported)
    monkeypatch.setattr(PROBLEM_CODES["score"], "message", "")
    with pytest.raises(LookupError, match="register a message for reports of score"):
        check_registered(NOTED, reported)
