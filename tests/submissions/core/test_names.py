"""Names that others see, on the page and through the API: nothing invisible, and not the site's own."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from django.test import Client

from leaderboard.models import Dataset, System, Team, User
from submissions.accounts.teams import personal_team
from submissions.models import Job, Submission
from tests.submissions.clients import Api, upload
from tests.submissions.collections import run_text

pytestmark = pytest.mark.django_db

UNREADABLE = ["\u200b\u200b", "a\u202eb", "a\x07b", "a\u2028b", "a\ue000b", "\u3164", "\u0301", "a\u2066b"]


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("field", ["system", "configuration", "licence", "backbone"])
def test_the_api_refuses_names_that_cannot_be_read(demo: Dataset, api: Api, field: str, name: str) -> None:
    answer = api.submit(**{field: name})
    assert answer.status == 400
    messages = [found["message"] for found in answer.body["problems"]]
    assert any("is an invisible character" in each or "one visible character" in each for each in messages)
    assert not Submission.objects.exists()


@pytest.mark.parametrize("field", ["new-name", "configuration", "new-licence", "new-backbone"])
def test_the_page_refuses_them_too(demo: Dataset, signed_in: Client, field: str) -> None:
    form: dict[str, Any] = {"new-name": "Mine", "new-architecture": "dense", "public": "yes"}
    response = signed_in.post("/submit/", {**form, "run:demo": upload(run_text()), field: "a\u202eb"})
    assert response.status_code == 400
    assert "U+202E" in response.content.decode()


@pytest.mark.parametrize("field", ["description", "bibtex"])
def test_texts_have_lines_and_no_control_characters(demo: Dataset, api: Api, field: str) -> None:
    answer = api.submit(**{field: "one\x01two"})
    assert answer.status == 400
    assert any("U+0001" in found["message"] for found in answer.body["problems"])
    text = "@misc{a,\n\ttitle={é 👩‍💻}}"
    assert api.submit(**{field: text}).status == 201
    assert getattr(System.objects.get(), field) == text


@pytest.mark.parametrize(
    "name", ["ColBERTv2 (2 bits)", "\u691c\u7d22", "\u0645\u062d\u0631\u0643", "e\u0301toile", "\U0001f50d"]
)
def test_names_in_every_script_are_names(demo: Dataset, api: Api, name: str) -> None:
    assert api.submit(system=name).body["system_name"] == name


@pytest.mark.parametrize("name", [*UNREADABLE, "Runboard", "run BOARD", "\uff32unboard"])
def test_teams_have_names_of_their_own(signed_in: Client, alice: User, name: str) -> None:
    assert signed_in.post("/account/profile/", {"name": "", "team": name}).status_code == 400
    assert personal_team(alice).name == "Alice"


def test_nobody_gets_a_team_called_like_the_site_by_being_called_so(db: None) -> None:
    person = User.objects.create_user("someone@example.org", name="Runboard")
    assert personal_team(person).name == f"Team {person.pk}"
    assert not Team.objects.filter(name="Runboard").exists()


def test_people_have_names_that_can_be_read(signed_in: Client, alice: User) -> None:
    assert signed_in.post("/account/profile/", {"name": "A\u202eb", "team": "Alice"}).status_code == 400
    alice.refresh_from_db()
    assert alice.name == "Alice"


def test_file_names_lose_or_may_not_have_what_is_invisible(demo: Dataset, api: Api) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("demo.\u202etxt", run_text())
    assert api.submit(dataset=None, file=upload(out.getvalue(), "runs.zip")).status == 400
    assert api.submit(file=upload(run_text(), "run\u202etxt.exe")).status == 201
    assert Job.objects.get().file_name == "runtxt.exe"
