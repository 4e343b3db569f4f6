"""Datasets as Croissant: what is named, and what its reference library reads of every layout that is imported."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
from django.test import Client

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Visibility
from tests.leaderboard.tiny_collection import HEADER, good_files, lines_of, write_folder
from tests.pages import clear_page_cache
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

MARK = "\ufeff"
BEIR = good_files()["qrels/test.tsv"]
ROWS = [line.split("\t") for line in BEIR.removeprefix(HEADER).splitlines()]
TREC = "".join(f"{query} 0 {document} {grade}\n" for query, document, grade in reversed(ROWS))
UNTITLED = lines_of([{"_id": f"d{n}", "text": f"words of document {n}"} for n in range(1, 6)])
BARE = BEIR.removeprefix(HEADER)
#: What an import takes, by what is special about it: changes to the files of the good collection.
LAYOUTS: dict[str, dict[str, str | None]] = {
    "trec, mark, no titles": {
        "qrels/test.tsv": None,
        "qrels.txt": MARK + TREC,
        **{name: MARK + content for name, content in good_files().items() if name.endswith(".jsonl")},
        "corpus.jsonl": MARK + UNTITLED,
    },
    "beir": {},
    "beir, mark": {"qrels/test.tsv": MARK + BEIR},
    "beir, windows": {"qrels/test.tsv": BEIR.replace("\n", "\r\n")},
    "beir, other header": {"qrels/test.tsv": BEIR.replace(HEADER, "query-id\tdoc_id\trelevance\n")},
    "beir, header in capitals": {"qrels/test.tsv": BEIR.replace(HEADER, HEADER.upper())},
    "beir, blank lines": {"qrels/test.tsv": "\n" + BEIR.replace("\nq2", "\n\nq2")},
    "no header": {"qrels/test.tsv": BARE},
    "no header, mark": {"qrels/test.tsv": MARK + BARE},
    "trec": {"qrels/test.tsv": None, "qrels.txt": TREC},
    "subtopics": {"qrels/test.tsv": None, "subtopic-qrels.txt": TREC + "q1 1 d1 0\n"},
    "trec, named .tsv": {"qrels/test.tsv": TREC.replace(" ", "\t")},
    "trec, spaces and windows": {"qrels/test.tsv": TREC.replace(" ", "  ").replace("\n", "\r\n")},
    "some titles": {"corpus.jsonl": UNTITLED.replace('"_id": "d5"', '"_id": "d5", "title": "Title 5"')},
}
FIRST, *OTHERS = LAYOUTS


def described(client: Client, slug: str) -> tuple[dict[str, Any], mlcroissant.Dataset]:
    """The dataset's Croissant, and as the reference library reads it; raises what the library calls an error."""
    answer = client.get(f"/datasets/{slug}/croissant.json")
    assert answer.headers["Content-Type"] == "application/ld+json"
    found = json.loads(answer.content)
    return found, mlcroissant.Dataset(jsonld=found)


def test_croissant_names_what_everyone_may_have_and_the_reference_library_finds_no_error(
    client: Client, tmp_path: Path
) -> None:
    options = ImportOptions(slug="tiny", hidden=False, name="Tiny & small", licence="CC-BY-4.0")
    excluded = "query-id\tcorpus-id\nq1\td3\n"
    import_dataset(write_folder(tmp_path, {"excluded.tsv": excluded}), options)
    Dataset.objects.update(state=Dataset.State.PUBLISHED, citation="@misc{tiny, title={Tiny}}")
    found, read = described(client, "tiny")
    assert found["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert not read.metadata.ctx.issues.errors
    assert {file["@id"]: len(file["sha256"]) for file in found["distribution"]} == {
        "queries.jsonl.gz": 64,
        "queries.all.jsonl.gz": 64,
        "corpus.jsonl.gz": 64,
        "document-ids.txt.gz": 64,
        "excluded.tsv.gz": 64,
        "qrels.test.tsv.gz": 64,
        "qrels.train.tsv.gz": 64,
    }
    assert {record["@id"] for record in found["recordSet"]} == {
        "queries",
        "all-queries",
        "corpus",
        "excluded",
        "qrels-test",
        "qrels-train",
    }
    for file in found["distribution"]:
        assert client.get(file["contentUrl"].removeprefix("http://testserver")).status_code == 200


def test_croissant_names_nothing_closed(client: Client, tmp_path: Path) -> None:
    import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny"))
    Dataset.objects.update(
        state=Dataset.State.PUBLISHED,
        documents_visibility=Visibility.PARTICIPANTS,
        queries_visibility=Visibility.CURATORS,
    )
    found, read = described(client, "tiny")
    assert not read.metadata.ctx.issues.errors
    assert {file["@id"] for file in found["distribution"]} == {"document-ids.txt.gz", "qrels.train.tsv.gz"}
    Dataset.objects.update(state=Dataset.State.PREPARING)
    clear_page_cache()
    assert client.get("/datasets/tiny/croissant.json").status_code == 404


def test_croissant_of_a_dataset_known_from_papers_alone(client: Client) -> None:
    load_reported()
    Dataset.objects.filter(slug="nq").update(licence="")
    found, read = described(client, "nq")
    assert not read.metadata.ctx.issues.errors
    assert "license" not in found
    assert found["distribution"] == []


def records(read: mlcroissant.Dataset, name: str) -> list[dict[str, Any]]:
    """The records of a set, by the names of their fields."""
    return [
        {key.partition("/")[2]: value.decode() if isinstance(value, bytes) else value for key, value in record.items()}
        for record in read.records(name)
    ]


@pytest.mark.parametrize("layout", [FIRST, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
@pytest.mark.parametrize("compressed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_reference_library_reads_every_layout_that_an_import_takes(
    client: Client, tmp_path: Path, layout: str, compressed: bool
) -> None:
    changes: Mapping[str, str | None] = LAYOUTS[layout]
    folder = write_folder(tmp_path / "collection", changes, compressed=compressed)
    import_dataset(folder, ImportOptions(slug="tiny", hidden=False))
    Dataset.objects.update(state=Dataset.State.PUBLISHED)
    found, _ = described(client, "tiny")
    kept = {}
    for file in found["distribution"]:
        kept[file["@id"]] = tmp_path / file["@id"]
        answer = client.get(file["contentUrl"].removeprefix("http://testserver"))
        kept[file["@id"]].write_bytes(b"".join(answer.streaming_content))  # type: ignore[attr-defined]
    assert gzip.decompress(kept["qrels.test.tsv.gz"].read_bytes()).decode() == BEIR
    read = mlcroissant.Dataset(jsonld=found, mapping={name: str(path) for name, path in kept.items()})

    grades = [(row["query-id"], row["corpus-id"], row["score"]) for row in records(read, "qrels-test")]
    assert grades == [(query, document, int(grade)) for query, document, grade in ROWS]
    assert records(read, "qrels-train") == [{"query-id": "q3", "corpus-id": "d4", "score": 1}]
    assert records(read, "queries")[0] == {"_id": "q1", "text": "query number 1"}
    assert [record["_id"] for record in records(read, "all-queries")] == ["q1", "q2", "q3"]
    corpus = records(read, "corpus")
    assert [record["_id"] for record in corpus] == ["d1", "d2", "d3", "d4", "d5"]
    written = good_files()["corpus.jsonl"] if (of := changes.get("corpus.jsonl")) is None else of
    titles = [json.loads(line).get("title") for line in written.removeprefix(MARK).splitlines()]
    assert [record.get("title") for record in corpus] == titles
    assert corpus[0]["text"] == "words of document 1"
