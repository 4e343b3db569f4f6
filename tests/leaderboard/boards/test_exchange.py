"""What MTEB, Hugging Face and those who cite a system get."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import bibtexparser
import pytest
import yaml
from django.test import Client
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

from leaderboard.boards.exchange import system_results
from leaderboard.models import Architecture, Entry, System
from tests.leaderboard.entries import make_system, score, scored_dataset
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
    assert task["dataset_revision"] == "dataset revision not available"
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
    assert (meta["n_parameters"], meta["embed_dim"], meta["license"]) == (22_713_216, 768, "mit")
    assert meta["model_type"] == ["dense"]
    assert (
        client.get(f"/systems/{system.slug}/mteb.zip").content == client.get(f"/systems/{system.slug}/mteb.zip").content
    )


#: What mteb 2.26.24 takes as `model_type`: `typing.get_args(system_results.models.model_meta.MODEL_TYPES)`.
MODEL_TYPES = {"dense", "cross-encoder", "late-interaction", "sparse", "router", "hybrid"}
#: Licences as systems have them, and as mteb takes them: in its own list, or an address.
LICENCES = {
    "": None,
    "MIT": "mit",
    "MIT License": "mit",
    "Apache-2.0": "apache-2.0",
    "Apache License, Version 2.0": "apache-2.0",
    "CC BY-SA 4.0": "cc-by-sa-4.0",
    "BSD-3-Clause": "bsd-3-clause",
    "GPL-3.0-or-later": "gpl-3.0",
    "CC0-1.0": "cc0-1.0",
    "Creative ML OpenRAIL++": None,
    "PSF-2.0": None,
    "ask us": None,
    "https://example.org/licence": "https://example.org/licence",
    "http://[": None,
    "https://": None,
}


def every_kind_of_system() -> list[System]:
    """A system of each architecture, one of each licence, and all with a paper that is no page."""
    kinds = [{"architecture": each.value, "licence": "Apache-2.0"} for each in Architecture]
    kinds += [{"licence": each} for each in LICENCES]
    return [make_system(f"System {n}", paper_url="ftp://x.org/p.pdf", **kind) for n, kind in enumerate(kinds)]


def test_mteb_gets_only_types_licences_and_languages_that_it_knows(client: Client) -> None:
    systems = every_kind_of_system()
    for system in systems:
        meta = system_results.model_meta(system, [], "http://testserver/")
        assert set(meta["model_type"]) <= MODEL_TYPES
        assert meta["license"] == {**LICENCES, "Apache-2.0": "apache-2.0"}[system.licence]
        assert meta["reference"] == "http://testserver/"
    score(scored_dataset(language="tlh", name="Duj"), systems[0], ndcg=0.25)
    files = {name.rpartition("/")[2]: file for name, file in archive_of(client, systems[0].slug).items()}
    assert files["model_meta.json"]["languages"] is None
    assert files["Duj.json"]["scores"]["test"][0]["languages"] == []


@pytest.mark.long  # mteb takes seconds to import
@pytest.mark.parametrize("language", ["en", "tlh"])
def test_mteb_itself_takes_every_file(client: Client, tmp_path: Path, language: str) -> None:
    from mteb.models.model_meta import ModelMeta
    from mteb.results import TaskResult

    dataset = scored_dataset(language=language, name="SciFact")
    for system in every_kind_of_system():
        score(dataset, system, ndcg=0.25)
        for name, file in archive_of(client, system.slug).items():
            if name.endswith("/model_meta.json"):
                meta = ModelMeta.model_validate({"loader": None, **file})
                assert (meta.name, meta.model_type) == (
                    "/".join(system_results.model_name(system)),
                    file["model_type"],
                )
            else:
                (tmp_path / "task.json").write_text(json.dumps(file))
                assert TaskResult.from_disk(tmp_path / "task.json").scores["test"][0]["main_score"] == 0.25


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
    assert result["dataset"] == {"id": "BeIR/nfcorpus", "task_id": "test"}
    assert result["value"] == 0.25
    assert result["source"]["url"] == f"http://testserver/systems/{system.slug}/"
    assert result["notes"].startswith("nDCG@10, scored")


def test_the_hub_s_own_library_reads_every_result(client: Client) -> None:
    load_reported()
    dataset, system = scored_dataset(beir_name="nfcorpus"), make_system('Quote " and: colon')
    score(dataset, system, ndcg=0.25)
    for slug, count in (
        (system.slug, 1),
        ("colbert-beir-2021", 18),
    ):  # not MS MARCO, whose RR@10 is not printed
        data = yaml.safe_load(client.get(f"/systems/{slug}/eval_results.yaml").content)
        entries = parse_eval_result_entries(data)
        assert eval_result_entries_to_yaml(entries) == data
        assert len(entries) == count
        assert all(each.source_url == f"http://testserver/systems/{slug}/" for each in entries)


def test_every_eval_ever_gets_one_record_of_a_model(client: Client) -> None:
    system = make_system("Dense", open_weights=True)
    score(scored_dataset(slug="my-set", name="My Set", hidden=True), system, ndcg=0.123456, recall=0.9)
    record = client.get(f"/systems/{system.slug}/every_eval_ever.json").json()
    assert record["source_metadata"]["source_type"] == "evaluation_run"
    assert record["model_info"]["id"] == f"{system.team.slug}/{system.slug}"  # type: ignore[union-attr]
    details = record["model_info"]["additional_details"]
    assert (details["deployment_type"], details["model_availability"]) == ("unknown", "open_weights")
    ndcg = record["evaluation_results"][0]
    assert ndcg["score_details"]["score"] == 0.123
    assert ndcg["metric_config"]["metric_id"] == "ir_measures.nDCG@10"
    assert ndcg["source_data"]["url"] == ["http://testserver/datasets/my-set/"]
    load_reported()
    reported = client.get("/systems/colbert-beir-2021/every_eval_ever.json").json()
    assert reported["source_metadata"]["source_type"] == "documentation"
    for each in (record, reported):
        # What the validator of Every Eval Ever refuses beyond its schema: numbers outside their bounds, and
        # details that are no text.
        for result in each["evaluation_results"]:
            bounds = result["metric_config"]
            assert bounds["min_score"] <= result["score_details"]["score"] <= bounds["max_score"]
            assert all(isinstance(text, str) for text in result["score_details"]["details"].values())
        ids = [result["evaluation_result_id"] for result in each["evaluation_results"]]
        assert len(set(ids)) == len(ids)


def test_yaml_has_every_character_of_a_name(client: Client) -> None:
    name = "Team 😀 𝔘 \u0085\u2028\u202e\U000e0001 é “x”\t"
    dataset = scored_dataset(beir_name=name)
    system = make_system("Mine")
    score(dataset, system, ndcg=0.25)
    answer = client.get(f"/systems/{system.slug}/eval_results.yaml")
    (result,) = yaml.safe_load(answer.content)
    assert result["dataset"]["id"] == f"BeIR/{name}"


def test_configurations_that_are_written_alike_keep_their_results(client: Client) -> None:
    dataset, system = scored_dataset(), make_system("Dense")
    values = {"k1=1.2": 0.5, "k1=12": 0.75, "設定一": 0.125, "設定二": 0.25}
    for configuration, value in values.items():
        entry = score(dataset, system, ndcg=value)
        Entry.objects.filter(pk=entry.pk).update(configuration=configuration)
    files = archive_of(client, system.slug)
    tasks = [file for name, file in files.items() if not name.endswith("/model_meta.json")]
    assert sorted(file["scores"]["test"][0]["main_score"] for file in tasks) == sorted(values.values())
    for name, file in files.items():
        if name.endswith("/model_meta.json"):
            assert file["revision"] == name.split("/")[2]


def test_what_is_private_has_nothing_to_take_away(client: Client) -> None:
    dataset, system = scored_dataset(), make_system("Secret")
    score(dataset, system, ndcg=0.5, public=False)
    for name in ("mteb.zip", "eval_results.yaml", "every_eval_ever.json", "bibtex.bib"):
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
    assert text.splitlines()[-1] == "% No reference is known for: Silent R(at)100 {tuned"
    past = re.search(r"/datasets/[\w-]+/at/[\dTZ:-]+/", text)
    assert past
    old = bibtexparser.parse_string(client.get(f"{past[0]}board.bib").content.decode())
    assert {declared.slug, paper.slug} <= {entry.key for entry in old.entries}
