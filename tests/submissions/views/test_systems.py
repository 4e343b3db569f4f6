"""What a system says of itself, and changing it later."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, Entry, System, Team
from leaderboard.systems.records import SystemFields, create_system, find_system, free_slug, house_system
from submissions.accounts.throttling import ChangeThrottle
from submissions.models import Submission
from tests.submissions.clients import Api, describe_anew
from tests.submissions.collections import run_text
from tests.submissions.workers import work

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
    assert describe_anew(signed_in, **fields).status_code == 302
    assert System.objects.get().parameters == {"k1": 1.2}
    assert Entry.objects.get().training == "in-domain"
    assert Dataset.objects.get(pk=demo.pk).board_revision > revision


def test_editing_shows_what_is_wrong(demo: Dataset, api: Api, signed_in: Client) -> None:
    api.submit()
    api.submit(system="Another")
    response = describe_anew(signed_in, "another", name="My system")
    assert response.status_code == 400
    assert "already has a system named “My system”" in response.content.decode()
    response = signed_in.post("/systems/another/edit/", {"name": "", "architecture": "dense"})
    assert "Enter the system&#x27;s name" in response.content.decode()


def test_nobody_edits_somebody_elses_system(demo: Dataset, stranger: Api, signed_in: Client) -> None:
    stranger.submit(system="Theirs")
    assert signed_in.get("/systems/theirs/edit/").status_code == 404
    assert signed_in.post("/systems/theirs/edit/", {"name": "Mine"}).status_code == 404


def test_a_system_says_what_readers_choose_by(demo: Dataset, api: Api, signed_in: Client) -> None:
    api.submit(system="Original")
    work()
    answer = api.submit(
        run_text(depth=7),
        system="Described",
        authors="Ada Lovelace and Grace Hopper",
        year="2024",
        open_weights="true",
        commercial_use="no",
        closed_api="false",
        parameter_count="109482240",
        training_compute="8 A100, 3 days",
        adapted_to="Demo",
        training_datasets="none",
        variant_of="original",
    )
    assert answer.status == 201, answer.body
    system = System.objects.get(name="Described")
    assert (system.open_weights, system.commercial_use, system.closed_api) == (True, False, False)
    assert (system.authors, system.year) == ("Ada Lovelace and Grace Hopper", 2024)
    assert system.adapted_to == ["demo"]
    assert system.variant_of == System.objects.get(name="Original")
    work()
    assert system.entries.get().training == "adapted"
    page = signed_in.get("/systems/described/").content.decode()
    for shown in ("109 M", "8 A100, 3 days", "Ada Lovelace", "2024", "not permitted"):
        assert shown in page
    assert "/systems/original/" in page
    again = api.submit(
        run_text(depth=8),
        system="Described",
        open_weights="yes",
        variant_of="original",
        configuration="top 8",
    )
    assert again.status == 201, again.body
    other = api.submit(run_text(depth=9), system="Described", closed_api="true", configuration="top 9")
    assert "closed_api" in other.problem("invalid_system")["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("year", "1815"),
        ("year", "2999"),
        ("open_weights", "perhaps"),
        ("adapted_to", "no such dataset"),
        ("variant_of", "no-such-system"),
        ("parameter_count", "0"),
    ],
)
def test_what_a_system_cannot_say_is_refused(field: str, value: str, demo: Dataset, api: Api) -> None:
    answer = api.submit(**{field: value})
    assert answer.status == 400
    assert answer.problem(f"invalid_{field}")["message"]


def test_what_nobody_said_stays_unsaid_when_a_system_is_edited(demo: Dataset, api: Api, signed_in: Client) -> None:
    api.submit()
    system = System.objects.get()
    page = signed_in.get(f"/systems/{system.slug}/edit/").content.decode()
    assert "Not specified" in page
    fields = {"name": system.name, "architecture": "dense", "open_weights": "no", "year": "2020"}
    saved = describe_anew(signed_in, **fields, variant_of="")
    assert saved.status_code == 302
    system.refresh_from_db()
    assert (system.open_weights, system.commercial_use, system.year) == (False, None, 2020)
    itself = describe_anew(signed_in, **fields, variant_of=system.slug)
    assert itself.status_code == 400


def test_a_system_with_a_public_result_may_be_named_whatever_else_it_has(demo: Dataset, api: Api) -> None:
    api.submit(system="Original")
    api.submit(run_text(depth=8), system="Original", public="false", configuration="in secret")
    api.submit(run_text(depth=7), system="Unseen", public="false")
    work()
    assert Entry.objects.filter(visibility="private").count() == 2
    answer = api.submit(run_text(depth=6), system="Variant", variant_of="original")
    assert answer.status == 201, answer.body
    refused = api.submit(run_text(depth=5), system="Other", variant_of="unseen")
    assert "a public result" in refused.problem("invalid_variant_of")["message"]


def test_who_changes_much_in_a_short_time_is_slowed_down(
    demo: Dataset, api: Api, signed_in: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = api.submit().body["id"]
    work()
    monkeypatch.setattr(ChangeThrottle, "THROTTLE_RATES", {"change": "3/hour"})
    shown = [api.post(f"submissions/{identifier}/visibility/", public=public).status for public in ("no", "yes")]
    assert shown == [200, 200]
    described = {"name": "My system", "architecture": "dense"}
    assert describe_anew(signed_in, **described).status_code == 302
    revision = Dataset.objects.get(pk=demo.pk).board_revision
    for change, sent in (
        ("visibility", {"public": "no"}),
        ("reusable", {"reusable": "yes"}),
        ("priority", {"priority": 1}),
    ):
        limited = api.post(f"submissions/{identifier}/{change}/", **sent)
        assert (limited.status, limited.body["code"]) == (429, "throttled"), change
    for address, sent in (
        ("/systems/my-system/edit/", {**described, "name": "Renamed"}),
        (f"/submissions/{identifier}/visibility/", {"public": "no"}),
        (f"/submissions/{identifier}/reusable/", {"reusable": "yes"}),
        (f"/submissions/{identifier}/priority/", {"priority": "1"}),
        ("/account/profile/", {"name": "Alice", "team": "Renamed"}),
    ):
        page = signed_in.post(address, sent)
        assert page.status_code == 429, address
        assert "Wait 60 minutes" in page.content.decode()
    assert Dataset.objects.get(pk=demo.pk).board_revision == revision
    assert not Submission.objects.get().reusable
    assert (Entry.objects.get().visibility, System.objects.get().name) == ("public", "My system")
