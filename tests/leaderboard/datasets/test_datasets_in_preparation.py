"""A dataset in preparation is nobody's business, even where a public entry stands on it already."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, System, Team
from leaderboard.systems.records import canonical_datasets
from tests.factories import make_dataset
from tests.leaderboard.entries import make_system, score, scored_dataset

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

PREPARING = Dataset.State.PREPARING


@pytest.fixture
def system() -> System:
    """It has a public entry on a dataset that is open, and one on a dataset in preparation."""
    system = make_system("Early", team=Team.objects.create(slug="owls", name="Owls"), authors="Ada Lovelace")
    score(scored_dataset(name="Open one", slug="open-one"), system, ndcg=0.5)
    score(scored_dataset(name="Hush", slug="hush", state=PREPARING), system, ndcg=0.25)
    return system


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/datasets/",
        "/news/",
        "/news/atom.xml",
        "/systems/{slug}/",
        "/api/v1/systems/{slug}/",
        "/systems/{slug}/eval_results.yaml",
        "/teams/owls/",
        "/authors/ada-lovelace/",
        "/compare/?system={slug}",
    ],
)
def test_no_page_names_it(system: System, address: str) -> None:
    answer = Client().get(address.format(slug=system.slug))
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "Hush" not in text
    assert "hush" not in text


def test_authors_and_teams_do_not_count_it(system: System) -> None:
    score(Dataset.objects.get(slug="hush"), make_system("Only there", authors="Grace Hopper"), ndcg=0.125)
    assert Client().get("/authors/grace-hopper/").status_code == 404
    only_there = System.objects.get(name="Only there")
    assert Client().get(f"/systems/{only_there.slug}/").status_code == 404
    assert Client().get(f"/systems/{only_there.slug}/eval_results.yaml").status_code == 404


def test_its_name_and_slug_cannot_be_guessed() -> None:
    make_dataset(name="Hush", slug="a-hidden-slug", state=PREPARING)
    assert canonical_datasets(["hush", "Hush"]) == ["hush", "Hush"]
    figure = "/figures/query-differences.json?dataset="
    there, nowhere = (Client().get(f"{figure}{slug}") for slug in ("a-hidden-slug", "no-such-slug"))
    assert there.status_code == nowhere.status_code == 404
