"""Formats of runs: all readers agree on accepted files, and other files are named."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from evaluation.judgements.qrels import Qrels
from evaluation.runs.forms import recognize_format, trec_text
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.runs.stored import IndexedRun, first_tag
from evaluation.runs.top_documents import first_documents
from evaluation.verification.comparing import ScoringRules, read_rankings
from tests.evaluation.runs.checking import GOOD, check, only

#: The same two rankings in every form. `a"b` has to be quoted in CSV.
RANKINGS = {"#1": ["d3", "d1", 'a"b', "d8"], "2": ["d9", "d4", "d5", "d10"]}
SCORES = {query: dict(zip(names, (9.5, 8.25, 7.0, 6.0), strict=True)) for query, names in RANKINGS.items()}


def rows(form: str, separator: str = "\t") -> str:
    """A line for each hit, of the fields that `form` names."""
    lines = []
    for query, scores in SCORES.items():
        for rank, (document, score) in enumerate(scores.items(), 1):
            quoted = document.replace('"', '""')
            cell = f'"{quoted}"' if '"' in document and separator in ",;" else document
            fields = {"q": query, "d": cell, "r": rank, "z": rank - 1, "s": score, "0": "Q0", "t": "tag"}
            fields |= {"f": float(rank), "g": float(rank - 1)}
            lines.append(separator.join(str(fields[each]) for each in form))
    return "\n".join(lines) + "\n"


def records(**more: object) -> list[dict[str, object]]:
    return [
        {"query_id": query, "doc_id": name, "score": score, **more}
        for query, scores in SCORES.items()
        for name, score in scores.items()
    ]


def json_lines(items: object) -> str:
    return "\n".join(map(json.dumps, items)) + "\n"  # type: ignore[call-overload]


HITS = {query: [{"docid": name, "score": score} for name, score in scores.items()] for query, scores in SCORES.items()}
ACCEPTED = {
    "TREC": rows("q0drst", " "),
    "TREC, comments in front": "# ours\n# ir_metadata.start\n# cpu: Xeon E5 v4\n# ir_metadata.end\n" + rows("q0drst"),
    "MS MARCO": rows("qdr"),
    "MS MARCO, ranks from 0": rows("qdz"),
    "MS MARCO with scores": rows("qdrs"),
    "MS MARCO with spaces": rows("qdr", " "),
    "MS MARCO, ranks with a decimal point": rows("qdf"),
    "MS MARCO, ranks from 0 with a decimal point": rows("qdg", ","),
    "MS MARCO with scores, ranks with a decimal point": rows("qdfs", " "),
    "without a tag, ranks with a decimal point": rows("q0dfs"),
    "TREC as CSV, ranks with a decimal point": rows("q0dfst", ","),
    "MS MARCO as CSV": rows("qdr", ","),
    "MS MARCO with a comment": "# made by hand\n" + rows("qdr"),
    "MS MARCO in CR LF and with a byte order mark": "\ufeff" + rows("qdr").replace("\n", "\r\n"),
    "without a tag": rows("q0drs", " "),
    "without Q0": rows("qdrst"),
    "TREC as CSV": rows("q0drst", ","),
    "TREC as CSV with blanks": rows("q0drst", ", "),
    "TREC with blanks in the tag": rows("q0drst").replace("tag", "my own tag"),
    "columns with names": "qid,docid,rank,score\n" + rows("qdrs", ","),
    "columns with names in quotes": '"query_id";"doc_id";"score"\n' + rows("qds", ";"),
    "columns with names and ranks alone": "query-id\tpassage-id\trank\n" + rows("qdr"),
    "columns with names and ranks from 0 alone": "query-id\tpassage-id\trank\n" + rows("qdz"),
    "PyTerrier": "qid,docid,docno,rank,score,query\n" + "".join(
        f'{query},{number},{name},{number},{score},"first, of 2 words"\n'.replace('a"b', '"a""b"')
        for query, scores in SCORES.items() for number, (name, score) in enumerate(scores.items())
    ),
    "scores alone": rows("qds").replace("7.0", "7.125").replace("6.0", "6.125"),
    "flat JSON": json.dumps(SCORES),
    "flat JSON, indented": json.dumps(SCORES, indent=1),
    "MTEB 2": json.dumps({"mteb_model_meta": {"model_name": "a/b"}, "default": {"test": SCORES}}),
    "MTEB 2, a split alone": json.dumps({"test": SCORES}),
    "JSON, lists of pairs": json.dumps({query: list(map(list, each.items())) for query, each in SCORES.items()}),
    "JSON, lists of hits": json.dumps(HITS),
    "JSON, a list of hits": json.dumps(records(text="some text")),
    "JSON Lines, hits": json_lines(records()),
    "JSON Lines, hits with ranks alone": json_lines(
        {"qid": query, "docno": name, "rank": rank}
        for query, names in RANKINGS.items() for rank, name in enumerate(names)
    ),
    "JSON Lines, queries with hits": json_lines({"query_id": query, "results": hits} for query, hits in HITS.items()),
    "JSON Lines, queries with scores": json_lines({"qid": query, "docs": each} for query, each in SCORES.items()),
    "JSON Lines, queries as keys": json_lines({query: each} for query, each in SCORES.items()),
    "RankLLM": json_lines(
        {"query": {"qid": query, "text": "?"}, "candidates": hits} for query, hits in HITS.items()
    ),
}  # fmt: skip


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("form", ACCEPTED)
def test_every_reader_reads_the_same_rankings(tmp_path: Path, form: str, compressed: bool) -> None:
    path, content = tmp_path / "run", ACCEPTED[form].encode()
    path.write_bytes(gzip.compress(content) if compressed else content)
    judged = {"#1": {"d1": 2, "d3": 0, "d2": 1}, "2": {"d4": 1, "d5": 1}}
    target = ScoringTarget(Qrels.from_dict(judged), hidden=False)
    scored = score_run(path, target, ["nDCG@10", "RR", "P@2"])
    assert scored.report.problems == ()
    assert scored.report.statistics.lines == 8
    assert scored.means["RR"] == 0.5
    assert scored.means["P@2"] == 0.5
    assert scored.per_query[:, 0] == pytest.approx([0.479625, 0.693426], abs=1e-6)
    assert {
        query.decode(): [name.decode() for name in names] for query, names in first_documents(path, 9).items()
    } == RANKINGS
    IndexedRun.write(path, tmp_path / "stored")
    assert {query: IndexedRun(tmp_path / "stored").documents(query)[0] for query in RANKINGS} == RANKINGS
    with trec_text(path) as (_, text):
        rankings = read_rankings(text, RANKINGS, ScoringRules(maximum_depth=9), few_queries=False)
    assert {query: list(names) for query, names in rankings.items()} == RANKINGS


# --- ids that begin like something else


@pytest.mark.parametrize("query", ["#1", "#", "##", "#q", "{1}", "[1]", '"1"', "1,2", "//", "%1", "ir_metadata.start"])
def test_a_result_is_one_whatever_its_first_character(tmp_path: Path, query: str) -> None:
    named = GOOD.replace("1 Q0", f"{query} Q0")
    assert check(tmp_path, named, query_ids=[query, "2"]).problems == ()
    assert check(tmp_path, named.replace("Q0", "0"), query_ids=[query, "2"]).problems == ()
    assert first_tag(tmp_path / "run.txt") == "tag"


def test_the_order_of_queries_that_begin_with_a_number_sign_changes_no_score(tmp_path: Path) -> None:
    qrels = {"#1": {"d1": 2, "d2": 1, "d3": 0}, "2": {"d4": 1, "d5": 1}}
    first = "".join(f"#1 Q0 {name} 1 {score} t\n" for name, score in (("d3", 9), ("d1", 8), ("d2", 7)))
    second = "".join(f"2 Q0 {name} 1 {score} t\n" for name, score in (("d9", 9), ("d4", 8), ("d5", 7)))
    path, target = tmp_path / "run", ScoringTarget(Qrels.from_dict(qrels))
    for text in (first + second, second + first, "# comment\n" + first + second):
        path.write_text(text)
        scored = score_run(path, target, ["nDCG@10"])
        assert scored.missing_queries == 0
        assert scored.means == {"nDCG@10": pytest.approx(0.6815495, abs=1e-6)}


@pytest.mark.parametrize(("start", "form", "separator"), [
    ("qid\tdocid\trank\tscore\n", "qdrs", "\t"), ("query,doc,score\n", "qds", ","), ("qid docid rank\n", "qdr", " "),
    ("qid\tdocid\trank\n", "qdz", "\t"), ("# ours\nquery;doc;score\n# two, words\n", "qds", ";"),
    ("# made by hand\n", "qdr", "\t"), ("# made by hand\n", "q0drst", " "), ("", "qdr", "\t"),
])  # fmt: skip
def test_results_count_where_all_queries_begin_with_a_number_sign(
    tmp_path: Path, start: str, form: str, separator: str
) -> None:
    content = start + rows(form, separator).replace("\n2", "\n#2")
    qrels = Qrels.from_dict({"#1": {"d3": 1}, "#2": {"d4": 1}})
    path = tmp_path / "run"
    path.write_text(content)
    scored = score_run(path, ScoringTarget(qrels), ["RR"])
    assert scored.report.problems == ()
    assert scored.report.statistics.lines == 8
    assert scored.per_query[:, 0].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("line", "code"),
    [("#1 Q0 d 1 nan tag", "score"), ("#1 Q0 d 1 2", "fields"), ("#1 Q0 d 1 2 a b", "fields")],
)
def test_a_damaged_result_is_reported_and_no_comment(tmp_path: Path, line: str, code: str) -> None:
    problem = only(check(tmp_path, f"# comment\n{line}\n{GOOD}"))
    assert (problem.code, problem.lines) == (code, (2,))


@pytest.mark.parametrize("comment", [
    "# made by hand", "#", "#query Q0 doc rank score tag", "# six words of which 2.5 is", "# k1 is 0.9 here, b 0.4",
    "# ir_metadata.start\n#model: Intel Xeon E5 2650 v4\n#  cpu: Xeon E5 2650 v4\n# ir_metadata.end",
])  # fmt: skip
def test_comments_are_comments(tmp_path: Path, comment: str) -> None:
    assert check(tmp_path, f"{comment}\n{GOOD}").problems == ()


# --- what is not accepted


@pytest.mark.parametrize(("content", "named"), [
    ("1\ta\t1\n1\tb\t0\n2\ta\t2\n", "judgments (qrels)"),
    ("1\ta\t1\n2\tb\t1\n3\tc\t1\n4\td\t1\n5\te\t1\n", "judgments (qrels)"),
    ("1\ta\t1\n1\tb\t2\n1\tc\t3\n", "judgments (qrels)"),
    ("query-id\tcorpus-id\tscore\n1\ta\t1.0\n1\tb\t2.0\n", "judgments (qrels)"),
    ("1 0 1 1\n1 0 2 2\n1 0 3 3\n1 0 4 0\n", "judgments (qrels)"),
    ("query_id,doc_id,relevance\n1,a,1\n2,b,0\n", "judgments (qrels)"),
    ("1,0,a,1\n1,0,b,0\n", "judgments (qrels)"),
    ('{"1": {"a": 1, "b": 0}, "2": {"a": 2}}', "judgments (qrels)"),
    ('{"query-id": "1", "corpus-id": "a", "score": 1}\n{"query-id": "2", "corpus-id": "b", "score": 0}\n',
     "judgments (qrels)"),
    ("runid\tall\tx\nmap\tall\t0.3125\nP_5\tall\t0.25\n", "results of trec_eval"),
    ("map                   \tall\t0.3125\nP_5                   \tall\t0.2567\n", "results of trec_eval"),
    ("1 Q0 a 1 2.5 t\n".encode("utf-16"), "UTF-16"),
])  # fmt: skip
def test_other_files_are_named(tmp_path: Path, content: str | bytes, named: str) -> None:
    (problem,) = check(tmp_path, content, query_ids=()).errors
    assert named in problem.message


def test_ranks_that_could_be_grades_are_accepted_under_names(tmp_path: Path) -> None:
    content = "1\ta\t1\n1\tb\t2\n2\ta\t1\n"
    assert "add the header line `qid docid rank`" in only(check(tmp_path, content)).hint
    assert check(tmp_path, "qid docid rank\n" + content).problems == ()


@pytest.mark.parametrize("row", ["#1,d1,", "#1,d1,nan", "#1,d1,high"])
def test_a_damaged_row_below_names_is_reported_and_no_comment(tmp_path: Path, row: str) -> None:
    content = f"query,doc,score\n# two, words, here\n{row}\n#1,d2,8.5\n#1,d3,7.5\n"
    problem = only(check(tmp_path, content, query_ids=["#1"]))
    assert (problem.code, problem.lines) == ("fields", (3,))
    assert row in problem.message


def test_a_comment_below_names_may_have_as_many_words_as_columns(tmp_path: Path) -> None:
    report = check(tmp_path, "qid docid rank\n# by hand\n1 a 1\n1 b 2\n2 a 1\n")
    assert report.problems == ()
    assert report.statistics.lines == 3


def test_ranks_with_a_decimal_point_that_could_be_grades_have_the_same_hint(tmp_path: Path) -> None:
    problem = only(check(tmp_path, "1\ta\t1.0\n1\tb\t2.0\n2\ta\t1.0\n"))
    assert "add the header line `qid docid rank`" in problem.hint


@pytest.mark.parametrize("depth", [3, 20])
def test_scores_that_recur_over_queries_are_recognized_without_names(tmp_path: Path, depth: int) -> None:
    """Reciprocal rank fusion writes 1 / 61, 1 / 62, and so on, for every query."""
    path, queries = tmp_path / "run", [f"q{number}" for number in range(9)]
    hits = ((query, rank) for query in queries for rank in range(1, depth + 1))
    path.write_text("".join(f"{query}\td{rank}\t{1 / (60 + rank)}\n" for query, rank in hits))
    qrels = Qrels.from_dict({query: {f"d{1 + number % 3}": 1} for number, query in enumerate(queries)})
    scored = score_run(path, ScoringTarget(qrels), ["RR"])
    assert scored.report.problems == ()
    assert scored.report.statistics.lines == 9 * depth
    assert scored.per_query[:, 0].tolist() == pytest.approx([1, 1 / 2, 1 / 3] * 3)


@pytest.mark.parametrize("grades", [("0.5",), ("0.33", "0.5", "0.67", "0.5", "0.33", "0.5")])
def test_fractional_grades_without_names_are_no_run(tmp_path: Path, grades: tuple[str, ...]) -> None:
    lines = [f"{query}\td{place}\t{grade}\n" for query in range(9) for place, grade in enumerate(grades)]
    assert only(check(tmp_path, "".join(lines), query_ids=())).code == "fields"


@pytest.mark.parametrize("query", ["{1}", "[1]"])
def test_a_rank_with_a_decimal_point_is_no_json(tmp_path: Path, query: str) -> None:
    report = check(tmp_path, GOOD.replace("1 Q0", f"{query} Q0").replace(" 1 ", " 1.0 "), query_ids=[query, "2"])
    assert report.valid
    assert report.statistics.known_queries == 2


def test_ranks_with_a_decimal_point_that_agree_with_scores_have_no_warning(tmp_path: Path) -> None:
    lines = "".join(f"1 Q0 {name} {rank}.0 {4 - rank} t\n" for rank, name in enumerate("abc", 1))
    assert "rank_order" not in {problem.code for problem in check(tmp_path, lines).problems}
    swapped = lines.replace("a 1.0", "a 2.0", 1).replace("b 2.0", "b 1.0")
    assert "rank_order" in {problem.code for problem in check(tmp_path, swapped).problems}


def test_fractional_judgments_of_several_documents_are_no_run() -> None:
    grades = [b"0.33", b"0.67", b"0.5"]
    rows = [b"%d d%d %s\n" % (query, number, grades[number]) for query in range(40) for number in range(3)]
    assert recognize_format(b"".join(rows)) is None


@pytest.mark.parametrize("comment", ["# depth 1000", "#depth was 1000", "# seed 42", "# run bm25 1 0.9"])
def test_comments_that_look_like_rows_leave_a_table_recognized(comment: str) -> None:
    rows = "".join(f"1 d{rank} {rank}\n" for rank in range(1, 6))
    assert recognize_format(f"{comment}\n{rows}".encode()) == recognize_format(rows.encode()) != None  # noqa: E711
    rows = "".join(f"#{query} d{rank} {rank} {1 / (rank + query):.4f}\n" for query in (1, 2) for rank in range(1, 6))
    assert recognize_format(f"{rows}# Q0 d 1 0.5 t\n".encode()) == recognize_format(rows.encode()) != None  # noqa: E711


def test_problems_of_a_table_name_its_lines(tmp_path: Path) -> None:
    damaged = "# ours\nqid,docid,score\n1,a,2.5\n1,b\n1,a,1.5\n2,a,high\n2,b,0.5\n"
    problems = {problem.code: problem.lines for problem in check(tmp_path, damaged).errors}
    assert problems == {"fields": (4,), "duplicate": (5,), "score": (6,)}


@pytest.mark.parametrize(("content", "message"), [
    ('{"1": {"d1": NaN, "d2": 0.5}}', "query '1' has the score NaN for document 'd1'"),
    ('{"default": {"test": {"1": {"d1": -Infinity}}}}', "query '1' has the score -Infinity for document 'd1'"),
    ('{"1": {"d1": 0.5, "d2": Infinity}, "2": {"a": NaN}}',
     "2 scores are not finite numbers; query '1' has the score Infinity for document 'd2'"),
    ('{"qid": "1", "docid": "a", "score": 0.5}\n{"qid": "1", "docid": "b", "score": NaN}\n',
     "query '1' has the score NaN for document 'b'"),
    ('{"1": {"d1": "0.5"}}', "query '1' has a score that is not a number for document 'd1'"),
    ('{"1": ["d1", "d2"]}', "query '1' has no score for document 'd1'"),
    ('{"1": {"d1": null}}', "query '1' has no score for document 'd1'"),
])  # fmt: skip
def test_scores_of_json_are_named_by_query_and_document(tmp_path: Path, content: str, message: str) -> None:
    problem = only(check(tmp_path, content))
    assert problem.code == "score"
    assert problem.message == message


@pytest.mark.parametrize(("content", "message"), [
    ('{"1": {"d1": true}}', "query '1' has a score that is not a number for document 'd1'"),
    ('{"model": {"name": "bm25"}}', "query 'model' has a score that is not a number for document 'name'"),
    ('{"datasets": ["a", "b"], "model": "bm25"}', "query 'model' has no object of document scores"),
])  # fmt: skip
def test_json_of_settings_is_named_as_no_run(tmp_path: Path, content: str, message: str) -> None:
    problem = only(check(tmp_path, content))
    assert problem.code == "json"
    assert problem.message == message


@pytest.mark.parametrize("content", [
    '{"a": NaN, "b": "\\ud800"}', '{"1": {"\\ud800": NaN}}', "[1, 2]", "[]x", "{}\n{}x", '[{"a": 1}]', '{"1": [1]}',
    '{"qid": "1", "text": "x"}\n{"qid": "2"}\n', '{"a":' * 900 + "1" + "}" * 900, '{"1": {"a": NaN}' + "[" * 2000,
])  # fmt: skip
def test_json_that_is_no_run_is_refused(tmp_path: Path, content: str) -> None:
    assert only(check(tmp_path, content)).code == "json"


# --- ties


def test_the_hint_of_ties_says_what_helps(tmp_path: Path) -> None:
    def hint(*scores: str) -> str:
        lines = [f"{query} Q0 d{place} 1 {score} t\n" for query in "12" for place, score in enumerate(scores)]
        return only(check(tmp_path, "".join(lines))).hint

    close = ["0.9699999999", "0.9699999998", "0.9699999997", "0.9"]
    for scores in (close, close[::-1], [close[0], "0.9", close[2]], ["0.5", "0.5", *close]):
        assert "more digits do not help" in hint(*scores)
    for scores in (["0.97", "0.97", "0.96"], ["0.9699999999"] * 3, ["1", "1.0", "1e0"]):
        assert "write more digits" in hint(*scores)


@pytest.mark.parametrize("content", [
    b"," * 900_000, b"q\td\t" + b"1" * 900_000 + b"x\n", b"q\td\t." + b"1" * 900_000 + b"x\n",
    b'q,"' + b"a" * 900_000 + b'",1\n', b"qid\tdocid\trank\nq\td\t" + b"1" * 9_000 + b"\n",
    b'qid,docid,score\n"q\rx","d",1.5\n', b"# ir_metadata.start\n" * 13_000,
])  # fmt: skip
def test_hostile_tables_are_refused_in_bounded_time(tmp_path: Path, content: bytes) -> None:
    begun = time.process_time()
    assert not check(tmp_path, content).valid
    assert time.process_time() - begun < 5
