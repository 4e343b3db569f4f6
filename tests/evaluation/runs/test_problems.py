"""Every class of problem in a run file: its code, count, lines, and that hidden targets keep what is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.archives.compression import FileLimits
from evaluation.collections.document_ids import DocumentIds
from evaluation.judgements.qrels import Qrels
from evaluation.runs.header import read_header
from evaluation.runs.score import InvalidRun, ScoringTarget, check_run, score_run
from tests.evaluation.runs.checking import GOOD, check, only, run_of


def test_a_good_run_has_no_problems(tmp_path: Path) -> None:
    report = check(tmp_path, GOOD)
    assert report.problems == ()
    assert report.valid
    assert (report.statistics.lines, report.statistics.queries, report.statistics.tags) == (3, 2, ("tag",))
    assert report.statistics.expanded_bytes == len(GOOD)


@pytest.mark.parametrize("content", [
    GOOD.replace("\n", "\r\n"), GOOD.replace(" ", "\t"), GOOD.replace(" ", "\v\f "), GOOD.rstrip("\n"), "\n" * 3 + GOOD,
    GOOD + "\n \n", GOOD.replace("1 Q0", "  1 Q0"),
])  # fmt: skip
def test_white_space_is_ascii_and_line_ends_are_lf_or_crlf(tmp_path: Path, content: str) -> None:
    report = check(tmp_path, content.lstrip("\n"))
    assert report.problems == ()
    assert report.statistics.lines == 3


def test_a_no_break_space_belongs_to_an_id(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD.replace(" a ", " a\u00a0b ")).problems == ()


def test_errors_are_in_the_order_of_their_first_lines(tmp_path: Path) -> None:
    lines = ["1 Q0 a 1 3 tag", "1 Q0 b 2 NaN tag", "c", "2 Q0 a 1 nil tag", "d", "1 Q0 a 4 1 tag"]
    problems = check(tmp_path, "\n".join(lines)).problems
    errors = [problem.lines for problem in problems if problem.severity == "error"]
    assert errors == [(2, 4), (3, 5), (6,)]


@pytest.mark.parametrize(
    "line", ["1 Q0 c 3 1.5", "1 Q0 c 3 1.5 tag more", "c", "", "1 Q0 c 3 1.5 my tag here too long now"]
)
def test_fields(tmp_path: Path, line: str) -> None:
    problem = only(check(tmp_path, f"1 Q0 a 1 3 tag\n{line}\n2 Q0 a 1 1 tag\n{line}\n2 Q0 b 2 0 tag\n"))
    assert (problem.severity, problem.code, problem.count, problem.lines) == ("error", "fields", 2, (2, 4))
    assert "six fields" in problem.message
    assert "query Q0 document rank score tag" in problem.hint


@pytest.mark.parametrize("score", [
    "nan", "NaN", "inf", "-inf", "Infinity", "1e400", "3.5e38", "-1e39", "1_000", "٣", "３", "0x10", "abc", "1e",
    "1e+", "e5",    ".", "+", "--1", "1.2.3", "1,5", "1d3", "3.4028236e38",
])  # fmt: skip
def test_scores_that_are_no_finite_ascii_numbers(tmp_path: Path, score: str) -> None:
    problem = only(check(tmp_path, GOOD.replace("2.5", score)))
    assert (problem.severity, problem.code, problem.count, problem.lines) == ("error", "score", 1, (2,))
    assert "finite" in problem.message


@pytest.mark.parametrize(
    "score", ["2", "-2", "+2.", ".5", "1e-400", "1E5", "0.0000000000000000000000000001", "3.4028235e38"]
)
def test_scores_that_are_numbers(tmp_path: Path, score: str) -> None:
    assert check(tmp_path, GOOD.replace("1.5", score)).valid


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"x\0y"])
def test_encoding(tmp_path: Path, bad: bytes) -> None:
    problem = only(check(tmp_path, GOOD.encode().replace(b" b ", b" " + bad + b" ")))
    assert (problem.severity, problem.code, problem.count, problem.lines) == ("error", "encoding", 1, (2,))
    assert "UTF-8" in problem.message


def test_a_byte_order_mark(tmp_path: Path) -> None:
    for content in (
        GOOD,
        "# a comment\n" + GOOD,
        GOOD + "1 Q0 c 3 1 tag\n",
    ):  # the last is not grouped by query
        assert check(tmp_path, b"\xef\xbb\xbf" + content.encode()).problems == ()
    predictions = b'\xef\xbb\xbf{"default": {"test": {"1": {"a": 1}, "2": {"a": 1}}}}'
    assert check(tmp_path, predictions).problems == ()


def test_lines_that_end_with_carriage_returns_alone(tmp_path: Path) -> None:
    problem = only(check(tmp_path, GOOD.replace("\n", "\r")))
    assert (problem.code, problem.lines) == ("encoding", (1,))
    assert "carriage return" in problem.message


def test_duplicates_also_where_lines_are_not_grouped(tmp_path: Path) -> None:
    for content in (GOOD + "2 Q0 a 2 1 tag\n", GOOD + "1 Q0 b 3 1 tag\n"):
        problem = only(check(tmp_path, content))
        assert (problem.severity, problem.code, problem.count, problem.lines) == (
            "error",
            "duplicate",
            1,
            (4,),
        )
    long = "a-document-id-of-more-than-sixteen-bytes"
    problem = only(check(tmp_path, f"1 Q0 {long} 1 2 t\n1 Q0 {long}x 2 1 t\n1 Q0 {long} 3 0 t\n2 Q0 a 1 1 t\n"))
    assert (problem.code, problem.lines) == ("duplicate", (3,))


def test_no_known_query(tmp_path: Path) -> None:
    problem = only(check(tmp_path, GOOD, query_ids=["10", "20"]))
    assert (problem.severity, problem.code, problem.count) == ("error", "no_known_query", 2)


def test_nothing_is_said_of_queries_that_no_readable_line_names(tmp_path: Path) -> None:
    assert only(check(tmp_path, "1 Q0 a 1 nan tag\n2 Q0 a 1 x tag\n")).code == "score"
    errors = check(tmp_path, "9 Q0 a 1 1 tag\n8 Q0 a 1 x tag\n").errors
    assert sorted(problem.code for problem in errors) == ["no_known_query", "score"]
    assert any("queries in the readable lines" in problem.message for problem in errors)


def test_unknown_documents_are_an_error_only_in_numbers(tmp_path: Path) -> None:
    documents = DocumentIds.build([f"d{number}" for number in range(1, 100)], tmp_path / "ids")
    few = run_of("1", 100) + run_of("2", 50)
    problem = only(check(tmp_path, few, document_ids=documents))
    assert (problem.severity, problem.code, problem.count, problem.lines) == (
        "warning",
        "unknown_documents",
        1,
        (100,),
    )
    problem = only(check(tmp_path, run_of("1", 110) + run_of("2", 10), document_ids=documents))
    assert (problem.severity, problem.code, problem.count) == ("error", "unknown_documents", 11)
    assert problem.lines == (100, 101, 102, 103, 104)
    assert problem.hint.endswith("written as in its corpus file.")
    target = {"document_ids": documents, "example_document": "d7"}
    assert only(check(tmp_path, run_of("1", 110) + run_of("2", 10), **target)).hint.endswith(
        "corpus file, such as `d7`."
    )
    assert "d7" not in only(check(tmp_path, few, **target)).hint


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n"])
def test_an_empty_file(tmp_path: Path, content: str) -> None:
    report = check(tmp_path, content)
    assert [problem.code for problem in report.errors] == ["empty"]


def test_lines_that_are_too_long(tmp_path: Path) -> None:
    for length in (1100, 10_000, 3_000_000):
        problem = only(check(tmp_path, GOOD.replace(" b ", f" {'b' * length} ")))
        assert (problem.severity, problem.code, problem.count, problem.lines) == (
            "error",
            "line_length",
            1,
            (2,),
        )


def test_ids_that_are_too_long(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD.replace(" b ", f" {'b' * 256} ")).valid
    for content in (GOOD.replace(" b ", f" {'b' * 257} "), GOOD.replace("1 Q0 b", f"{'q' * 257} Q0 b")):
        problem = only(check(tmp_path, content))
        assert (problem.severity, problem.code, problem.lines) == ("error", "identifier", (2,))


def test_size_limits(tmp_path: Path) -> None:
    assert only(check(tmp_path, GOOD, FileLimits(max_stored_bytes=10))).code == "size"
    assert only(check(tmp_path, GOOD, FileLimits(max_expanded_bytes=10))).code == "expansion"
    problem = only(check(tmp_path, run_of("1", 90_000), FileLimits(max_query_bytes=100)))
    assert (problem.code, problem.severity) == ("query_size", "error")
    mixed = GOOD + "1 Q0 z 4 1 tag\n"
    assert only(check(tmp_path, mixed, FileLimits(max_ungrouped_bytes=20))).code == "ungrouped"
    assert only(check(tmp_path, GOOD, FileLimits(max_queries=1), query_ids=[])).code == "size"


def test_all_classes_are_told_at_once_errors_first(tmp_path: Path) -> None:
    content = b"1 Q0 a 1 nan t\n1 Q0\n1 Q0 \xff 1 1 t\n1 Q0 b 1 1 t\n1 Q0 b 1 2 t\n9 Q0 b 1 1 u\n1 Q0 c 1 x t\n"
    report = check(tmp_path, content)
    assert {(problem.code, problem.count, problem.lines) for problem in report.problems} == {
        ("score", 2, (1, 7)), ("fields", 1, (2,)), ("encoding", 1, (3,)), ("duplicate", 1, (5,)),
        ("unknown_queries", 1, (6,)), ("queries_missing", 1, ()), ("several_tags", 2, (6,)),
    }  # fmt: skip
    severities = [problem.severity for problem in report.problems]
    assert severities == sorted(severities)


def test_only_the_first_five_lines_are_named(tmp_path: Path) -> None:
    problem = only(check(tmp_path, GOOD + "2 Q0\n" * 30_000))
    assert (problem.count, problem.lines) == (30_000, (4, 5, 6, 7, 8))


def test_line_numbers_are_the_files_also_where_lines_are_not_grouped(tmp_path: Path) -> None:
    content = "# header\n" + GOOD + "1 Q0 c 3 x tag\n2 Q0 c 2 x tag\n1 Q0 e 4 1 tag\n2 Q0 f x\n"
    report = check(tmp_path, content)
    assert {problem.code: problem.lines for problem in report.problems} == {"score": (5, 6), "fields": (8,)}
    assert report.statistics.lines == 7


# --- warnings


def test_judged_queries_missing_is_told_for_open_qrels(tmp_path: Path) -> None:
    qrels = Qrels.from_dict({"2": {"a": 1}, "3": {"a": 1}})
    problem = only(check(tmp_path, GOOD, qrels=qrels, query_ids=["1", "2", "3", "4"], hidden=False))
    assert (problem.severity, problem.code, problem.count) == ("warning", "judged_queries_missing", 1)
    assert problem.message.startswith("1 of the 2 judged queries")


def test_hidden_qrels_change_no_report(tmp_path: Path) -> None:
    """No report reveals which queries or documents are judged."""
    path = tmp_path / "run.txt"
    path.write_text("1 Q0 a 1 3 tag\n1 Q0 zzz 2 2 tag\n")
    reports = []
    for judged in (
        {"2": {"a": 1}},
        {"3": {"zzz": 2}, "1": {"b": 0}},
        {"1": {"a": 1}, "2": {"x": 1}, "3": {"y": 1}},
    ):
        target = ScoringTarget(Qrels.from_dict(judged), ["1", "2", "3"], hidden=True)
        reports += [check_run(path, target), score_run(path, target, ["AP"]).report]
    assert all(report == reports[0] for report in reports)
    problem = only(reports[0])
    assert (problem.severity, problem.code, problem.count) == ("warning", "queries_missing", 2)
    assert "2 of the 3 queries of the dataset" in problem.message


def test_unknown_queries_are_ignored(tmp_path: Path) -> None:
    report = check(tmp_path, GOOD + "3 Q0 a 1 1 tag\n3 Q0 a 1 1 tag\n4 Q0 a 1 1 tag\n3 Q0 b 1 1 tag\n")
    problem = only(report)
    assert (problem.severity, problem.code, problem.count) == ("warning", "unknown_queries", 2)
    assert problem.lines == (4, 5, 6, 7)
    assert "4 lines" in problem.message


def test_depth(tmp_path: Path) -> None:
    problem = only(check(tmp_path, run_of("1", 1003) + run_of("2", 1000)))
    assert (problem.severity, problem.code, problem.count, problem.lines) == ("warning", "depth", 1, (1001,))
    assert "3 lines cut" in problem.message


def test_rank_order(tmp_path: Path) -> None:
    problem = only(check(tmp_path, "1 Q0 a 1 3 t\n1 Q0 b 2 4 t\n1 Q0 c 3 2 t\n2 Q0 a x 1 t\n"))
    assert (problem.severity, problem.code, problem.count, problem.lines) == (
        "warning",
        "rank_order",
        2,
        (2, 4),
    )
    for ranks_that_say_nothing in ("0", "1"):
        run = "".join(
            f"{query} Q0 {name} {ranks_that_say_nothing} {score} t\n"
            for query in "12"
            for name, score in (("a", 1), ("b", 2))
        )
        assert check(tmp_path, run).problems == ()
    assert check(tmp_path, "1 Q0 a 2 3 t\n1 Q0 b 1 4 t\n2 Q0 a 0 1 t\n").problems == ()


@pytest.mark.parametrize("order", [1, -1, 0])
def test_ties(tmp_path: Path, order: int) -> None:
    rows = [("d0", "5"), ("d1", "4.0000000001"), ("d2", "4"), ("d3", "4"), ("d4", "3")][:: order or 1]
    rows = rows if order else [rows[index] for index in (2, 0, 4, 1, 3)]
    report = check(tmp_path, "".join(f"{query} Q0 {name} 1 {score} t\n" for query in "12" for name, score in rows))
    problem = only(report)
    assert (problem.severity, problem.code, problem.count) == ("warning", "ties", 4)


def test_a_few_ties_are_no_problem(tmp_path: Path) -> None:
    assert check(tmp_path, run_of("1", 50) + "1 Q0 other 51 -50 tag\n2 Q0 a 1 1 tag\n").problems == ()


def test_several_tags(tmp_path: Path) -> None:
    report = check(tmp_path, run_of("1", 3) + run_of("2", 2, "other") + "2 Q0 x 3 -9 tag\n")
    problem = only(report)
    assert (problem.severity, problem.code, problem.count, problem.lines) == (
        "warning",
        "several_tags",
        2,
        (4,),
    )
    assert report.statistics.tags == ("tag", "other")
    many = "".join(f"1 Q0 d{number} {number} {-number} tag{number}\n" for number in range(40)) + "2 Q0 a 1 1 tag0\n"
    assert "or more" in only(check(tmp_path, many)).message


# --- other forms


def test_header_comments_are_metadata_and_not_lines(tmp_path: Path) -> None:
    header = (
        "# ir_metadata.start\n# platform:\n#   hardware:\n#     cpu:\n#       model: 'Example'\n#   libraries: [a, b]\n"
        "# method:\n#   automatic: true\n#   retrieval:\n#     - 1: bm25\n"
        "# research goal:\n#   hypotheses: 'none: really'\n"
        "# ir_metadata.end\n# another comment\n"
    )
    report = check(tmp_path, header + GOOD + "2 Q0\n")
    assert only(report).lines == (18,)
    assert report.statistics.metadata == {
        "platform": {"hardware": {"cpu": {"model": "Example"}}, "libraries": ["a", "b"]},
        "method": {"automatic": "true", "retrieval": [{"1": "bm25"}]},
        "research goal": {"hypotheses": "none: really"},
    }
    assert only(check(tmp_path, GOOD + "# not at the top\n")).code == "fields"


@pytest.mark.parametrize(
    ("header", "metadata"),
    [
        ("a: >\n  two\n  lines\nb: {c: [1.0, 'x: y']}", {"a": "two lines\n", "b": {"c": ["1.0", "x: y"]}}),
        ("a: 2026-11-23", {"a": "2026-11-23"}),
        ("a: &b [x, x]\nc: b", {"a": ["x", "x"], "c": "b"}),
        ("a: &b [x, x]\nc: [*b, *b]", {}),
        ("a: " + "[" * 11 + "]" * 11, {"a": [[[[[[[[[[[]]]]]]]]]]]}),
        ("a: " + "[" * 12 + "]" * 12, {}),
        ("a: " + "[" * 100_000, {}),
        ("- " * 100_000, {}),
        ("? " * 100_000, {}),
        ("[a, b]: c", {}),
        ("a: !!python/object/apply:os.system [b]", {"a": ["b"]}),
        ("a: none: really", {}),
        ("a: \x01", {}),
        ("[a]", {}),
    ],
)  # fmt: skip
def test_a_header_is_yaml_of_texts_without_aliases(header: str, metadata: dict[str, object]) -> None:
    comments = "".join(f"# {line}\n" for line in ["ir_metadata.start", *header.split("\n")])
    assert read_header(comments.encode()).metadata == metadata


def test_mteb_predictions_are_a_run(tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    path.write_text(
        '{"mteb_model_meta": {"model_name": "some model"}, "default": {"test": {"1": {"a": 0.5, "b": 0.75}}}}'
    )
    target = ScoringTarget(Qrels.from_dict({"1": {"a": 1}}), hidden=False)
    scored = score_run(path, target, ["RR"])
    assert scored.means == {"RR": 0.5}
    assert scored.report.statistics.tags == ("some_model",)
    assert scored.report.statistics.metadata["mteb_model_meta"] == {"model_name": "some model"}


@pytest.mark.parametrize(("content", "code"), [
    ("{", "json"), ('{"default": {"test": {"1": [1, 2]}}}', "json"), ('{"a": {"x": {}}, "b": {"x": {}}}', "json"),
    ('{"default": {"test": {"1": {"a": "x"}}}}', "score"), ('{"default": {"test": {"1": {"a b": 1}}}}', "identifier"),
    ('{"default": {"test": {"1": {"a": 1e300}}}}', "score"), ('{"default": {"test": {}}}', "empty"),
])  # fmt: skip
def test_predictions_that_are_not_usable(tmp_path: Path, content: str, code: str) -> None:
    with pytest.raises(InvalidRun) as raised:
        score_run_of(tmp_path, content)
    assert code in [problem.code for problem in raised.value.report.errors]


def score_run_of(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run"
    path.write_text(content)
    score_run(path, ScoringTarget(Qrels.from_dict({"1": {"a": 1}})), ["AP"])


# --- any bytes at all

fields = st.one_of(
    st.sampled_from([b"1", b"2", b"Q0", b"a", b"b", b"1.5", b"-1e3", b"nan", b"\xff", b"\xc3\xa9", b"#"]),
    st.binary(max_size=5),
)
separators = st.sampled_from([b" ", b" ", b" ", b"\t", b"\n", b"\n", b"\r\n", b"\x0b", b"\r"])


@given(st.lists(st.tuples(fields, separators), max_size=80))
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_bytes_give_the_report_that_a_line_by_line_reading_gives(
    tmp_path: Path, pieces: list[tuple[bytes, bytes]]
) -> None:
    content = b"1 Q0 first 1 1 t\n" + b"".join(field + separator for field, separator in pieces)
    report = check(tmp_path, content)
    errors: dict[str, list[int]] = {}
    seen = set()
    lines = content.split(b"\n")
    while lines and not lines[-1].split():
        lines.pop()
    for number, line in enumerate(lines, 1):
        code = plain_check(line, seen)
        if code:
            errors.setdefault(code, []).append(number)
    found = {problem.code: (problem.count, list(problem.lines)) for problem in report.errors}
    assert found == {code: (len(numbers), numbers[:5]) for code, numbers in errors.items()}


def plain_check(line: bytes, seen: set[tuple[bytes, bytes]]) -> str | None:
    try:
        line.decode()
    except UnicodeDecodeError:
        return "encoding"
    if b"\0" in line:
        return "encoding"
    parts = line.split()
    if len(parts) != 6:
        return "fields"
    try:
        value = float(parts[4])
    except ValueError:
        return "score"
    if not abs(value) < 3.4e38 or b"_" in parts[4]:
        return "score"
    if parts[0] not in (b"1", b"2"):
        return None
    if (parts[0], parts[2]) in seen:
        return "duplicate"
    seen.add((parts[0], parts[2]))
    return None


def test_measures_that_read_deeper_than_the_run_are_named(tmp_path: Path) -> None:
    measures = (
        "nDCG@10",
        "R@100",
        "AP",
        "RR",
        "RBP",
        "Rprec",
        "Hole@100",
        "Judged@20",
        "R@1000",
        "Judged@60",
    )
    run = tmp_path / "run.txt"
    run.write_text("".join(f"{query} Q0 d{n} {n} {100 - n} tag\n" for query in "12" for n in range(query == "1", 50)))
    report = check_run(run, ScoringTarget(query_ids=["1", "2"], measures=measures))
    problem = only(report)
    assert (problem.severity, problem.code, problem.count) == ("warning", "shallow", 6)
    assert problem.message == (
        "at most 50 documents for a query: R@100, AP, Rprec, R@1000 may be lower and Hole@100, Judged@60 may be higher "
        "or lower than with more documents"
    )
    assert report.valid
    assert report.statistics.depth == 50
    # The longest ranking decides, and a corpus has no more documents than it has.
    capped = ("R@100", "AP", "Rprec", "Hole@100", "R@1000", "Judged@60")
    for documents, shallow in ((50, ()), (51, capped)):
        ids = DocumentIds.build([f"d{n}" for n in range(documents)], tmp_path / "ids")
        assert ScoringTarget(measures=measures, document_ids=ids).capped_measures(50) == shallow
    assert ScoringTarget(measures=measures).capped_measures(1000) == ()
    assert ScoringTarget(measures=measures, candidates_only=True).capped_measures(50) == ()


def test_a_share_of_the_documents_retrieved_may_rise_or_fall(tmp_path: Path) -> None:
    run = tmp_path / "run.txt"
    run.write_text("".join(f"1 Q0 d{n} {n} {100 - n} tag\n" for n in range(5)))
    for measures, names in ((("Hole@10",), "Hole@10"), (("RR", "Hole(beir)@10"), "Hole(beir)@10")):
        problem = only(check_run(run, ScoringTarget(query_ids=["1"], measures=measures)))
        assert problem.message == (
            f"at most 5 documents for a query: {names} may be higher or lower than with more documents"
        )
    assert check_run(run, ScoringTarget(query_ids=["1"], measures=("RR", "P@5"))).problems == ()
