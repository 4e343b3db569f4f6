"""The demo collection: what is in it, that it is the same every time, and how hard it is."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
import pytrec_eval

from evaluation.collections.check import check_corpus, check_queries
from evaluation.engines import RetrievalTask, retrieve
from evaluation.runs.score import ScoringTarget, check_run
from leaderboard.importing.demo.stdlib_search import VERSION, build_stdlib_search
from leaderboard.importing.examples import MISTAKES, write_broken_run
from leaderboard.importing.topics.code_search import first_sentence, split_words

MODULE = '''
def top(a):
    """Return the top of the given heap."""
    return a[0]

def no_docstring(): return 1

class Thing:
    """Not a document itself."""
    def method(self):
        """Do the thing, once and for all.

        More about it.
        """
        self.done = True  # é

    async def wait(self): "Wait for the thing to be done."; return 2

    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        def inner(): pass

if True:
    def hidden(): pass
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stdlib_search(tmp_path_factory.mktemp("stdlib"))


@pytest.fixture(scope="module")
def run(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.txt"
    retrieve(RetrievalTask("bm25", built / "corpus.jsonl", built / "queries.jsonl", path))
    return path


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "lib"
    for name in ("pkg/__init__.py", "test/support.py", "config-3.11/x.py", "site-packages/y.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(MODULE, "utf-8")
    (folder / "broken.py").write_text("def (", "utf-8")
    return folder


def documents_of(built: Path) -> dict[str, dict[str, str]]:
    records = map(json.loads, (built / "corpus.jsonl").read_text("utf-8").splitlines())
    return {record["_id"]: record for record in records}


def test_documents_are_functions_and_methods_without_docstrings(library: Path, tmp_path: Path) -> None:
    documents = documents_of(build_stdlib_search(tmp_path / "out", library))
    assert {name: record["text"] for name, record in documents.items()} == {
        "pkg.top": "def top(a):\n    return a[0]",
        "pkg.no_docstring": "def no_docstring(): return 1",
        "pkg.Thing.method": "def method(self):\n    self.done = True  # é",
        "pkg.Thing.wait": "async def wait(self): ; return 2",
        "pkg.Thing.size": "def size(self):\n    return 1",
    }
    assert documents["pkg.no_docstring"]["title"] == "pkg no docstring"


def test_queries_are_first_sentences_that_only_one_function_has(library: Path, tmp_path: Path) -> None:
    built = build_stdlib_search(tmp_path / "out", library)
    texts = [json.loads(line)["text"] for line in (built / "queries.jsonl").read_text("utf-8").splitlines()]
    assert sorted(texts) == [
        "Do the thing, once and for all.",
        "Return the top of the given heap.",
        "Wait for the thing to be done.",
    ]
    assert (built / "qrels" / "test.tsv").read_text("utf-8").splitlines()[0] == "query-id\tcorpus-id\tscore"


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("One  line.\nSecond.", "One line."),
        ("Split over\ntwo lines\n\nNext", "Split over two lines"),
        ("Uses e.g.this. Yes", "Uses e.g.this."),
        ("", ""),
    ],
)
def test_first_sentence(docstring: str, expected: str) -> None:
    assert first_sentence(docstring) == expected


def test_words_of_a_name() -> None:
    assert split_words("xml.sax.handler.ContentHandler.__init__") == "xml sax handler Content Handler init"


def test_the_collection_of_this_python(built: Path) -> None:
    corpus, queries = check_corpus(built / "corpus.jsonl"), check_queries(built / "queries.jsonl")
    assert 8_000 < corpus.records < 25_000
    assert queries.records == 300
    assert 5 <= queries.mean_words <= 30
    assert platform.python_version() in VERSION


@pytest.mark.long
def test_the_same_python_makes_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = build_stdlib_search(tmp_path)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert (built / name).read_bytes() == (again / name).read_bytes()


def test_bm25_finds_some_but_not_all(built: Path, run: Path) -> None:
    qrels: dict[str, dict[str, int]] = {}
    for line in (built / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        qrels.setdefault(query, {})[document] = int(grade)
    with run.open(encoding="utf-8") as file:
        scores = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(pytrec_eval.parse_run(file))
    assert 0.20 < sum(score["ndcg_cut_10"] for score in scores.values()) / len(qrels) < 0.40


def test_the_broken_run_is_told_line_by_line(built: Path, run: Path, tmp_path: Path) -> None:
    write_broken_run(run, tmp_path / "broken.txt")
    mistakes: dict[str, tuple[int, ...]] = {}
    for number, (code, _) in MISTAKES.items():
        mistakes[code] = (*mistakes.get(code, ()), number)
    queries = [json.loads(line)["_id"] for line in (built / "queries.jsonl").read_text("utf-8").splitlines()]
    assert check_run(run, ScoringTarget(query_ids=queries)).valid
    report = check_run(tmp_path / "broken.txt", ScoringTarget(query_ids=queries))
    assert {problem.code: problem.lines for problem in report.errors} == mistakes
