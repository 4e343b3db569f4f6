"""Qrels in TREC's and BEIR's forms, and what is wrong with those that are refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import Qrels, read_qrels


def read(tmp_path: Path, content: str | bytes) -> Qrels:
    path = tmp_path / "qrels"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_qrels(path)


def problems(tmp_path: Path, content: str | bytes) -> dict[str, tuple[int, ...]]:
    with pytest.raises(InvalidContent) as raised:
        read(tmp_path, content)
    return {problem.code: problem.lines for problem in raised.value.report.errors}


def test_trec_qrels(tmp_path: Path) -> None:
    qrels = read(tmp_path, "10 0 b 1\n2 0.5  a 0\r\n10\tQ0\ta 2\n10 0 c -1\n\n")
    assert qrels.query_ids == ("10", "2")  # by bytes
    assert list(qrels.judgements()) == [("10", "a", 2), ("10", "b", 1), ("2", "a", 0)]
    assert qrels.as_dict() == {"10": {"a": 2, "b": 1}, "2": {"a": 0}}
    assert (qrels.number_of_judgements, qrels.negative_count) == (3, 1)


@pytest.mark.parametrize("header", ["query-id\tcorpus-id\tscore\n", ""])
def test_beir_qrels(tmp_path: Path, header: str) -> None:
    qrels = read(tmp_path, gzip.compress(f"{header}q1\td1\t1\nq1\td2\t-1\nq2\td1\t0\n".encode()))
    assert qrels.as_dict() == {"q1": {"d1": 1}, "q2": {"d1": 0}}
    assert qrels.negative_count == 1


@pytest.mark.parametrize("content", ["q1 0 d1 1\n", "q1\td1\t1\n", "query-id\tcorpus-id\tscore\nq1\td1\t1\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_query(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, "\ufeff" + content).as_dict() == {"q1": {"d1": 1}}


ROWS = [("q1", "d1", "2"), ("q1", "d2", "0"), ("q2", "d1", "1")]
READ = {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": 1}}


@pytest.mark.parametrize(
    "header",
    [
        "query_id corpus_id score", "qid docid rel", "query-id corpus-id score", "QueryID DocID Relevance",
        "Query_Id,Document_Id,Label", "topic iter docno rel", "# topic iteration docno judgment", "qid 0 pid label",
        "query-id corpus-id relevance", "Topic-ID Q0 Doc-ID Grade", "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("separator", ["\t", " ", ",", ", ", ";"])
@pytest.mark.parametrize("end", ["", ".0", ".", ".000"])
def test_tables_with_any_header_separator_and_whole_grades(
    tmp_path: Path, header: str, separator: str, end: str
) -> None:
    names = header.removeprefix("# ").replace(",", " ").split()
    lines = [separator.join(names)] if names else []
    if header.startswith("#"):
        lines[0] = f"# {lines[0]}"
    for query, document, grade in ROWS:
        middle = ["0"] if len(names) == 4 else []
        lines.append(separator.join([query, *middle, document, grade + end]))
    assert read(tmp_path, "\r\n".join(lines) + "\r\n").as_dict() == READ


@pytest.mark.parametrize("separator", ["\t", ","])
def test_columns_of_a_header_may_come_in_any_order_beside_others(tmp_path: Path, separator: str) -> None:
    lines = [
        ["rel", "comment", "docid", "qid"],
        ["2", "good", "d1", "q1"],
        ["0", "", "d2", "q1"],
        ["1", "x", "d1", "q2"],
    ]
    assert read(tmp_path, "\n".join(map(separator.join, lines))).as_dict() == READ


def test_ids_with_commas_semicolons_and_other_spaces_are_whole(tmp_path: Path) -> None:
    assert read(tmp_path, "q,1 0 d,2;3 1\n").as_dict() == {"q,1": {"d,2;3": 1}}
    assert read(tmp_path, "q,1\td,2;3\t1\n").as_dict() == {"q,1": {"d,2;3": 1}}
    assert read(tmp_path, "q1 0 d\u30002 1\nq1 0 d\u00a02 1\n").as_dict() == {"q1": {"d\u30002": 1, "d\u00a02": 1}}
    assert read(tmp_path, 'qid,docid,rel\n"q,1","d ""2""",1\n'.replace(" ", "_")).as_dict() == {"q,1": {'d_"2"': 1}}


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("names", ["query-id corpus-id score", '"query-id" "corpus-id" "score"', ""])
@pytest.mark.parametrize("rows", ["q1 d1 2,q1 d2 0,q2 d1 1", '"q1" "d1" "2","q1" "d2" "0","q2" "d1" "1"',
                                  '"q1" "d1" 2,"q1" "d2" 0,"q2" "d1" 1'])  # fmt: skip
def test_fields_in_double_quotes(tmp_path: Path, separator: str, names: str, rows: str) -> None:
    lines = [line.replace(" ", separator) for line in (names, *rows.split(",")) if line]
    assert read(tmp_path, "\r\n".join(lines) + "\r\n").as_dict() == READ


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        # Numbers without quotes, as pandas writes them with csv.QUOTE_NONNUMERIC.
        ('"query-id"\t"corpus-id"\t"score"\n1\t"d1"\t1\n1\t"d 2"\t0\n'.replace(" ", "_"), ["d1", "d_2"]),
        ('"1"\t"d""1"""\t"1"\n"1"\t"d2"\t"0"\n', ['d"1"', "d2"]),
        ('"query-id"\t"corpus-id"\t"score"\n1\td"1"\t1\n1\td"2\t1\n', ['d"1"', 'd"2']),
        ('"1"\t"0"\t"d1"\t"1"\n"1"\t"0"\t"d""2"\t"1"\n', ['d"2', "d1"]),
        ('"query-id" "corpus-id" "score"\n"1" "d1" 1\n', ["d1"]),
        # The ids contain the quotes, because no other value in these files is quoted.
        ('query-id\tcorpus-id\tscore\n1\t"d1"\t1\n1\t"d""2"""\t1\n1\t"d3\t1\n', ['"d""2"""', '"d1"', '"d3']),
        ('1\t"d1"\t1\n1\td"2"\t1\n', ['"d1"', 'd"2"']),
        ('1 0 "d1" 1\n1 0 d"2" 1\n', ['"d1"', 'd"2"']),
    ],
)
def test_quotes_within_ids_remain(tmp_path: Path, content: str, ids: list[str]) -> None:
    assert list(read(tmp_path, content).as_dict()["1"]) == ids


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        ("qid\tdocid\trel\nq1\td1\t1.0\nq1\td2\t1.5\n", "grade", 3),
        ("1 0 d1 1\n1 0 d2 0.5\n", "grade", 2),
        ("1 0 d1 1e0\n", "grade", 1),
        ("1 0 d1 True\n", "grade", 1),
        ("topic\tdossier\tmark\nq1\td1\t1\n", "header", 1),
        ("qid\tdocid\trel\tscore\nq1\td1\t1\t2\n", "header", 1),
        ("qid,docid,rank,score\nq1,d1,1,9\n", "header", 1),
        ('{"q1": {"d1": 1}}', "json", 1),
        ('{"query-id": "q1", "corpus-id": "d1", "score": 1}\n', "json", 1),
        ("1 Q0 d1 1 12.5 tag\n", "run", 1),
        ("1 0 184\n", "fields", 1),
        ("qid\tdocid\trel\nq1\td1\n", "fields", 2),
        ('"qid"\t"docid"\t"rel"\n"q1"\t"d1"\t"1"\n"q1"\t"d\\"2"\t"1"\n', "fields", 3),
    ],
)
def test_other_files_are_named_with_their_line(tmp_path: Path, content: str, code: str, line: int) -> None:
    found = problems(tmp_path, content)
    assert found[code] == (line,)


def test_a_query_with_negative_grades_only_is_judged_as_trec_eval_has_it(tmp_path: Path) -> None:
    qrels = read(tmp_path, "1 0 a -1\n2 0 a 1\n")
    assert qrels.query_ids == ("1", "2")
    assert qrels.as_dict() == {"1": {}, "2": {"a": 1}}


def test_every_class_of_problem_is_told_with_its_lines(tmp_path: Path) -> None:
    long = b"x" * 257
    content = b"1 0 a 1\n1 0 a 1\n1 0 b\n1 0 c x\n1 0 d 0.7\n1 0 \xff 1\n1 0 " + long + b" 1\n1 0 my id 1\n"
    assert problems(tmp_path, content) == {
        "duplicate": (2,), "fields": (3, 8), "grade": (4, 5), "encoding": (6,), "identifier": (7,),
    }  # fmt: skip
    content = b"query-id\tcorpus-id\tscore\n1\ta\t1\n1\tmy id\t1\n1\ta\t2\n1 0 b 1\n"
    assert problems(tmp_path, content) == {"identifier": (3,), "duplicate": (4,), "fields": (5,)}


def test_qrels_without_judgements_are_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "") == {"empty": ()}
    assert problems(tmp_path, "query-id\tcorpus-id\tscore\n") == {"empty": ()}


def test_from_a_dictionary() -> None:
    judged = {"2": {"b": 1, "a": 0}, "1": {"é": 3}}
    assert Qrels.from_dict(judged).as_dict() == judged
    assert Qrels.from_dict({}).number_of_judgements == 0
