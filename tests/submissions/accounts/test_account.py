"""The account page, API tokens, and the command that makes one."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from leaderboard.models import Membership, Team, User
from submissions.accounts.access import LIMIT
from submissions.accounts.teams import personal_team, set_profile
from submissions.models import ApiToken
from tests.factories import make_user
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.submissions.clients import Api, show_again

pytestmark = pytest.mark.django_db


def bearer(token: str) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {token}"}


def make_on_page(client: Client, name: str = "laptop") -> str:
    """A token's text, as the account page shows it."""
    fields = {"name": name, "scopes": ["read", "submit"], "days": "30"}
    page = client.post("/account/tokens/", fields, follow=True).content.decode()
    found = re.search(r"<code>(rb_\w+)</code>", page)
    assert found
    return found[1]


@pytest.fixture
def signed_in(signed_in: Client, alice: User) -> Client:
    """A client that has just shown again whose it is."""
    show_again(signed_in, alice)
    return signed_in


def test_the_account_marks_its_page_and_the_others_lead_back(signed_in: Client) -> None:
    page = signed_in.get("/account/").content.decode()
    assert re.findall(r'href="([^"]+)" aria-current="page">Overview<', page) == ["/account/"]
    tabs = re.findall(r'<li><a href="([^"]+)">', page.partition('class="tabs"')[2].partition("</ul>")[0])
    assert len(tabs) == page.partition('class="tabs"')[2].partition("</ul>")[0].count("<li>") - 1 > 0
    for address in tabs:
        assert '<p class="crumbs"><a href="/account/">Account</a></p>' in signed_in.get(address).content.decode()


def test_a_token_is_shown_once_and_works(signed_in: Client, client: Client) -> None:
    token = make_on_page(signed_in)
    assert client.get("/api/v1/submissions/", headers=bearer(token)).status_code == 200
    page = signed_in.get("/account/").content.decode()
    assert token not in page
    assert "laptop" in page
    assert ApiToken.objects.get().last_used_at is not None
    assert token not in str(ApiToken.objects.values().get())


def test_a_revoked_token_is_refused(signed_in: Client, client: Client) -> None:
    token = make_on_page(signed_in)
    signed_in.post("/account/tokens/revoke/", {"digest": ApiToken.objects.get().digest})
    answer = client.get("/api/v1/submissions/", headers=bearer(token))
    assert answer.status_code == 401
    assert answer.json()["code"] == "authentication_failed"


def test_an_expired_token_is_refused(signed_in: Client, client: Client) -> None:
    token = make_on_page(signed_in)
    ApiToken.objects.update(expiry=timezone.now() - timedelta(days=1))
    assert client.get("/api/v1/submissions/", headers=bearer(token)).status_code == 401


def test_nobody_revokes_somebody_elses_token(signed_in: Client, stranger: Api) -> None:
    digest = ApiToken.objects.get(user=stranger.user).digest
    signed_in.post("/account/tokens/revoke/", {"digest": digest})
    assert ApiToken.objects.filter(digest=digest).exists()


def test_tokens_are_limited(signed_in: Client) -> None:
    for number in range(LIMIT):
        make_on_page(signed_in, f"token {number}")
    response = signed_in.post("/account/tokens/", {"name": "one more", "scopes": ["read"], "days": "7"}, follow=True)
    assert response.status_code == 400
    assert "Revoke one" in response.content.decode()
    assert ApiToken.objects.count() == LIMIT


def test_a_session_without_csrf_token_cannot_change_anything(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    answer = client.post("/api/v1/submissions/x/cancel/")
    assert answer.status_code == 403
    assert answer.json()["code"]
    assert client.post("/account/tokens/", {"name": "x"}).status_code == 403


def test_name_and_team_can_be_changed(signed_in: Client, alice: User) -> None:
    signed_in.post("/account/profile/", {"name": "Alice A.", "team": "The Retrievers"})
    alice.refresh_from_db()
    assert alice.name == "Alice A."
    assert personal_team(alice).name == "The Retrievers"
    assert "The Retrievers" in signed_in.get("/account/").content.decode()


def test_boards_show_a_teams_new_name_at_once(signed_in: Client, alice: User) -> None:
    dataset = scored_dataset()
    score(dataset, make_system("Tawny", team=personal_team(alice)), ndcg=0.5)
    board, visitor = f"/datasets/{dataset.slug}/", Client()
    assert "The Retrievers" not in visitor.get(board).content.decode()
    signed_in.post("/account/profile/", {"name": "Alice", "team": "The Retrievers"})
    assert "The Retrievers" in visitor.get(board).content.decode()


def test_boards_are_locked_before_the_person_whose_team_is_renamed(alice: User) -> None:
    dataset = scored_dataset()
    score(dataset, make_system("Tawny", team=personal_team(alice)), ndcg=0.5)
    with CaptureQueriesContext(connection) as asked:
        set_profile(alice, "Alice A.", "The Retrievers")
    said = [each["sql"] for each in asked]
    person = next(at for at, sql in enumerate(said) if sql.startswith('UPDATE "leaderboard_user"'))
    locked = 'FROM "leaderboard_dataset" WHERE ("leaderboard_dataset"."id" IN'
    board = next(at for at, sql in enumerate(said) if locked in sql)
    assert board < person


def test_only_its_owner_renames_a_team(alice: User) -> None:
    member = User.objects.create_user("member@example.org", "a long passphrase")
    team = personal_team(alice)
    Membership.objects.create(team=team, user=member)
    client = Client()
    client.force_login(member)
    client.post("/account/profile/", {"name": "Max", "team": "Mine now"})
    assert Team.objects.get(pk=team.pk).name == "Alice"


@pytest.mark.parametrize(
    "path",
    ["account/", "account/email/", "account/password/change/", "account/logout/", "submissions/", "submit/"],
)
def test_no_cache_keeps_what_signed_in_people_see(signed_in: Client, path: str) -> None:
    response = signed_in.get(f"/{path}")
    assert response.status_code == 200
    assert "no-store" in response.headers["Cache-Control"]


def test_nor_a_form_that_comes_back(signed_in: Client) -> None:
    response = signed_in.post("/account/profile/", {"name": "Alice", "team": ""})
    assert response.status_code == 400
    assert "no-store" in response.headers["Cache-Control"]


def test_account_pages_of_allauth_are_reachable(signed_in: Client) -> None:
    page = signed_in.get("/account/").content.decode()
    for path in ("/account/email/", "/account/password/change/"):
        assert f'href="{path}"' in page
        assert signed_in.get(path).status_code == 200


def test_the_command_prints_one_token_alone(db: None, client: Client, capsys: Any) -> None:
    call_command("api_token", "new@example.org")
    token = capsys.readouterr().out.strip()
    assert re.fullmatch(r"rb_\w+", token)
    assert client.get("/api/v1/submissions/", headers=bearer(token)).status_code == 200
    assert Team.objects.filter(memberships__user__email="new@example.org").count() == 1


def test_the_command_makes_no_account_on_a_server(db: None, settings: Any) -> None:
    settings.EMBEDDED = False
    with pytest.raises(CommandError, match="No account"):
        call_command("api_token", "new@example.org")
    assert not User.objects.exists()


def test_the_command_can_be_called_again_and_again(db: None, capsys: Any, client: Client) -> None:
    person = make_user("Dora")
    for _ in range(LIMIT + 1):
        call_command("api_token", person.email)
    newest = capsys.readouterr().out.split()[-1]
    assert ApiToken.objects.filter(user=person).count() == LIMIT
    assert client.get("/api/v1/submissions/", headers=bearer(newest)).status_code == 200


def test_the_command_refuses_what_is_no_address(db: None) -> None:
    with pytest.raises(CommandError, match="not an email address"):
        call_command("api_token", "nobody")


def test_people_can_sign_in_while_the_cache_is_away(alice: User, client: Client, settings: Any) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}}
    fields = {"login": alice.email, "password": "a long passphrase"}
    assert client.post("/account/login/", fields).status_code == 302
    assert client.get("/submissions/").status_code == 200
