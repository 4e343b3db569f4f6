"""Quarantine, un-publishing and restoring: what everybody sees of a result that a curator took off."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.models import AuditRecord, Entry, System
from leaderboard.results.publishing.visibility import (
    CannotModerate,
    name_baseline,
    quarantine,
    restore,
    set_visibility,
    unpublish,
    withdraw_entries,
)
from tests.factories import make_user
from tests.leaderboard.entries import score, scored_dataset

pytestmark = pytest.mark.django_db

WHY = "near-duplicate of the test queries in its training data"
FORMATS = ("csv", "json", "md", "tex")


def exports_of(client: Client, slug: str) -> dict[str, str]:
    """The board in every format, by ending."""
    return {
        ending: client.get(f"/datasets/{slug}/board.{ending}").content.decode().replace("\\", "") for ending in FORMATS
    }


def test_a_quarantined_result_keeps_its_place_with_the_reason_and_without_a_number(client: Client) -> None:
    dataset = scored_dataset()
    doubted, other = score(dataset, "Doubted", ndcg=0.8765), score(dataset, "Other", ndcg=0.5)
    carol = make_user("Carol")
    with acting(carol, WHY):
        quarantine(doubted, WHY)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert page.index("Other</a>") < page.index("Doubted</a>")
    assert WHY in page
    assert "0.8765" not in page
    for ending, text in exports_of(client, dataset.slug).items():
        assert "quarantined" in text, ending
        assert "near-duplicate" in text, ending
        assert "0.8765" not in text, ending
    rows = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["rows"]
    assert [(row["system"], row["rank"], row["quarantined"]) for row in rows] == [
        ("Other", 1, None),
        ("Doubted", None, WHY),
    ]
    assert all(value is None for key, value in rows[1]["values"].items() if key in ("nDCG@10", "delta", "relative"))
    system = client.get(f"/systems/{doubted.system.slug}/").content.decode()
    assert WHY in system
    assert "0.8765" not in system
    api = client.get(f"/api/v1/systems/{doubted.system.slug}/").json()
    assert (api["results"], api["quarantined"][0]["reason"]) == ([], WHY)
    badge = client.get(f"/systems/{doubted.system.slug}/badge.json").json()
    assert badge["message"] == "quarantined"
    assert "0.8765" not in client.get("/news/").content.decode()
    record = AuditRecord.objects.get(action="quarantined")
    assert (record.actor, record.reason, record.entry) == (carol, WHY, doubted)
    assert (record.before["visibility"], record.after["visibility"]) == ("public", "quarantined")
    assert other.system.name in page


def test_sorting_never_lifts_it_above_ranked_results(client: Client) -> None:
    dataset = scored_dataset()
    doubted = score(dataset, "A doubted one", ndcg=0.9)
    score(dataset, "Zebra", ndcg=0.5)
    quarantine(doubted, WHY)
    for order in ("asc", "desc"):
        rows = client.get(f"/api/v1/datasets/{dataset.slug}/board/?sort=system&order={order}").json()["rows"]
        assert [row["system"] for row in rows] == ["Zebra", "A doubted one"]


def test_a_restored_result_is_ranked_again(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "Doubted", ndcg=0.75)
    quarantine(entry, WHY)
    restore(entry)
    row = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["rows"][0]
    assert (row["rank"], row["values"]["nDCG@10"], row["quarantined"]) == (1, 0.75, None)
    assert WHY not in client.get(f"/datasets/{dataset.slug}/").content.decode()


def test_of_an_unpublished_result_nothing_is_left(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "Gone", ndcg=0.75)
    score(dataset, "Other", ndcg=0.5)
    unpublish(entry, "its team has no right to the model")
    for text in (
        client.get(f"/datasets/{dataset.slug}/").content.decode(),
        *exports_of(client, dataset.slug).values(),
    ):
        assert "Gone" not in text
        assert "no right" not in text
    assert client.get(f"/systems/{entry.system.slug}/").status_code == 404


def test_an_old_board_says_that_a_result_is_quarantined_since_and_why(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "Doubted", ndcg=0.75)
    at = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["permalink"].partition("testserver")[2]
    quarantine(entry, WHY)
    page = client.get(at)
    assert page.status_code == 200
    assert WHY in page.content.decode()
    assert 'class="badge is-quarantined"' in page.content.decode()


def test_a_team_never_undoes_a_curators_act() -> None:
    entry = score(scored_dataset(), "Doubted", ndcg=0.75)
    quarantine(entry, WHY)
    for public in (True, False, True):
        set_visibility(entry.submission_reference, public=public)
        entry.refresh_from_db()
        assert entry.visibility == Entry.Visibility.QUARANTINED
    set_visibility(entry.submission_reference, public=False)
    assert restore(entry).visibility == Entry.Visibility.PRIVATE


def test_what_was_withdrawn_under_quarantine_does_not_come_back() -> None:
    entry = score(scored_dataset(), "Doubted", ndcg=0.75)
    quarantine(entry, WHY)
    withdraw_entries(entry.submission_reference, "ours was wrong")
    entry.refresh_from_db()
    assert entry.visibility == Entry.Visibility.QUARANTINED
    assert restore(entry).visibility == Entry.Visibility.PRIVATE


def test_what_cannot_be_moderated_says_what_would_be_right() -> None:
    dataset = scored_dataset()
    baseline, entry = score(dataset, "BM25", ndcg=0.3), score(dataset, "Other", ndcg=0.5)
    name_baseline(baseline)
    with pytest.raises(CannotModerate, match="Name another baseline first"):
        quarantine(baseline, WHY)
    with pytest.raises(CannotModerate, match="Enter a reason"):
        quarantine(entry, "  ")
    with pytest.raises(CannotModerate, match="Only quarantined and unpublished"):
        restore(entry)
    unpublish(entry, WHY)
    with pytest.raises(CannotModerate, match="This is possible only if it is public"):
        quarantine(entry, WHY)


@pytest.mark.parametrize("taken", ["kept back", "withdrawn"])
def test_where_a_team_takes_the_baseline_away_the_sites_own_is_it_again(client: Client, taken: str) -> None:
    dataset = scored_dataset()
    house = System.objects.create(slug="bm25", name="BM25", architecture="lexical")
    own = score(dataset, house, baseline=True, ndcg=0.3)
    entry, _ = score(dataset, "Team's", ndcg=0.4), score(dataset, "Other", ndcg=0.5)
    name_baseline(entry)
    if taken == "withdrawn":
        withdraw_entries(entry.submission_reference, "ours was wrong")
    else:
        set_visibility(entry.submission_reference, public=False)
    assert list(Entry.objects.filter(is_baseline=True)) == [own]
    assert "+0.2" in client.get(f"/datasets/{dataset.slug}/").content.decode()
    set_visibility(entry.submission_reference, public=True)
    assert list(Entry.objects.filter(is_baseline=True)) == [own]
