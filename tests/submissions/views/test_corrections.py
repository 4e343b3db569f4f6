"""Corrections keep history, and no team undoes what a curator did."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.models import Dataset, Entry, System, User
from leaderboard.results.publishing.visibility import quarantine, restore
from leaderboard.systems.anonymity import end_anonymity, make_anonymous
from leaderboard.systems.corrections import list_corrections
from leaderboard.systems.records import SystemFields, update_system
from tests.factories import make_user
from tests.submissions.clients import Api, describe_anew
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


@pytest.fixture
def public(demo: Dataset, api: Api) -> str:
    """The id of a scored public submission."""
    identifier: str = api.submit(training_datasets="none").body["id"]
    work()
    return identifier


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who decides."""
    return make_user("Curator", is_staff=True, is_superuser=True)


def edit(**fields: object) -> System:
    """Change what the system says, as its page does."""
    system = System.objects.get(slug="my-system")
    values = {"name": "My system", "architecture": "dense", "training_declared": True, **fields}
    return update_system(system, SystemFields(**values))  # type: ignore[arg-type]


def test_everyone_reads_what_a_team_corrected(public: str, alice: User, signed_in: Client, nobody: Api) -> None:
    fields = {"name": "My system", "architecture": "dense", "training_datasets": "Demo", "licence": "MIT"}
    assert describe_anew(signed_in, **fields).status_code == 302
    page = " ".join(Client().get("/systems/my-system/").content.decode().split())
    assert "Trained on: <del>none</del> → <ins>demo</ins>" in page
    assert "License: <del>not stated</del> → <ins>MIT</ins>" in page
    assert alice.email not in page
    told = nobody.get("systems/my-system/").body["corrections"]
    assert told[0]["changes"][0] == {"field": "Trained on", "before": "none", "after": "demo"}


def test_a_form_that_is_older_than_the_system_writes_nothing_over(public: str, signed_in: Client) -> None:
    opened = signed_in.get("/systems/my-system/edit/").context["rendered_from"]
    edit(licence="MIT", dimension=768)
    fields = {"name": "My system", "architecture": "dense", "training_none": "on"}
    stale = signed_in.post("/systems/my-system/edit/", {**fields, "rendered_from": opened})
    assert stale.status_code == 400
    assert "Dimension, License changed while you were editing" in stale.content.decode()
    assert System.objects.get(slug="my-system").licence == "MIT"
    again = {**fields, "licence": "BSD", "rendered_from": stale.context["rendered_from"]}
    assert signed_in.post("/systems/my-system/edit/", again).status_code == 302
    assert System.objects.get(slug="my-system").licence == "BSD"
    assert signed_in.post("/systems/my-system/edit/", fields).status_code == 400


def test_what_was_changed_before_anyone_saw_it_is_the_teams_own(demo: Dataset, api: Api) -> None:
    api.submit(public="no", licence="Secret draft")
    work()
    system = edit(licence="MIT", training_declared=False)
    identifier = system.entries.get().submission_reference
    assert api.post(f"submissions/{identifier}/visibility/", public="true").status == 200
    assert list_corrections(system.pk) == []
    edit(licence="BSD", training_declared=False)
    changes = list_corrections(system.pk)[0].changes
    assert [(each.before, each.after) for each in changes] == [("MIT", "BSD")]


def test_long_texts_are_only_said_to_have_changed(public: str) -> None:
    system = edit(description="An essay. " * 40)
    changes = list_corrections(system.pk)[0].changes
    assert [(each.field, each.before) for each in changes] == [("Description", None)]


def test_an_anonymous_systems_history_names_nobody(demo: Dataset, api: Api, nobody: Api) -> None:
    day = (timezone.now() + timedelta(days=30)).date()
    api.submit(backbone="zyxlab-bert", authors="Ada Zyxauthor", anonymous_until=day.isoformat())
    work()
    edit(backbone="bert", authors="Ada Zyxauthor and Eve Zyxother", training_datasets=["demo"])
    page = " ".join(nobody.client.get("/systems/my-system/").content.decode().split())
    assert "Backbone changed" in page
    assert "Trained on: <del>" in page
    assert "zyx" not in page.casefold()
    end_anonymity(System.objects.get(slug="my-system"))
    page = nobody.client.get("/systems/my-system/").content.decode()
    assert "zyxlab-bert" in page
    assert "Authors: <del>" not in page


def test_a_curators_act_is_the_curators(public: str, api: Api, nobody: Api, curator: User) -> None:
    with acting(curator, "copied"):
        quarantine(Entry.objects.get(), "A near-copy of another run.")
    for wish in ("false", "true"):
        api.post(f"submissions/{public}/visibility/", public=wish)
        assert Entry.objects.get().visibility == "quarantined"
    assert api.post(f"submissions/{public}/withdraw/", reason="Ours was wrong.").status == 200
    entry = Entry.objects.get()
    assert (entry.visibility, entry.moderation_reason) == ("quarantined", "A near-copy of another run.")
    assert api.get(f"submissions/{public}/").body["state"] == "withdrawn"
    page = nobody.client.get("/datasets/demo/").content.decode()
    assert "A near-copy of another run." in page
    with acting(curator, "settled"):
        restore(entry)
    entry.refresh_from_db()
    assert entry.visibility != "public"


@pytest.mark.parametrize("state", ["unpublished", "held"])
def test_what_nobody_sees_is_withdrawn_without_a_trace_for_others(
    public: str, api: Api, nobody: Api, state: str
) -> None:
    Entry.objects.update(visibility=state, scores={} if state == "held" else {"nDCG@10": 0.5})
    api.post(f"submissions/{public}/visibility/", public="true")
    assert Entry.objects.get().visibility == state
    assert api.post(f"submissions/{public}/withdraw/", reason="Ours was wrong.").status == 200
    assert Entry.objects.get().visibility == state
    assert nobody.client.get(f"/submissions/{public}/").status_code == 404
    assert "Ours was wrong" not in nobody.client.get("/datasets/demo/").content.decode()


def test_embargo_and_quarantine_together_name_nobody(demo: Dataset, api: Api, nobody: Api, curator: User) -> None:
    day = (timezone.now() + timedelta(days=30)).date()
    api.submit(authors="Ada Zyxauthor", anonymous_until=day.isoformat())
    work()
    with acting(curator, "probe"):
        quarantine(Entry.objects.get(), "Looks like a probe.")
    for path in ("/datasets/demo/", "/systems/my-system/", "/api/v1/datasets/demo/"):
        page = nobody.client.get(path).content.decode()
        assert "My system" in page
        assert "Alice" not in page
        assert "zyx" not in page.casefold()
    system = System.objects.get(slug="my-system")
    make_anonymous(system, day + timedelta(days=1))
    assert system.anonymous_until is not None
