"""Collections in other formats than BEIR's: TREC topics, SMART files and CSV, in folders and zips."""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from evaluation.collections.beir import read_corpus, read_queries
from evaluation.core.problems import InvalidContent, Problem
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.qrels import load_qrels
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset
from leaderboard.results.publishing.visibility import mark_published
from tests.evaluation.real_collections import SHARED
from tests.leaderboard.tiny_collection import good_files, write_folder

pytestmark = pytest.mark.django_db

SGML = """
<top>
<num> Number: 001
<title> Topic: wing  flutter
<desc> Description:
How is flutter
prevented?
<narr> Narrative:
Relevant are wings.
</top>

<top>
<num> Number: 2
<title> heat
<desc> Description:
What conducts heat?
<narr> Narrative:
Anything.
</top>
"""
COVID = """<?xml version="1.0" encoding="utf-8"?>
<topics task="COVIDSearch 2020" batch="5">
  <topic number="1"><query>origin</query><question>where from &amp; how</question><narrative>wide</narrative></topic>
  <topic number="2"><query>weather</query><question>does it matter</question><narrative>narrow</narrative></topic>
</topics>
"""
TRIALS = """<topics task="Clinical Trials">
<topic number="1">
A woman of 45
with a cough.
</topic>
<topic number="2">A man.</topic>
</topics>
"""
BOMB = '<!DOCTYPE t [<!ENTITY a "aaaaaaaa">]>\n<topics><topic number="1">&a;</topic></topics>\n'
QRELS = "1 0 d1 1\n2 0 d2 2\n"
SMART = {
    "cran.all.1400": ".I 1\n.T\nwings\nin air\n.A\nsmith\n.B\nj. of air\n.W\nwings flutter .\n"
    ".I 2\n.T\nheat\n.W\nheat flows\n",
    "cran.qry": ".I 001\n.W\nwhat about\nwings\n.I 004\n.W\nwhat about heat\n",
    "cranqrel": "1 1 1\n1 2 -1\n2 2 4\n",
}
CSV = {
    "corpus.csv": 'id,title,text,year\nd1,"A, title","two\nlines",1999\nd2,,"said ""so""",2000\n',
    "queries.csv": "_id,text\nq1,first\nq2,second\n",
    "qrels.csv": "query-id,corpus-id,score\nq1,d1,1\nq2,d2,2\n",
}


def with_topics(folder: Path, name: str, topics: str) -> Path:
    """The good corpus with TREC topics and judgements."""
    absent = {"queries.jsonl": None, "qrels/test.tsv": None, "qrels/train.tsv": None}
    return write_folder(folder, {**absent, name: topics, "qrels.txt": QRELS})


def write(folder: Path, files: dict[str, str]) -> Path:
    """The files, and no others."""
    return write_folder(folder, {**dict.fromkeys(good_files()), **files})


def take(path: Path, **options: Any) -> ImportResult:
    """Import the path as an open dataset."""
    return import_dataset(path, ImportOptions(slug="tiny", hidden=False, **options))


def queries(imported: ImportResult) -> dict[str, str]:
    """The queries that are stored, by id."""
    return dict(read_queries(path_of(Area.FILES, imported.version.queries_sha256)))


def refused(path: Path, **options: Any) -> Problem:
    """The one problem of a collection of which nothing is stored."""
    with pytest.raises(InvalidContent) as error:
        take(path, **options)
    assert not Dataset.objects.exists()
    (problem,) = error.value.report.problems
    return problem


@pytest.mark.parametrize(
    ("name", "topics", "field", "asked", "expected"),
    [
        ("topics.301-302", SGML, None, "title", {"1": "wing flutter", "2": "heat"}),
        ("topics.txt", SGML, "description", "description",
         {"1": "How is flutter prevented?", "2": "What conducts heat?"}),
        ("my.topics.sgml", SGML, "title+description", "title+description",
         {"1": "wing flutter How is flutter prevented?", "2": "heat What conducts heat?"}),
        ("topics-rnd5.xml", COVID, None, "title", {"1": "origin", "2": "weather"}),
        ("topics-rnd5.xml", COVID, "description", "description", {"1": "where from & how", "2": "does it matter"}),
        ("topics-rnd5.xml", COVID, "narrative", "narrative", {"1": "wide", "2": "narrow"}),
        ("topics2021.xml", TRIALS, None, "text", {"1": "A woman of 45 with a cough.", "2": "A man."}),
    ],
)  # fmt: skip
def test_trec_topics_are_queries_and_the_page_says_which_field_is_asked(
    tmp_path: Path,
    client: Client,
    name: str,
    topics: str,
    field: str | None,
    asked: str,
    expected: dict[str, str],
) -> None:
    imported = take(with_topics(tmp_path, name, topics), topic_field=field)
    assert queries(imported) == expected
    mark_published(imported.dataset)
    page = " ".join(client.get("/datasets/tiny/").content.decode().split())
    assert f"the {asked} of each topic" in page
    assert take(tmp_path, topic_field=field).changes == ()


@pytest.mark.parametrize(
    ("topics", "field", "message", "lines"),
    [
        (BOMB, None, "topics.txt: XML with a DOCTYPE is not supported", (1,)),
        (COVID.replace("</query>", "", 1), None, "topics.txt: not well-formed XML: mismatched tag", (3,)),
        (COVID.replace("&amp;", "&nbsp;"), None, "topics.txt: not well-formed XML: undefined entity", (3,)),
        (SGML.replace("</top>", "", 1), None, "topics.txt: <top> and </top> do not alternate", (12,)),
        (SGML[: SGML.rindex("</top>")], None, "topics.txt: <top> has no </top>", (12,)),
        (SGML.replace("<num> Number: 2\n", ""), None, "topics.txt: a topic without a number", (12,)),
        (SGML.replace("001", "2"), None, "topics.txt: the id of an earlier record", (12,)),
        (TRIALS, "narrative", "topics.txt: a topic has no narrative", (2, 6)),
        ("nothing", None, "topics.txt: not well-formed XML: syntax error", (1,)),
        ("<topics></topics>", None, "topics.txt: there are no topics", ()),
    ],
)
def test_topics_that_cannot_be_read_are_told_with_their_lines(
    tmp_path: Path, topics: str, field: str | None, message: str, lines: tuple[int, ...]
) -> None:
    problem = refused(with_topics(tmp_path, "topics.txt", topics), topic_field=field)
    assert (problem.message, problem.lines) == (message, lines)


def test_a_lacking_field_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    path = with_topics(tmp_path, "topics.xml", TRIALS)
    assert refused(path, topic_field="title").hint.endswith("these topics have text.")


def test_topics_that_are_not_utf8_are_told_with_the_line(tmp_path: Path) -> None:
    with_topics(tmp_path, "topics.txt", SGML)
    (tmp_path / "topics.txt").write_bytes(SGML.replace("Anything", "caf\xe9").encode("latin-1"))
    problem = refused(tmp_path)
    assert (problem.message, problem.lines) == ("topics.txt: not UTF-8", (18,))


def test_more_than_topics_ever_have_is_refused_however_small_it_was_sent(tmp_path: Path) -> None:
    with_topics(tmp_path, "topics.txt", "")
    (tmp_path / "topics.txt").write_bytes(gzip.compress(b" " * 2**25))
    assert refused(tmp_path).message == "topics.txt: the file is over the limit of 16 MiB expanded"


def test_names_that_no_file_here_may_have_are_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("._topics.xml", "\u00e9" * 60 + "topics.xml"):
            archive.writestr(name, COVID)
    with pytest.raises(InvalidContent) as error:
        take(path)
    assert {each.code for each in error.value.report.problems} == {"no_collection"}


def test_a_topic_field_of_other_queries_is_refused(tmp_path: Path) -> None:
    assert refused(write_folder(tmp_path), topic_field="title").code == "topic_field"


def test_beirs_files_go_before_those_of_other_formats(tmp_path: Path) -> None:
    imported = take(write_folder(tmp_path, {"topics.xml": COVID, **CSV}))
    assert set(queries(imported)) == {"q1", "q2", "q3"}
    assert "topic_field" not in imported.version.statistics


@pytest.mark.parametrize("packed", ["folder", "zip", "gz"])
def test_a_smart_collection_is_taken(tmp_path: Path, packed: str) -> None:
    """Cranfield's queries are judged by their place, and its codes fall."""
    path = write(tmp_path / "cran", SMART if packed != "gz" else {})
    if packed == "gz":
        for name, content in SMART.items():
            (path / f"{name}.gz").parent.mkdir(exist_ok=True)
            (path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    if packed == "zip":
        path = tmp_path / "cran.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in SMART.items():
                archive.writestr(f"cran/{name}", content)
    imported = take(path)
    assert queries(imported) == {"1": "what about wings", "4": "what about heat"}
    documents = list(read_corpus(path_of(Area.FILES, imported.version.corpus_sha256)))
    assert [tuple(each) for each in documents] == [
        ("1", "wings in air", "wings flutter ."),
        ("2", "heat", "heat flows"),
    ]
    assert imported.qrels is not None
    assert load_qrels(imported.qrels).as_dict() == {"1": {"1": 4, "2": 0}, "4": {"2": 1}}


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        ("     1      1\t0\t0.000000\n     4      2\t0\t0.000000\n", {"1": {"1": 1}, "4": {"2": 1}}),
        ("1 0 1 1\n4 0 2 1\n", {"1": {"1": 1}, "4": {"2": 1}}),
    ],
)
def test_judgements_of_cisi_and_of_med_are_told_apart(
    tmp_path: Path, judged: str, expected: dict[str, dict[str, int]]
) -> None:
    files = {"X.ALL": SMART["cran.all.1400"], "X.QRY": SMART["cran.qry"], "X.REL": judged}
    imported = take(write(tmp_path, files))
    assert imported.qrels is not None
    assert load_qrels(imported.qrels).as_dict() == expected


@pytest.mark.parametrize(
    ("name", "content", "message", "lines"),
    [
        ("cran.qry", "wings\n", "cran.qry: text before the first field of a record", (1,)),
        ("cran.qry", ".I 1\n.W\na\n.I 001\n.W\nb\n", "cran.qry: the id of an earlier record", (4,)),
        ("cran.all.1400", ".I\n", "cran.all.1400: .I without an id", (1,)),
        ("cran.all.1400", "", "cran.all.1400: there are no records", ()),
        ("cranqrel", "1 1 1\n1 2\n1 x 3 4 5\n", "cranqrel: a line that is not a judgment", (2, 3)),
    ],
)
def test_smart_files_that_cannot_be_read_are_told_with_their_lines(
    tmp_path: Path, name: str, content: str, message: str, lines: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidContent) as error:
        take(write(tmp_path, {**SMART, name: content}))
    found = {(each.message, each.lines) for each in error.value.report.problems}
    assert (message, lines) in found
    assert not Dataset.objects.exists()


@pytest.mark.parametrize("packed", ["folder", "zip"])
@pytest.mark.parametrize("judged", ["qrels.csv", "qrels/test.csv"])
def test_csv_is_taken(tmp_path: Path, packed: str, judged: str) -> None:
    files = {"corpus.csv": CSV["corpus.csv"], "queries.csv": CSV["queries.csv"], judged: CSV["qrels.csv"]}
    path = write(tmp_path / "files", files)
    if packed == "zip":
        path = tmp_path / "tables.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    imported = take(path)
    documents = list(read_corpus(path_of(Area.FILES, imported.version.corpus_sha256)))
    assert [tuple(each) for each in documents] == [("d1", "A, title", "two\nlines"), ("d2", "", 'said "so"')]
    assert imported.qrels is not None
    assert load_qrels(imported.qrels).as_dict() == {"q1": {"d1": 1}, "q2": {"d2": 2}}


@pytest.mark.parametrize(
    ("name", "content", "message", "lines"),
    [
        (
            "queries.csv",
            "id,wording\nq1,what\n",
            "queries.csv: no value in the column text (the columns are id, wording)",
            (2,),
        ),
        (
            "qrels.csv",
            "person,corpus-id,score\nq1,d1,1\n",
            "qrels.csv: no value in the column query-id (the columns are person, corpus-id, score)",
            (2,),
        ),
        ("corpus.csv", "id,text\nd1,a,b\n", "corpus.csv: a different number of fields than the header", (2,)),
        ("corpus.csv", 'id,text\nd1,"open\n', "corpus.csv: not valid CSV: unexpected end of data", (2,)),
    ],
)
def test_tables_that_cannot_be_read_are_told_with_their_lines(
    tmp_path: Path, name: str, content: str, message: str, lines: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidContent) as error:
        take(write(tmp_path, {**CSV, name: content}))
    assert (message, lines) in {(each.message, each.lines) for each in error.value.report.problems}
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ({"id": 1, "contents": "wings"}, {"qid": "q1", "query": "what"}),
        (
            {"docid": "1", "title": "t", "body": "wings", "url": "http://…"},
            {"query_id": "q1", "text": "what"},
        ),
        ({"_id": "1", "passage": "wings", "title": None}, {"_id": "q1", "question": "what"}),
    ],
)
def test_json_lines_with_other_names_are_taken(tmp_path: Path, document: dict[str, Any], query: dict[str, Any]) -> None:
    files = {"corpus.jsonl": json.dumps(document), "queries.jsonl": json.dumps(query)}
    imported = take(write(tmp_path, {**files, "qrels.csv": "qid,docid,rel\nq1,1,1\n"}))
    (found,) = read_corpus(path_of(Area.FILES, imported.version.corpus_sha256))
    assert (found.id, found.text) == ("1", "wings")
    (asked,) = read_queries(path_of(Area.FILES, imported.version.queries_sha256))
    assert asked == ("q1", "what")


def test_nan_in_json_lines_with_other_names_is_read_as_null(tmp_path: Path) -> None:
    corpus = '{"docid": 1, "title": NaN, "contents": "wings"}\n{"docid": 2, "title": "t", "contents": NaN}\n'
    files = {"corpus.jsonl": corpus, "queries.jsonl": '{"qid": "q1", "query": "what"}'}
    imported = take(write(tmp_path, {**files, "qrels.csv": "qid,docid,rel\nq1,1,1\n"}))
    documents = list(read_corpus(path_of(Area.FILES, imported.version.corpus_sha256)))
    assert documents == [("1", "", "wings"), ("2", "t", "")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"docid": NaN, "contents": "a"}', "no value in the column _id (the columns are docid, contents)"),
        ('{"docid": 2, "contents": Infinity}', "'inf' is neither a text nor a whole number"),
    ],
)
def test_other_values_that_are_not_finite_are_refused_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    files = {
        "corpus.jsonl": f'{{"docid": 1, "contents": "wings"}}\n{line}\n',
        "queries.csv": CSV["queries.csv"],
    }
    problem = refused(write(tmp_path, {**files, "qrels.csv": CSV["qrels.csv"]}))
    assert (problem.message, problem.lines) == (f"corpus.jsonl: {message}", (2,))


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"_id": "1", "body": "wings", "passage": "of wings"}, "missing_text"),
        ({"_id": "1", "question": "what", "answer": "wings"}, "missing_text"),
        ({"id": 1.0, "contents": "wings"}, "unreadable_format"),
        ({"id": "1", "contents": ["wings"]}, "unreadable_format"),
    ],
)
def test_json_lines_that_leave_a_doubt_are_refused(tmp_path: Path, document: dict[str, Any], code: str) -> None:
    files = {"corpus.jsonl": json.dumps(document), "queries.jsonl": '{"_id": "q1", "text": "what"}'}
    problem = refused(write(tmp_path, {**files, "qrels.csv": "qid,docid,rel\nq1,1,1\n"}))
    assert problem.code == code


def test_two_files_of_the_same_part_are_ambiguous(tmp_path: Path) -> None:
    problem = refused(write(tmp_path, {**SMART, "topics.xml": COVID}))
    assert (problem.code, problem.message) == (
        "ambiguous_files",
        "cran.qry and topics.xml contain the same part of the collection",
    )


def test_the_command_asks_for_the_field(tmp_path: Path) -> None:
    path = with_topics(tmp_path, "topics.xml", COVID)
    call_command("import_dataset", str(path), slug="tiny", topic_field="narrative", stdout=StringIO())
    assert Dataset.objects.get().current_version.statistics["topic_field"] == "narrative"
    with pytest.raises(CommandError, match="--topic-field: invalid choice"):
        call_command("import_dataset", str(path), "--slug=tiny", "--topic-field=summary", stdout=StringIO())


@pytest.mark.long
@pytest.mark.parametrize("form", ["csv", "smart"])
def test_cranfield_in_another_format_has_the_same_content(tmp_path: Path, form: str) -> None:
    source = SHARED / "data" / "cranfield"
    if not source.is_dir():
        pytest.skip("Cranfield is not there (RUNBOARD_SHARED names its folder)")
    documents, asked = (
        list(read_corpus(source / "corpus.jsonl")),
        list(read_queries(source / "queries.jsonl")),
    )
    judged = [line.split("\t") for line in (source / "qrels/test.tsv").read_text().splitlines()[1:]]
    if form == "csv":
        for name, rows in {
            "corpus": [("_id", "title", "text"), *documents],
            "queries": [("_id", "text"), *asked],
            "qrels": [("query-id", "corpus-id", "score"), *judged],
        }.items():
            with (tmp_path / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows(rows)
    else:
        (tmp_path / "CRAN.ALL").write_text("".join(f".I {d.id}\n.T\n{d.title}\n.W\n{d.text}\n" for d in documents))
        (tmp_path / "CRAN.QRY").write_text("".join(f".I {q.id}\n.W\n{q.text}\n" for q in asked))
        (tmp_path / "CRAN.REL").write_text("".join(f"{q} {d} {1 if int(g) else -1}\n" for q, d, g in judged))
    imported = take(tmp_path)
    assert imported.version.statistics["documents"] == len(documents)
    assert imported.version.statistics["words_per_document"] == pytest.approx(
        sum(len(f"{d.title} {d.text}".split()) for d in documents) / len(documents)
    )
    assert queries(imported) == {query.id: " ".join(query.text.split()) for query in asked}
    assert imported.qrels is not None
    graded = load_qrels(imported.qrels).as_dict()
    assert sum(grade > 0 for grades in graded.values() for grade in grades.values()) == 1612
    assert json.dumps(sorted(graded)) == json.dumps(sorted({query for query, _, _ in judged}))
