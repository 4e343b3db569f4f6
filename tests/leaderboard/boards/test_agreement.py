"""Published scores of the same models beside scored results: boards, exports, system pages, and curation."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.boards.state import PRESETS
from leaderboard.core.permissions import make_curator
from leaderboard.models import Dataset, DatasetVersion, Entry, Run, Source, System
from leaderboard.results.agreement import hub_model
from tests.factories import make_user
from tests.leaderboard.comparison.test_queries import text_of
from tests.leaderboard.entries import (
    make_source,
    make_system,
    record_boards,
    renew_judgements,
    report,
    score,
    scored_dataset,
)
from tests.pages import one_line

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

MODEL = "https://huggingface.co/BAAI/bge-small-en-v1.5"
LISTED = "/admin/leaderboard/entry/?agreement=differs"


def publish(dataset: Dataset, model_url: str = MODEL, source: Source | None = None, **fields: Any) -> Entry:
    """Create a reported entry of a model; `locator` states its split and version."""
    source, locator = source or make_source("paper"), fields.pop("locator", "Table 1")
    report(dataset, source, "printed", **fields)
    System.objects.filter(source=source).update(model_url=model_url)
    Entry.objects.filter(source=source).update(locator=locator)
    record_boards()
    return Entry.objects.get(source=source, dataset=dataset)


def rows(client: Client, dataset: Dataset) -> dict[str, Any]:
    """Return the published scores in the API by system."""
    answer = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()
    return {row["system"]: row["published"] for row in answer["rows"]}


def curate(client: Client) -> Client:
    person = make_user("Carol")
    make_curator(person)
    client.force_login(person)
    return client


@pytest.mark.parametrize(
    ("address", "model"),
    [
        (MODEL, "baai/bge-small-en-v1.5"),
        ("http://www.huggingface.co/baai/BGE-small-en-v1.5/", "baai/bge-small-en-v1.5"),
        ("https://hf.co/BAAI/bge-small-en-v1.5/tree/5c38ec7c", "baai/bge-small-en-v1.5"),
        ("https://huggingface.co/BAAI/bge-small-en-v1.5?library=st#usage", "baai/bge-small-en-v1.5"),
        ("BAAI/bge-small-en-v1.5", "baai/bge-small-en-v1.5"),
        ("https://huggingface.co/datasets/BeIR/nfcorpus", ""),
        ("https://huggingface.co/BAAI", ""),
        ("https://example.org/BAAI/bge-small-en-v1.5", ""),
        ("https://huggingface.co.example.org/BAAI/bge-small-en-v1.5", ""),
        ("", ""),
    ],
)
def test_a_model_is_known_by_its_name_on_the_hub(address: str, model: str) -> None:
    assert hub_model(address) == model


def test_board_api_and_csv_have_the_published_score_and_its_source(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, make_system("Same", model_url=f"{MODEL.lower()}/tree/main/"), ndcg=0.3361, recall=0.6)
    score(dataset, make_system("Larger", model_url="https://huggingface.co/BAAI/bge-large-en-v1.5"), ndcg=0.336)
    score(dataset, "Unknown", ndcg=0.2)
    publish(dataset, ndcg=0.338)
    found = rows(client, dataset)
    assert found["Same"] == {"value": 0.338, "difference": -0.0019, "source": "Lovelace and Hopper 2020"}
    assert [found[name] for name in ("Larger", "Unknown", "printed")] == [None] * 3
    address = f"/datasets/{dataset.slug}/"
    page = one_line(client.get(f"{address}?columns=published-score").content.decode())
    assert '<td title="Lovelace and Hopper 2020">0.338<small class="below">−0.002</small></td>' in page
    assert "Published: the score that a publication (Lovelace and Hopper 2020) reports for the same model" in page
    overview, effectiveness = (client.get(f"{address}?columns={name}").content.decode() for name in PRESETS[:2])
    assert "Published: the score" not in overview, "the overview remains narrow"
    assert "Published: the score" in effectiveness
    table = list(csv.DictReader(io.StringIO(client.get(f"{address}board.csv").content.decode())))
    cells = {row["system"]: (row["published-score"], row["published difference"]) for row in table}
    assert cells["Same"] == ("0.338", "-0.0019")
    assert cells["Larger"] == ("", "")
    assert {row["published source"] for row in table} == {"Lovelace and Hopper 2020", ""}
    other_measure = client.get(f"/api/v1{address}board/?measure=R@100").json()
    assert all(row["published"] is None for row in other_measure["rows"])
    assert not any(column["key"] == "published-score" for column in other_measure["columns"])


def test_the_newest_source_is_shown_and_the_system_page_names_all(client: Client) -> None:
    dataset = scored_dataset(name="Nuts")
    system = make_system("Same", model_url=MODEL)
    score(dataset, system, ndcg=0.3)
    older, newer = make_source("older"), make_source("newer")
    Source.objects.filter(pk=newer.pk).update(year=2024)
    publish(dataset, source=newer, ndcg=0.3234)
    publish(dataset, source=older, ndcg=0.31)
    assert rows(client, dataset)["Same"]["source"] == "Lovelace and Hopper 2024"
    page = text_of(client.get(f"/systems/{system.slug}/").content.decode())
    assert "0.323 −0.023 Lovelace and Hopper 2024" in page
    assert "nDCG@10 on Nuts differs from the published score by 0.023" in page
    assert "Also published for nDCG@10 on Nuts: 0.310 (Lovelace and Hopper 2020)" in page
    answer = client.get(f"/api/v1/systems/{system.slug}/").json()["results"][0]["published_score"]
    assert answer == {"value": 0.3234, "difference": -0.0234, "source": "Lovelace and Hopper 2024"}
    reported = text_of(client.get("/systems/printed-newer/").content.decode())
    assert "−0.023" not in reported


def test_the_name_of_a_downloaded_checkpoint_is_preferred_to_the_stated_model(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, make_system("Run here", model_url="https://huggingface.co/BAAI/bge-base-en"), ndcg=0.3)
    made_by = {"engine": "dense", "checkpoint": {"hub_name": "BAAI/bge-small-en-v1.5", "hub_commit": "5c38"}}
    assert entry.evaluation is not None
    Run.objects.filter(pk=entry.evaluation.run_id).update(metadata={"made_by": made_by})
    publish(dataset, ndcg=0.3)
    assert rows(client, dataset)["Run here"]["difference"] == 0.0


def test_an_anonymous_system_is_not_matched_because_that_would_name_its_model(client: Client) -> None:
    dataset = scored_dataset()
    system = make_system("Nameless", model_url=MODEL, anonymous_until=timezone.now())
    score(dataset, system, ndcg=0.3)
    publish(dataset, ndcg=0.4)
    assert rows(client, dataset)["Nameless"] is None
    assert "Lovelace" not in client.get(f"/systems/{system.slug}/").content.decode()
    assert "result differs from its published score" not in curate(client).get("/admin/").content.decode()


def test_other_versions_splits_and_variants_are_not_compared(client: Client) -> None:
    dataset = scored_dataset()
    system = make_system("Same", model_url=MODEL)
    for name in ("bm25-wordpiece · base", "128 dimensions"):
        variant = score(dataset, system, ndcg=0.2)
        Entry.objects.filter(pk=variant.pk).update(configuration=name)
    publish(dataset, ndcg=0.3, locator="dataset d56462d0e63a25450459; mteb 2.26.24")
    assert rows(client, dataset) == {"Same": None, "printed": None}
    score(dataset, system, ndcg=0.29)

    def difference_with(label: str, locator: str) -> float | None:
        DatasetVersion.objects.filter(pk=dataset.current_version_id).update(label=label)
        Entry.objects.filter(source__key="paper").update(locator=locator)
        record_boards()
        answer = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()
        found = [row["published"]["difference"] for row in answer["rows"] if row["published"]]
        return found[0] if found else None

    own = "dataset d56462d0e63a25450459; mteb 2.26.24"
    assert difference_with("mteb/nuts@d56462d0e63a", own) == -0.01
    assert difference_with("BeIR/nuts@0123456789ab", own) == -0.01
    assert difference_with("mteb/nuts@0123456789ab", own) is None
    assert difference_with("", f"split dev; {own}") is None
    assert difference_with("", f"split test; {own}") == -0.01
    renew_judgements(dataset)
    record_boards()
    assert set(map(str, rows(client, dataset).values())) == {"None"}


def test_hidden_boards_compare_the_rounded_score(client: Client) -> None:
    dataset = scored_dataset(hidden=True)
    score(dataset, make_system("Same", model_url=MODEL), ndcg=0.33618)
    publish(dataset, ndcg=0.338)
    found = rows(client, dataset)["Same"]
    assert (found["value"], found["difference"]) == (0.338, -0.002)


def test_a_private_row_does_not_change_the_columns(client: Client) -> None:
    dataset, member = scored_dataset(), make_user("Alice")
    system = make_system("Mine", model_url=MODEL)
    assert system.team is not None
    system.team.memberships.create(user=member)
    score(dataset, system, ndcg=0.3, public=False)
    publish(dataset, ndcg=0.4)
    client.force_login(member)
    page = client.get(f"/datasets/{dataset.slug}/?columns=all").content.decode()
    assert "Mine" in page
    assert ">Published<" not in page


def test_curators_review_results_that_differ_by_more_than_a_hundredth(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, make_system("Close", model_url=MODEL), ndcg=0.35)
    far = score(dataset, make_system("Far", model_url=MODEL), ndcg=0.3499)
    score(dataset, make_system("Elsewhere", model_url="https://huggingface.co/BAAI/bge-m3"), ndcg=0.1)
    publish(dataset, ndcg=0.36)
    page = one_line(curate(client).get("/admin/").content.decode())
    assert f'<a href="/admin/leaderboard/entry/{far.pk}/change/"><strong>1</strong> result differs' in page
    listed = one_line(client.get(LISTED).content.decode())
    assert "1 entry" in listed
    assert ">Far<" in listed
    assert not any(f">{name}<" in listed for name in ("Close", "Elsewhere", "printed"))
    publish(dataset, source=Source.objects.get(key="paper"), ndcg=0.355)
    assert "differs from its published score" not in client.get("/admin/").content.decode()
    assert "Nothing matches the search and the filters." in one_line(client.get(LISTED).content.decode())
