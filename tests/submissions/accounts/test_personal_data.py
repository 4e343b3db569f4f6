"""A person takes what is stored of them, and closes the account."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from allauth.account.models import EmailAddress
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.models import AuditRecord, Membership, Team, User
from leaderboard.systems.challenges import raise_challenge
from submissions.accounts.access import make_token
from submissions.accounts.personal_data import close_account
from submissions.accounts.teams import create_team, personal_team, rename_team
from submissions.models import ApiToken, Scope, Webhook
from tests.factories import make_user
from tests.leaderboard.entries import make_system, score, scored_dataset

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"


@pytest.fixture
def ada(client: Client) -> User:
    person = make_user("Ada Byron", email="ada@example.org")
    person.set_password(PASSWORD)
    person.save()
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    client.post("/account/login/", {"login": person.email, "password": PASSWORD})
    assert client.post("/account/reauthenticate/", {"password": PASSWORD}).status_code == 302
    return person


def test_the_download_has_what_is_stored_and_no_secret(client: Client, ada: User) -> None:
    text = make_token(ada, "laptop", scopes=[Scope.READ], days=30)
    create_team("Engines", ada)
    Webhook.objects.create(
        team=Team.objects.get(name="Engines"), url="https://example.org/hook", secret="whsec", created_by=ada
    )
    answer = client.get("/account/data/")
    assert answer["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["account.json"]
        written = archive.read("account.json").decode()
    data = json.loads(written)
    assert data["account"]["email"] == "ada@example.org"
    assert data["tokens"][0]["name"] == "laptop"
    assert data["webhooks"][0]["url"] == "https://example.org/hook"
    assert [each["team__name"] for each in data["teams"]] == ["Ada Byron", "Engines"]
    for secret in (text, "whsec", ada.password, ApiToken.objects.get().digest):
        assert secret not in written


def test_a_closed_account_names_nobody_and_its_results_stay(client: Client, ada: User) -> None:
    team = personal_team(ada)
    dataset = scored_dataset(slug="nuts", name="Nuts")
    system = make_system("Owl", team=team)
    score(dataset, system, ndcg=0.5)
    with acting(ada):
        hawk = score(dataset, "Hawk", ndcg=0.4).system
        raise_challenge(hawk, ada, "training", "It saw the test queries, as its paper says.")
    make_token(ada, "laptop", scopes=[Scope.READ], days=30)
    page = client.get("/account/close/").content.decode()
    assert "This cannot be undone" in page
    assert client.post("/account/close/", {"email": "other@example.org"}).status_code == 400
    assert client.post("/account/close/", {"email": "ada@example.org"}).status_code == 302
    assert client.get("/account/").status_code == 302
    ada.refresh_from_db()
    assert (ada.name, ada.is_active, ada.email) == (
        "A former member",
        False,
        f"account-{ada.pk}@closed.invalid",
    )
    assert not EmailAddress.objects.exists()
    assert not ApiToken.objects.exists()
    assert not Membership.objects.filter(user=ada).exists()
    for address in ("/datasets/nuts/", system.get_absolute_url(), hawk.get_absolute_url()):
        shown = Client().get(address).content.decode()
        assert "Ada Byron" not in shown
        assert "A former member" in shown
    assert "Owl" in Client().get("/datasets/nuts/").content.decode()
    closed = AuditRecord.objects.get(action="account closed")
    assert closed.subject == f"account {ada.pk}"
    assert not AuditRecord.objects.filter(actor_name__contains="Ada").exists()
    again = Client().post("/account/login/", {"login": "ada@example.org", "password": PASSWORD})
    assert again.status_code == 200


def test_the_last_owner_of_a_team_with_others_hands_it_over_first(client: Client, ada: User) -> None:
    team = create_team("Engines", ada)
    Membership.objects.create(team=team, user=make_user("Bob"))
    refused = client.post("/account/close/", {"email": "ada@example.org"})
    assert refused.status_code == 400
    assert "only owner of “Engines”" in refused.content.decode()
    Membership.objects.filter(user__name="Bob").update(owner=True)
    close_account(ada)
    assert list(team.members.values_list("name", flat=True)) == ["Bob"]


def test_addresses_of_teams_follow_their_names(client: Client, ada: User) -> None:
    team = create_team("Team 5", ada)
    rename_team(team, "Analytical Engine v1.2")
    assert team.slug == "analytical-engine-v1-2"
    answer = client.get("/teams/team-5/")
    assert (answer.status_code, answer["Location"]) == (301, "/teams/analytical-engine-v1-2/")
    assert "Analytical Engine v1.2" in client.get("/teams/team-5/manage/").content.decode()
    assert create_team("Team 5", ada).slug == "team-5-2"  # the address that leads to another team
    rename_team(team, "Team 5")
    assert team.slug == "team-5"
    assert client.get("/teams/team-5/").status_code == 200
    assert client.get("/teams/analytical-engine-v1-2/")["Location"] == "/teams/team-5/"
