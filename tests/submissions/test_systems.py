"""What a system says of itself, and changing it later."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, Entry, System, Team
from leaderboard.systems import SystemFields, create_system, find_system, free_slug, house_system
from tests.submissions.conftest import Api, work

pytestmark = pytest.mark.django_db


def team(name: str) -> Team:
    """A team."""
    return Team.objects.create(slug=name.lower(), name=name)


def test_systems_of_one_name_in_two_teams_have_two_addresses(db: None) -> None:
    first = create_system(team("A"), SystemFields("ColBERT", "late-interaction"))
    second = create_system(team("B"), SystemFields("ColBERT", "late-interaction"))
    assert (first.slug, second.slug) == ("colbert", "colbert-2")
    assert find_system([second.team], "ColBERT") == second  # type: ignore[list-item]
    assert find_system([first.team], "colbert") == first  # type: ignore[list-item]


def test_a_name_without_letters_still_has_an_address(db: None) -> None:
    assert free_slug("算法") == "system"


def test_nobody_takes_the_place_of_the_sites_own_system(db: None) -> None:
    theirs = create_system(team("A"), SystemFields("BM25", "lexical"))
    ours = house_system(slug="bm25", name="BM25", architecture="lexical", description="", parameters={})
    again = house_system(slug="bm25", name="BM25", architecture="lexical", description="", parameters={})
    assert ours == again
    assert ours != theirs
    assert (theirs.slug, ours.slug) == ("bm25", "bm25-2")


def test_editing_a_system_changes_its_marks_on_boards(demo: Dataset, api: Api, signed_in: Client) -> None:
    api.submit(parameters="k1=0.9")
    work()
    revision = Dataset.objects.get(pk=demo.pk).board_revision
    assert Entry.objects.get().training == "undeclared"
    page = signed_in.get("/systems/my-system/edit/").content.decode()
    assert "&quot;k1&quot;: 0.9" in page
    fields = {
        "name": "My system",
        "architecture": "dense",
        "training_datasets": "Demo",
        "parameters": "k1=1.2",
    }
    assert signed_in.post("/systems/my-system/edit/", fields).status_code == 302
    assert System.objects.get().parameters == {"k1": 1.2}
    assert Entry.objects.get().training == "in-domain"
    assert Dataset.objects.get(pk=demo.pk).board_revision > revision


def test_editing_shows_what_is_wrong(demo: Dataset, api: Api, signed_in: Client) -> None:
    api.submit()
    api.submit(system="Another")
    response = signed_in.post("/systems/another/edit/", {"name": "My system", "architecture": "dense"})
    assert response.status_code == 400
    assert "has a system named “My system” already" in response.content.decode()
    response = signed_in.post("/systems/another/edit/", {"name": "", "architecture": "dense"})
    assert "This field is required" in response.content.decode()


def test_nobody_edits_somebody_elses_system(demo: Dataset, stranger: Api, signed_in: Client) -> None:
    stranger.submit(system="Theirs")
    assert signed_in.get("/systems/theirs/edit/").status_code == 404
    assert signed_in.post("/systems/theirs/edit/", {"name": "Mine"}).status_code == 404
