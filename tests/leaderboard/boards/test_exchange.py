"""What MTEB, Hugging Face and readers of Croissant get."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import bibtexparser
import mlcroissant
import pytest
import yaml
from django.test import Client

from leaderboard.core.cache.pages import forget_pages
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.models import Dataset
from leaderboard.models.datasets import Visibility
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.leaderboard.tiny_collection import write_folder
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def archive_of(client: Client, slug: str) -> dict[str, Any]:
    """The files of a system's archive, read as JSON."""
    answer = client.get(f"/systems/{slug}/mteb.zip")
    assert answer.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
        return {name: json.loads(packed.read(name)) for name in packed.namelist()}


def test_mteb_gets_a_file_for_each_task_and_one_about_the_model(client: Client) -> None:
    dataset = scored_dataset(name="My Set", hidden=True)
    system = make_system("Dense", dimension=768, parameter_count=22_713_216, licence="MIT", open_weights=True)
    score(dataset, system, ndcg=0.123456, recall=0.9)
    files = archive_of(client, system.slug)
    folder = f"results/{system.team.slug}__{system.slug}/no_revision_available"  # type: ignore[union-attr]
    assert set(files) == {f"{folder}/MySet.json", f"{folder}/model_meta.json"}
    task = files[f"{folder}/MySet.json"]
    assert task["dataset_revision"] == dataset.current_version.content_sha256  # type: ignore[union-attr]
    assert task["scores"] == {
        "test": [
            {
                "hf_subset": "default",
                "languages": ["eng-Latn"],
                "main_score": 0.123,
                "ndcg_at_10": 0.123,
                "recall_at_100": 0.9,
            }
        ]
    }
    meta = files[f"{folder}/model_meta.json"]
    assert (meta["n_parameters"], meta["embed_dim"], meta["license"]) == (22_713_216, 768, "MIT")
    assert meta["model_type"] == ["dense"]
    assert (
        client.get(f"/systems/{system.slug}/mteb.zip").content
        == client.get(f"/systems/{system.slug}/mteb.zip").content
    )


def test_reported_results_are_named_as_mteb_names_the_tasks(client: Client) -> None:
    load_reported()
    files = archive_of(client, "colbert-beir-2021")
    tasks = {name.rpartition("/")[2] for name in files}
    assert {"SciFact.json", "TRECCOVID.json", "Touche2020.json", "CQADupstackRetrieval.json"} <= tasks
    assert all(name.split("/")[2].endswith("reported") for name in files)


def test_hugging_face_gets_yaml(client: Client) -> None:
    dataset = scored_dataset(beir_name="nfcorpus")
    system = make_system('Quote " and: colon')
    score(dataset, system, ndcg=0.25)
    answer = client.get(f"/systems/{system.slug}/eval_results.yaml")
    (result,) = yaml.safe_load(answer.content)
    assert result["dataset"]["id"] == "BeIR/nfcorpus"
    assert result["dataset"]["task_id"] == "test"
    assert result["value"] == 0.25
    assert result["source"]["url"] == f"http://testserver/systems/{system.slug}/"
    assert result["notes"].startswith("nDCG@10, scored")


def test_yaml_has_every_character_of_a_name(client: Client) -> None:
    name = "Team 😀 𝔘 \u0085\u2028\u202e\U000e0001 é “x”\t"
    dataset = scored_dataset(beir_name=name)
    system = make_system("Mine")
    score(dataset, system, ndcg=0.25)
    answer = client.get(f"/systems/{system.slug}/eval_results.yaml")
    (result,) = yaml.safe_load(answer.content)
    assert result["dataset"]["id"] == f"BeIR/{name}"


def test_what_is_private_has_nothing_to_take_away(client: Client) -> None:
    dataset, system = scored_dataset(), make_system("Secret")
    score(dataset, system, ndcg=0.5, public=False)
    for name in ("mteb.zip", "eval_results.yaml", "bibtex.bib"):
        assert client.get(f"/systems/{system.slug}/{name}").status_code == 404
    shown = scored_dataset()
    score(shown, system, ndcg=0.25)
    assert len(yaml.safe_load(client.get(f"/systems/{system.slug}/eval_results.yaml").content)) == 1
    assert len(archive_of(client, system.slug)) == 2


@pytest.mark.parametrize("name", ["a {b", 'x}} @preamble{"evil"}', '@string (k = "v")', "\\} @b{"])
def test_what_is_made_to_cite_a_system_is_one_entry_whatever_its_name(client: Client, name: str) -> None:
    dataset = scored_dataset()
    system = make_system(name, authors=f"{name} and Ada", paper_url="https://x.example/@a(b)/@c{d}")
    score(dataset, system, ndcg=0.5)
    for address in (f"/systems/{system.slug}/bibtex.bib", f"/datasets/{dataset.slug}/board.bib"):
        text = client.get(address).content.decode()
        entry = text[text.index(f"{{{system.slug},") :].strip()
        assert (entry.count("{"), entry.count(r"\{"), entry.count(r"\}")) == (entry.count("}"), 0, 0)
        assert not re.search(r"@\s*[^\s{}@]+\s*[{(]", entry)


def test_there_is_always_something_to_cite_for_a_system(client: Client) -> None:
    dataset = scored_dataset()
    own, silent = make_system("Own", bibtex="@misc{own, title={Own}}"), make_system("Silent & {odd")
    for system in (own, silent):
        score(dataset, system, ndcg=0.5)
    load_reported()
    for slug, key in ((own.slug, "own"), (silent.slug, silent.slug), ("colbert-beir-2021", "beir-2021")):
        library = bibtexparser.parse_string(client.get(f"/systems/{slug}/bibtex.bib").content.decode())
        assert not library.failed_blocks
        assert [entry.key for entry in library.entries] == [key]


def test_declared_authors_are_cited_where_a_system_has_no_bibtex(client: Client) -> None:
    dataset = scored_dataset()
    declared = make_system("Ours", authors=r"Doe, Jane and {\"O}zg\"ur & Sons", year=2020)
    paper = make_system("Paper", paper_url="https://example.org/p?a=50%25", bibtex="@misc{broken, title={x")
    for system in (declared, paper, make_system("Silent R@100 {tuned")):
        score(dataset, system, ndcg=0.5)
    for address in (f"/systems/{declared.slug}/bibtex.bib", f"/datasets/{dataset.slug}/board.bib"):
        library = bibtexparser.parse_string(client.get(address).content.decode())
        assert not library.failed_blocks
        fields = {entry.key: entry.fields_dict for entry in library.entries}[declared.slug]
        assert fields["author"].value == r"Doe, Jane and Özgür \& Sons"
        assert fields["year"].value == "2020"
    text = client.get(f"/datasets/{dataset.slug}/board.bib").content.decode()
    assert r"howpublished = {\url{https://example.org/p?a=50%25}}" in text
    assert text.splitlines()[-1] == "% Nothing to cite is known of: Silent R(at)100 {tuned"
    past = re.search(r"/datasets/[\w-]+/at/[\dTZ:-]+/", text)
    assert past
    old = bibtexparser.parse_string(client.get(f"{past[0]}board.bib").content.decode())
    assert {declared.slug, paper.slug} <= {entry.key for entry in old.entries}


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
    import_dataset(write_folder(tmp_path), options)
    Dataset.objects.update(state=Dataset.State.PUBLISHED, citation="@misc{tiny, title={Tiny}}")
    found, read = described(client, "tiny")
    assert found["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert not read.metadata.ctx.issues.errors
    assert {file["@id"]: len(file["sha256"]) for file in found["distribution"]} == {
        "queries.jsonl.gz": 64,
        "queries.all.jsonl.gz": 64,
        "corpus.jsonl.gz": 64,
        "document-ids.txt.gz": 64,
        "qrels.test.tsv.gz": 64,
        "qrels.train.tsv.gz": 64,
    }
    assert {record["@id"] for record in found["recordSet"]} == {
        "queries",
        "all-queries",
        "corpus",
        "qrels-test",
        "qrels-train",
    }
    for file in found["distribution"]:
        assert client.get(file["contentUrl"].removeprefix("http://testserver")).status_code == 200


def test_croissant_records_read_with_the_reference_library(client: Client, tmp_path: Path) -> None:
    import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny", hidden=False))
    Dataset.objects.update(state=Dataset.State.PUBLISHED)
    found, _ = described(client, "tiny")
    kept = {}
    for file in found["distribution"]:
        kept[file["@id"]] = tmp_path / file["@id"]
        answer = client.get(file["contentUrl"].removeprefix("http://testserver"))
        kept[file["@id"]].write_bytes(b"".join(answer.streaming_content))  # type: ignore[attr-defined]
    read = mlcroissant.Dataset(jsonld=found, mapping={name: str(path) for name, path in kept.items()})

    def records(name: str) -> list[dict[str, Any]]:
        return [
            {
                key.partition("/")[2]: value.decode() if isinstance(value, bytes) else value
                for key, value in record.items()
            }
            for record in read.records(name)
        ]

    assert records("queries")[0] == {"_id": "q1", "text": "query number 1"}
    assert [record["_id"] for record in records("all-queries")] == ["q1", "q2", "q3"]
    corpus = records("corpus")
    assert len(corpus) == 5
    assert corpus[0] == {"_id": "d1", "title": "Title 1", "text": "words of document 1"}
    assert records("qrels-test")[0] == {"query-id": "q1", "corpus-id": "d1", "score": 2}


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
    forget_pages()
    assert client.get("/datasets/tiny/croissant.json").status_code == 404


def test_croissant_of_a_dataset_known_from_papers_alone(client: Client) -> None:
    load_reported()
    Dataset.objects.filter(slug="nq").update(licence="")
    found, read = described(client, "nq")
    assert not read.metadata.ctx.issues.errors
    assert "license" not in found
    assert found["distribution"] == []
