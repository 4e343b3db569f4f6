"""The name of the team, which the form for signing up asks for."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, Team, User
from submissions.accounts.teams import invite
from tests.factories import make_user, team_of
from tests.pages import one_line

pytestmark = pytest.mark.django_db

PASSWORD = "a long passphrase"
ADDRESS = "new@example.org"
FIELDS = {"email": ADDRESS, "password1": PASSWORD, "password2": PASSWORD}


def test_the_team_is_named_at_sign_up_and_not_asked_for_again(demo: Dataset, client: Client) -> None:
    page = one_line(client.get("/account/signup/").content.decode())
    assert "Shown next to your systems on boards. You can change it later." in page
    response = client.post("/account/signup/", FIELDS)
    assert "This field is required." in response.content.decode()
    assert not User.objects.exists()
    client.post("/account/signup/", {**FIELDS, "team_name": "Careful Lab"})
    person = User.objects.get()
    assert team_of(person).name == "Careful Lab"
    assert person.name == ""
    client.force_login(person)
    assert 'name="team_name"' not in client.get("/submit/").content.decode()


@pytest.mark.parametrize("name", ["Anonymous", "Runboard", "a\u202eb"])
def test_reserved_names_are_refused(client: Client, name: str) -> None:
    assert client.post("/account/signup/", {**FIELDS, "team_name": name}).status_code == 200
    assert not User.objects.exists()


def test_a_user_with_an_invitation_needs_no_team_of_their_own(client: Client) -> None:
    owner = make_user("Olga")
    _invitation, secret = invite(team_of(owner), ADDRESS, owner=False, actor=owner)
    for page in ("/invitations/made-up/", "/submit/", "https://elsewhere.example/", f"/{secret}/"):
        assert "This field is required." in client.post("/account/signup/", {**FIELDS, "next": page}).content.decode()
    response = client.post("/account/signup/", {**FIELDS, "next": f"/invitations/{secret}/"})
    assert response.status_code == 302
    person = User.objects.get(email=ADDRESS)
    assert Team.objects.get(memberships__user=person).name == f"Team {person.pk}"
