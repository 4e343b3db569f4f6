"""Judgement files with all that is wrong in them, and merging what is right."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import InvalidContent, Problem
from evaluation.judgements import import_file
from evaluation.judgements.import_file import NewJudgements, guard_cell, read_judgements, unguard_cell
from evaluation.judgements.merge import Conflict, MergePolicy, compare, merge, write_judgements
from evaluation.judgements.qrels import read_grades, read_qrels

QUERIES = {"q1", "q2", "=q3"}

ids = st.sampled_from([b"a", b"b", b"c"])
grades = st.dictionaries(ids, st.dictionaries(ids, st.integers(0, 3), min_size=1), max_size=3)
old_grades = st.dictionaries(ids, st.dictionaries(ids, st.integers(-1, 3), min_size=1), max_size=3)


def read(tmp_path: Path, text: str | bytes, highest: int = 2, *, strict: bool = False) -> NewJudgements:
    """Return the judgments in a file, for documents d1 to d9."""
    path = tmp_path / "judgements"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    documents = DocumentIds.build((f"d{number}" for number in range(1, 10)), tmp_path / "ids")
    return read_judgements(path, QUERIES, documents, highest=highest, strict=strict)


def problems(tmp_path: Path, text: str | bytes, highest: int = 2) -> dict[str, Problem]:
    """Return the file's problems by code."""
    with pytest.raises(InvalidContent) as caught:
        read(tmp_path, text, highest, strict=True)
    return {each.code: each for each in caught.value.report.problems}


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 d1 1\nq1 0 d2 -1\nq2 0 d1 0\n",
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t-2\nq2\td1\t0\n",
        "q1\td1\t1\nq1\td2\t-1\nq2\td1\t0\n",
        "item,query_id,query,document_id,title,text,grade\r\n"
        '1,q1,what?,d1,"A, title","two\r\nlines",1\r\n2,q1,what?,d2,,,\r\n3,q2,who?,d1,,"say ""it""",0\r\n',
        "\ufeffquery_id;document_id;grade\nq1;d1;1\nq1;d2;\nq2;d1;0\n",
    ],
    ids=["TREC", "BEIR", "BEIR without header", "a pool's CSV", "a spreadsheet's CSV"],
)
def test_every_form_says_the_same(tmp_path: Path, text: str) -> None:
    for content in (text.encode(), gzip.compress(text.encode())):
        found = read(tmp_path, content)
        assert found.grades == {b"q1": {b"d1": 1}, b"q2": {b"d1": 0}}
        assert (found.lines, found.unjudged, found.pairs) == (3, 1, 2)


def test_everything_that_is_wrong_is_listed_with_its_first_lines(tmp_path: Path) -> None:
    lines = ["q1 0 d1 1", "q1 0 d1 1", "q1 0 d1 2", "q9 0 d1 1", "q1 0 d99 1", "q1 0 d2 good", "q1 0 d3 11",
             "q1 0 d4 -3", "q1 d5 1", *["q8 0 d1 1"] * 6]  # fmt: skip
    found = problems(tmp_path, "\n".join(lines))
    assert {code: (each.count, each.lines) for code, each in found.items()} == {
        "duplicate": (6, (2, 11, 12, 13, 14)),
        "contradictory": (1, (3,)),
        "unknown_query": (7, (4, 10, 11, 12, 13)),
        "unknown_document": (1, (5,)),
        "grade": (3, (6, 7, 8)),
        "fields": (1, (9,)),
    }
    assert found["grade"].message == "a grade that is not a whole number from -2 to 10: 3 lines"
    assert all(each.hint for each in found.values())


def test_documents_that_the_corpus_lacks_are_counted_unless_there_are_no_others(tmp_path: Path) -> None:
    found = read(tmp_path, "q1 0 d1 1\nq1 0 d98 0\nq2 0 d99 1\n")
    assert (found.missing, found.grades[b"q2"]) == (2, {b"d99": 1})
    with pytest.raises(InvalidContent, match="a document that is not in the dataset: 1 line"):
        read(tmp_path, "q1 0 d98 1\n")


def test_lines_of_a_csv_are_those_of_the_file(tmp_path: Path) -> None:
    text = 'query_id,document_id,text,grade\nq1,d1,"one\ntwo\nthree",1\nq9,d1,,1\nq1,d2\n'
    found = problems(tmp_path, text)
    assert found["unknown_query"].lines == (5,)
    assert found["fields"].lines == (6,)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("query_id,document_id,grade\nq1,d1,\n", "nothing_judged"),
        (b"q1 0 d\xff 1\n", "encoding"),
        ('query_id,document_id,grade\nq1,d1,"1\n', "fields"),
        (f"q1 0 {'d' * 257} 1\n", "identifier"),
        (b"PK\x03\x04", "compression"),
    ],
)
def test_files_that_are_no_judgements_are_refused(tmp_path: Path, text: str | bytes, code: str) -> None:
    assert code in problems(tmp_path, text)


def test_a_small_file_of_very_many_lines_is_refused_soon(tmp_path: Path) -> None:
    found = problems(tmp_path, gzip.compress(b"q1 0 d2 1\n" * 300_000, 1))
    assert list(found) == ["expansion"]
    assert problems(tmp_path, b"q1 0 d2 " + b"1" * 4_000_000)["line_length"].count == 1


@pytest.mark.parametrize(("limit", "text"), [("MAX_JUDGEMENTS", "q1 0 d1 1\n"), ("MAX_LINES", "\n")])
def test_so_many_lines_are_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, text: str
) -> None:
    monkeypatch.setattr(import_file, limit, 50)
    assert problems(tmp_path, text * 51)["too_many"].message == "more than 50 lines"


def test_what_is_wrong_very_often_takes_no_memory(tmp_path: Path) -> None:
    text = "q1 0 d1 1\n" * 50_000
    tracemalloc.start()
    found = problems(tmp_path, text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found["duplicate"].count, found["duplicate"].lines) == (49_999, (2, 3, 4, 5, 6))
    assert most < 8 * 2**20


def test_a_dataset_may_know_higher_grades(tmp_path: Path) -> None:
    assert read(tmp_path, "q1 0 d1 12", highest=12).pairs == 1


@given(st.text(max_size=8))
def test_guards_against_formulas_can_be_taken_off(cell: str) -> None:
    assert not guard_cell(cell).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unguard_cell(guard_cell(cell)) == cell


def test_a_guarded_id_is_read_as_it_was(tmp_path: Path) -> None:
    out = io.StringIO()
    csv.writer(out).writerows([["query_id", "document_id", "grade"], [guard_cell("=q3"), "d1", "1"]])
    assert read(tmp_path, out.getvalue()).grades == {b"=q3": {b"d1": 1}}
    assert read(tmp_path, "query_id,document_id,grade\n=q3,d1,1\n").grades == {b"=q3": {b"d1": 1}}


@given(old=old_grades, new=grades, policy=st.sampled_from(MergePolicy))
def test_a_merge_has_all_of_both_and_the_policy_decides(
    old: dict[bytes, dict[bytes, int]], new: dict[bytes, dict[bytes, int]], policy: MergePolicy
) -> None:
    before, held = {query: dict(graded) for query, graded in old.items()}, compare(old, new)
    merged = merge(old, new, policy)
    assert old == before
    changed = 0
    for query in {*old, *new}:
        for document in {*old.get(query, {}), *new.get(query, {})}:
            was, said = old.get(query, {}).get(document, -1), new.get(query, {}).get(document)
            got = merged[query][document]
            if said is None:
                assert got == was
            elif was < 0 or policy == MergePolicy.REPLACE:
                assert got == said
            else:
                assert got == (was if policy == MergePolicy.KEEP else max(was, said))
            changed += got != was
    assert changed == held.changes(policy)
    assert held.new + held.same + len(held.conflicts) == sum(map(len, new.values()))


def test_conflicts_are_listed_in_order() -> None:
    held = compare({b"q": {b"b": 1, b"a": 0}}, {b"q": {b"b": 0, b"a": 2, b"c": 1}, b"r": {b"a": 1}})
    assert held.conflicts == (Conflict("q", "a", 0, 2), Conflict("q", "b", 1, 0))
    assert held.counts() == {
        "new": 2, "same": 0, "conflicts": 2, "raised": 1, "lowered": 1, "queries": 2, "new_queries": 1,
    }  # fmt: skip


def test_equal_judgements_give_equal_files_and_negative_grades_survive(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_judgements({b"q": {b"b": 1, b"a": -1}, b"p": {b"c": 2}}, one)
    write_judgements({b"p": {b"c": 2}, b"q": {b"a": -1, b"b": 1}}, other)
    assert one.read_bytes() == other.read_bytes()
    assert read_grades(one) == {b"p": {b"c": 2}, b"q": {b"a": -1, b"b": 1}}
    assert read_qrels(one).as_dict() == {"p": {"c": 2}, "q": {"b": 1}}
