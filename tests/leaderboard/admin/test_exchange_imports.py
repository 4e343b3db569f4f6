"""Results of other tools: files of Every Eval Ever and of the Hugging Face hub become reported rows."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from leaderboard.models import Dataset, Entry, Source, System
from tests.factories import make_user
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

ADDRESS = "/admin/leaderboard/entry/report/?by=exchange"
NEW = {"title": "Copy", "authors": "Owl, O.", "year": 2026, "why": "published elsewhere"}
CARD = """---
license: mit
tags: [sentence-transformers, sentence-similarity]
model-index:
- name: all-owls
  results:
  - task: {type: Retrieval}
    dataset: {type: mteb/scifact, name: MTEB SciFact (default), config: default, split: test, revision: 0228b52cf27}
    metrics:
    - {type: ndcg_at_10, value: 64.508}
    - {type: map_at_1, value: 51.2}
  - dataset: {type: BeIR/cqadupstack, name: MTEB CQADupstackAndroidRetrieval, config: default, split: test}
    metrics: [{type: ndcg_at_10, value: 40.1}]
  - dataset: {type: mteb/msmarco, name: MTEB MSMARCO, config: default, split: test}
    metrics: [{type: mrr_at_10, value: 33}]
  - dataset: {name: NanoOwls, type: NanoOwls}
    metrics: [{type: cosine_ndcg@10, value: 0.5}]
---
# All owls
"""


@pytest.fixture
def curator(client: Client) -> Client:
    client.force_login(make_user("Carol", is_staff=True, is_superuser=True))
    return client


def send(client: Client, content: str | bytes, **fields: Any) -> Any:
    """Upload a file, check that the preview stores nothing, and confirm it; return the first refusal, if any."""
    before = Entry.objects.count()
    upload = SimpleUploadedFile("results", content.encode() if isinstance(content, str) else content)
    preview = client.post(ADDRESS, {**NEW, **fields, "csv": upload})
    assert Entry.objects.count() == before
    if preview.status_code != 200:
        return preview
    page = preview.content.decode()
    hidden = re.findall(r'<input type="hidden" name="(\w+)"(?: value="([^"]*)")?', page)
    again = {name: html.unescape(value) for name, value in hidden if name != "csrfmiddlewaretoken"}
    assert client.post(ADDRESS, {**again, "confirmed": "Store"}).status_code == 302
    return preview


def messages(answer: Any) -> list[str]:
    assert answer.status_code == 400
    assert not Source.objects.filter(title="Copy").exists()
    return [problem["message"] for problem in answer.context["problems"]]


def stored(**filters: Any) -> dict[tuple[str, str], dict[str, float]]:
    """Return the scores of public results by dataset and configuration."""
    rows = Entry.objects.filter(**filters).select_related("dataset")
    return {(row.dataset.slug, row.configuration): row.scores for row in rows if row.scores}


@pytest.mark.parametrize("name", ["every_eval_ever.json", "eval_results.yaml"])
@pytest.mark.parametrize("slug", ["colbert-beir-2021", "scored"])
def test_another_site_reads_what_this_site_writes(curator: Client, slug: str, name: str) -> None:
    load_reported()
    if slug == "scored":
        system = make_system("Barn owl", parameter_count=110_000_000, architecture="late-interaction")
        System.objects.filter(pk=system.pk).update(slug=slug)
        score(scored_dataset(slug="nuts", name="Nuts and bolts", hidden=True), system, ndcg=0.123456, recall=0.9)
        Entry.objects.filter(system=system).update(configuration="k1=0.9, b=0.4")
    exported = Client().get(f"/systems/{slug}/{name}").content
    send(curator, exported, system="" if "json" in name else "Barn owl", architecture="dense")
    original, copy = stored(system__slug=slug), stored(source__title="Copy")
    if name == "eval_results.yaml":  # It has primary measures only.
        primary = dict(Dataset.objects.values_list("slug", "primary_measure"))
        original = {
            key: {primary[key[0]]: scores[primary[key[0]]]}
            for key, scores in original.items()
            if primary[key[0]] in scores
        }
    assert copy == original
    assert len(copy) >= (1 if slug == "scored" else 18)
    system = System.objects.get(source__title="Copy")
    assert Entry.objects.filter(system=system, provenance="reported").count() == len(copy)
    if "json" in name:
        assert (system.name, system.architecture, system.parameter_count) == System.objects.filter(
            slug=slug
        ).values_list("name", "architecture", "parameter_count")[0]


def test_a_model_card_fills_boards_and_lists_what_it_ignores(curator: Client) -> None:
    load_reported()
    refused = messages(send(curator, CARD))
    assert refused == [
        "model-index[0].results[0].metrics[0]: value: 64.508 is not a share: the maximum is 1. "
        "Did you mean the other scale?"
    ]
    preview = send(curator, CARD, scale="percent")
    assert [row["name"] for row in preview.context["rows"]] == ["all-owls on SciFact (new system)"]
    page = html.unescape(preview.content.decode())
    assert "no dataset on this site matches the task: MTEB CQADupstackAndroidRetrieval, NanoOwls." in page
    assert "boards show another split or language: MTEB MSMARCO (test)." in page
    assert "AP@1 on SciFact" in page
    entry = Entry.objects.get(source__title="Copy")
    assert (entry.scores, entry.provenance, entry.locator) == (
        {"nDCG@10": 0.64508},
        "reported",
        "Hugging Face model card",
    )
    assert (entry.system.architecture, entry.figures[0]["as_printed"]) == ("dense", "64.508")
    assert "all-owls" in Client().get("/datasets/scifact/?provenance=reported").content.decode()


def record(*results: dict[str, Any], **details: str) -> str:
    return json.dumps({
        "schema_version": "0.3.0",
        "source_metadata": {"source_organization_name": "Owls"},
        "model_info": {"name": "Hawk 😀", "id": "owls/hawk", "additional_details": details},
        "evaluation_results": list(results),
    })  # fmt: skip


def result(dataset: str = "nuts", value: Any = 51.5, metric: str = "ndcg_at_10", **source: Any) -> dict[str, Any]:
    return {
        "evaluation_name": dataset,
        "source_data": {"dataset_name": dataset, "source_type": "hf_dataset", **source},
        "metric_config": {"metric_name": metric, "lower_is_better": False, "min_score": 0, "max_score": 100},
        "score_details": {"score": value},
    }


def test_a_foreign_record_is_matched_by_repository_and_states_its_scale(curator: Client) -> None:
    scored_dataset(slug="nuts", name="Nuts")
    text = record(
        result("some nuts", hf_repo="owls/nuts", hf_split="test"),
        result("nuts", 12, hf_split="train"),
        params_billions="0.11",
        architecture="BertModel",
    )
    assert messages(send(curator, text)) == [
        "evaluation_results[0]: architecture: Choose an architecture, because the system is new."
    ]
    send(curator, text, architecture="late-interaction")
    entry = Entry.objects.get(source__title="Copy")
    assert (entry.scores, entry.system.name, entry.locator) == (
        {"nDCG@10": 0.515},
        "Hawk 😀",
        "Every Eval Ever, Owls",
    )
    assert (entry.system.architecture, entry.system.parameter_count) == ("late-interaction", 110_000_000)


def test_all_problems_of_a_file_are_reported_with_their_place(curator: Client) -> None:
    scored_dataset(slug="nuts", name="Nuts")
    text = record(result(value=101), result(value="high"), result(), result(value=50), architecture="dense")
    assert messages(send(curator, text)) == [
        "evaluation_results[0]: value: 101 is not a percent: the maximum is 100. Did you mean the other scale?",
        "evaluation_results[1]: value: Enter a number as printed, for example 0.344.",
        "evaluation_results[1], evaluation_results[2], evaluation_results[3]: "
        "measure: An earlier entry has another value for the same result. Remove one of them.",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("name: Nuts\ntasks:\n- id: nuts\n", "The eval.yaml of a dataset has no results"),
        ("- [", "line 2: "),
        (CARD.replace("license: mit", "license: [mit"), "line 3: "),
        ("- &a {dataset: {id: nuts}}\n- *a\n", "line 2: it has aliases or deep nesting"),
        ("- " * 40 + "x", "it has aliases or deep nesting"),
        ("- !!python/object/apply:os.system [ls]\n", "has no results for boards"),
        ('{"evaluation_results": [}', "it is not JSON"),
        ("{}", "has no results for boards"),
        ('{"model_info": 5, "evaluation_results": [5, null, {"source_data": [], "metric_config": 3}]}', "no results"),
        ("- 5\n- dataset: nuts\n  value: [1]\n", "has no results for boards"),
        ("model-index: [{results: [5, {dataset: 3, metrics: [4]}]}, 7]\n", "has no results for boards"),
        ("just text", "it is neither a record of Every Eval Ever"),
        ("- {dataset: {id: x/nuts, task_id: test}, value: .nan}\n", "value: Enter a number as printed"),
        ("- {dataset: {id: x/nuts, task_id: default}}\n", "value: This field is required"),
        ("- {dataset: {id: x/nuts, task_id: default}, value: 0.5}\n", "system: This field is required"),
    ],
)
def test_other_content_is_refused_with_a_reason(curator: Client, content: str, words: str) -> None:
    scored_dataset(slug="nuts", name="Nuts")
    assert words in "\n".join(messages(send(curator, content)))


def test_notes_of_the_hub_are_configurations(curator: Client) -> None:
    scored_dataset(slug="nuts", name="Nuts")
    text = """
- {dataset: {id: owls/nuts, task_id: default, revision: 12}, value: 0.5, date: 2026-01-02}
- {dataset: {id: owls/nuts, task_id: test}, value: 0.6, notes: with queries, source: {url: "https://x.org", name: Logs}}
- {dataset: {id: owls/nuts, task_id: german}, value: 0.7}
"""
    preview = send(curator, text, system="Hawk", architecture="dense")
    assert stored(source__title="Copy") == {
        ("nuts", ""): {"nDCG@10": 0.5},
        ("nuts", "with queries"): {"nDCG@10": 0.6},
    }
    (ignored,) = preview.context["warnings"]
    assert ignored == "Ignored because boards show another split or language: owls/nuts (test, german)."
