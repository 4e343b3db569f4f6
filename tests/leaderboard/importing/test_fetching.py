"""`import_dataset --from`: collections from a hub on this machine, and by a stand-in for ir_datasets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pyarrow import parquet

from evaluation.archives import hub as evaluation_hub
from leaderboard.datasets.qrels import excluded_documents, load_qrels
from leaderboard.importing.collections import fetching
from leaderboard.models import Dataset, DatasetVersion
from leaderboard.results.publishing.visibility import mark_published
from tests.leaderboard.tiny_collection import good_files, lines_of
from tests.servers.hub import COMMIT, FakeHub, answering

pytestmark = pytest.mark.django_db

NAME = "mteb/tiny"
QRELS = [
    {"query-id": "q1", "corpus-id": "d1", "score": 2.0},
    {"query-id": "q2", "corpus-id": "d3", "score": 1.0},
]


def in_parquet(rows: list[dict[str, Any]]) -> bytes:
    """The rows as a Parquet file."""
    file = BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A mirror of the hub with one collection."""
    good = good_files()
    files = {
        "README.md": b"---\n",
        "corpus.jsonl": good["corpus.jsonl"].encode(),
        "queries.jsonl": good["queries.jsonl"].encode(),
        "qrels/test.jsonl": lines_of(QRELS).encode(),
    }
    with answering(FakeHub("datasets", NAME, files), monkeypatch) as fake:
        yield fake


def take(source: str, *options: str) -> DatasetVersion:
    """Import from the source, as an operator does."""
    call_command("import_dataset", "--from", source, "--slug=tiny", "--open", *options, stdout=StringIO())
    version = Dataset.objects.get(slug="tiny").current_version
    assert version is not None
    return version


def refused(source: str, *options: str) -> str:
    """What the operator is told; nothing is stored."""
    with pytest.raises(CommandError) as error:
        take(source, *options)
    assert not Dataset.objects.exists()
    return str(error.value)


@pytest.mark.parametrize("revision", ["", "@v1", f"@{COMMIT}"])
def test_a_collection_on_the_hub_is_pinned_to_a_commit_that_its_page_shows(
    mirror: FakeHub, client: Client, revision: str
) -> None:
    version = take(f"hf:{NAME}{revision}")
    assert (version.label, version.statistics["source"]) == (f"{NAME}@0123456789ab", f"hf:{NAME}@{COMMIT}")
    dataset = version.dataset
    assert dataset.current_qrels is not None
    assert load_qrels(dataset.current_qrels).as_dict() == {"q1": {"d1": 2}, "q2": {"d3": 1}}
    assert not [path for path in mirror.asked if "README" in path]
    mark_published(dataset)
    page = client.get("/datasets/tiny/").content.decode()
    assert f"hf:{NAME}@{COMMIT}" in page


def test_parquet_is_taken(mirror: FakeHub) -> None:
    in_lines = take(f"hf:{NAME}")
    documents = [json.loads(line) for line in mirror.files["corpus.jsonl"].splitlines()]
    queries = [json.loads(line) for line in mirror.files["queries.jsonl"].splitlines()]
    mirror.files = {
        "corpus/corpus-00000-of-00002.parquet": in_parquet(documents[:2]),
        "corpus/corpus-00001-of-00002.parquet": in_parquet(documents[2:]),
        "queries/queries-00000-of-00001.parquet": in_parquet([{"id": q["_id"], "text": q["text"]} for q in queries]),
        "data/test-00000-of-00001.parquet": in_parquet(QRELS),
    }
    in_parquet_files = take(f"hf:{NAME}")
    counts = ("documents", "queries", "words_per_document", "share_with_titles")
    assert [in_lines.statistics[name] for name in counts] == [in_parquet_files.statistics[name] for name in counts]


def test_a_split_of_bright_comes_with_its_excluded_documents(mirror: FakeHub) -> None:
    rows = [{"id": f"d{number}", "content": f"words of {number}"} for number in range(1, 5)]
    examples = [
        {"id": "1", "query": "a post", "gold_ids": ["d1", "d1"], "excluded_ids": ["d2", "d2", "gone"]},
        {"id": "2", "query": "another", "gold_ids": ["d3"], "excluded_ids": ["N/A"]},
    ]
    mirror.files = {
        "documents/biology-00000-of-00001.parquet": in_parquet(rows),
        "documents/pony-00000-of-00001.parquet": b"is not fetched",
        "examples/biology-00000-of-00001.parquet": in_parquet(examples),
        "examples/pony-00000-of-00001.parquet": b"is not fetched",
    }
    version = take(f"hf:{NAME}", "--split=biology")
    assert (version.statistics["documents"], version.statistics["queries"]) == (4, 2)
    excluded, judged = excluded_documents(version), version.dataset.current_qrels
    assert excluded is not None
    assert excluded.as_dict() == {"1": {"d2": 0, "gone": 0}}
    assert judged is not None
    assert load_qrels(judged).as_dict() == {"1": {"d1": 1}, "2": {"d3": 1}}
    assert not [path for path in mirror.asked if "pony" in path]


@pytest.mark.parametrize(("gold", "excluded"), [(1, ["N/A"]), ("d1", ["N/A"]), ([["d1"]], []), (["d1"], "d2")])
def test_examples_of_bright_without_lists_of_ids_are_refused(mirror: FakeHub, gold: Any, excluded: Any) -> None:
    row = {"id": "1", "query": "a post", "gold_ids": gold, "excluded_ids": excluded}
    mirror.files = {
        "documents/biology-0.parquet": in_parquet([{"id": "d1", "content": "words"}]),
        "examples/biology-0.parquet": in_parquet([row]),
    }
    assert "_ids is not a list of ids" in refused(f"hf:{NAME}", "--split=biology")


def test_judgements_without_a_column_of_grades_are_of_grade_1(mirror: FakeHub) -> None:
    del mirror.files["qrels/test.jsonl"]
    pairs = [{name: row[name] for name in ("query-id", "corpus-id")} for row in QRELS]
    mirror.files["qrels/train-0.parquet"] = in_parquet(pairs)
    judged = take(f"hf:{NAME}", "--split=train").dataset.current_qrels
    assert judged is not None
    assert load_qrels(judged).as_dict() == {"q1": {"d1": 1}, "q2": {"d3": 1}}


def test_without_pyarrow_it_is_said_what_to_install(mirror: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.files["corpus/corpus-00000-of-00001.parquet"] = mirror.files.pop("corpus.jsonl")
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: None)
    assert "make install-collections" in refused(f"hf:{NAME}")
    assert len(mirror.asked) == 1


def test_a_wrong_revision_is_told(mirror: FakeHub) -> None:
    assert f"no public repository {NAME} at {'f' * 40}" in refused(f"hf:{NAME}@{'f' * 40}")
    mirror.commit = "e" * 40
    assert "the hub answered with another commit" in refused(f"hf:{NAME}@{COMMIT}")
    mirror.commit = "main"
    assert "the hub answered with another commit: main" in refused(f"hf:{NAME}")


def test_half_a_download_is_told(mirror: FakeHub) -> None:
    mirror.sent["corpus.jsonl"] = mirror.files["corpus.jsonl"][:50]
    assert "the download of corpus.jsonl is incomplete or damaged" in refused(f"hf:{NAME}")


def test_a_file_with_another_checksum_is_told(mirror: FakeHub) -> None:
    data = in_parquet([json.loads(line) for line in mirror.files.pop("corpus.jsonl").splitlines()])
    mirror.files["corpus-0.parquet"], mirror.sent["corpus-0.parquet"] = data, data[:-1] + b"?"
    assert "the download of corpus-0.parquet is incomplete or damaged" in refused(f"hf:{NAME}")


def test_more_than_was_said_is_cut_off(mirror: FakeHub) -> None:
    mirror.sent["corpus.jsonl"] = mirror.files["corpus.jsonl"] + b"x" * 10**6
    assert "corpus.jsonl is larger than the hub reported" in refused(f"hf:{NAME}")


def test_more_than_the_disk_holds_is_refused_before_it_is_fetched(mirror: FakeHub) -> None:
    mirror.sizes["corpus.jsonl"] = 2**60
    assert "and needs 4 times as much disk space" in refused(f"hf:{NAME}")
    assert len(mirror.asked) == 1


def test_a_page_in_place_of_an_answer_is_told(mirror: FakeHub) -> None:
    mirror.page = b"<!doctype html><title>Sign in</title>"
    assert "the hub's answer is not JSON" in refused(f"hf:{NAME}")


def test_a_page_in_place_of_a_file_is_told(mirror: FakeHub) -> None:
    mirror.sent["queries.jsonl"] = b"<!doctype html><title>Sign in</title>"
    assert "the download of queries.jsonl is incomplete or damaged" in refused(f"hf:{NAME}")


def test_a_slow_mirror_is_given_up(mirror: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_hub, "TIMEOUT", 0.2)
    monkeypatch.setattr(evaluation_hub, "MIN_RATE", 10**9)
    mirror.slow = True
    mirror.files["corpus.jsonl"] *= 2000
    assert "corpus.jsonl arrives too slowly" in refused(f"hf:{NAME}")
    mirror.files |= {f"shard-{number}.bin": b"" for number in range(6000)}
    assert "the hub's listing arrives too slowly" in refused(f"hf:{NAME}")


def test_a_hub_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert "the hub cannot be reached" in refused(f"hf:{NAME}")


def test_renamed_columns_are_told(mirror: FakeHub) -> None:
    mirror.files["qrels/test.jsonl"] = b'{"person": "q1", "doc": "d1", "score": 1}\n'
    assert "no value in the column query-id (the columns are person, doc, score)" in refused(f"hf:{NAME}")


@pytest.mark.parametrize("part", ["corpus.jsonl", "queries.jsonl", "qrels/test.jsonl"])
def test_a_repository_that_lacks_a_part_is_told_before_it_is_fetched(mirror: FakeHub, part: str) -> None:
    del mirror.files[part]
    assert f"the repository has no {part.partition('.')[0]}" in refused(f"hf:{NAME}")
    assert len(mirror.asked) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "ftp:x"], "Enter hf:OWNER/NAME"),
        (["--from", "hf:../etc"], "is not a repository name"),
        (["--from", "hf:a/b", "folder"], "either a folder or zip"),
        ([], "either a folder or zip"),
    ],
)
def test_a_source_is_named_plainly(words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("import_dataset", *words, "--slug=tiny", stdout=StringIO())


class Doc(NamedTuple):
    """A document as ir_datasets hands it out."""

    doc_id: str
    text: str
    title: str


class Page(NamedTuple):
    """A document with other fields."""

    doc_id: str
    body: str

    def default_text(self) -> str:
        """What ir_datasets makes of its fields."""
        return f"all of {self.body}"


class TrecQuery(NamedTuple):
    """A topic as ir_datasets hands it out."""

    query_id: str
    title: str
    description: str


class Judged(NamedTuple):
    """A judgement as ir_datasets hands it out."""

    query_id: str
    doc_id: str
    relevance: int
    iteration: str


class Catalogued:
    """A dataset of the catalogue; `error` is raised where its documents are read."""

    def __init__(self, documents: list[Any], error: Exception | None = None) -> None:
        self.documents, self.error = documents, error
        self.grades: dict[int, str] = {}

    def has_docs(self) -> bool:
        return True

    has_queries = has_docs

    def has_qrels(self) -> bool:
        return bool(self.documents)

    def docs_metadata(self) -> dict[str, int]:
        return {"count": len(self.documents)}

    def docs_iter(self) -> Iterator[Any]:
        yield from self.documents
        if self.error:
            raise self.error

    def queries_iter(self) -> Iterator[TrecQuery]:
        return iter([TrecQuery("1", "wings", "what of wings"), TrecQuery("2", "heat", "what of heat")])

    def qrels_iter(self) -> Iterator[Judged]:
        judged = [Judged("1", "d1", 1, "0"), Judged("2", "d2", -1, "0")]
        return iter([*judged, Judged("1", "d2", -100, "0")] if self.grades else judged)

    def qrels_defs(self) -> dict[int, str]:
        return self.grades


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> dict[str, Catalogued]:
    """What stands for ir_datasets' registry."""
    known = {"tiny/test": Catalogued([Doc("d1", "about wings", "Wings"), Page("d2", "heat")])}
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=known.__getitem__, __version__="0.6.3"))  # type: ignore[arg-type]
    return known


@pytest.mark.parametrize(("field", "words"), [("title", 1), ("description", 3)])
def test_a_dataset_of_the_catalogue_is_taken(
    catalogue: dict[str, Catalogued], client: Client, field: str, words: int
) -> None:
    version = take("ir_datasets:tiny/test", f"--topic-field={field}")
    assert version.statistics["source"] == f"ir_datasets:tiny/test (ir_datasets 0.6.3, the {field} of each topic)"
    assert (version.statistics["documents"], version.statistics["words_per_query"]) == (2, words)
    dataset = version.dataset
    assert dataset.ir_datasets_id == "tiny/test"
    assert dataset.current_qrels is not None
    assert load_qrels(dataset.current_qrels).as_dict() == {"1": {"d1": 1}, "2": {}}
    mark_published(dataset)
    assert "ir_datasets:tiny/test" in client.get("/datasets/tiny/").content.decode()


def test_documents_that_the_catalogue_excludes_are_excluded_here(catalogue: dict[str, Catalogued]) -> None:
    catalogue["tiny/test"].grades = {1: "Relevant", -100: "Excluded from evaluation"}
    version = take("ir_datasets:tiny/test")
    excluded = excluded_documents(version)
    assert excluded is not None
    assert excluded.as_dict() == {"1": {"d2": 0}}


def test_what_ir_datasets_does_not_bring_is_one_line(catalogue: dict[str, Catalogued]) -> None:
    assert "ir_datasets has no dataset nix" in refused("ir_datasets:nix")
    catalogue["tiny"] = Catalogued([])
    assert "tiny has no qrels" in refused("ir_datasets:tiny")
    catalogue["tiny"] = Catalogued([Doc("d1", "a", "")], ConnectionError("no\nway"))
    assert "ir_datasets could not load tiny: ConnectionError: no way" in refused("ir_datasets:tiny")
    assert "these topics have description, title" in refused("ir_datasets:tiny/test", "--topic-field=narrative")


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    assert "make install-collections" in refused("ir_datasets:beir/nfcorpus/test")
