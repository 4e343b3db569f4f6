"""Approval of accounts, and of teams that submit to hidden judgments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import AuditRecord, Dataset, Team, User
from leaderboard.settings import security
from submissions.accounts.teams import TeamRefused, accept_invitation, invite
from submissions.models import AccountMail, QuotaUse
from tests.factories import make_a_curator, make_user, team_of
from tests.submissions.clients import Api

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]
PASSWORD = "a long passphrase"


def sign_up(address: str = "new@example.org") -> Any:
    words = {"email": address, "team_name": "New Lab", "password1": PASSWORD, "password2": PASSWORD}
    return Client().post("/account/signup/", words)


def sign_in(address: str = "new@example.org") -> tuple[Client, Any]:
    client = Client()
    return client, client.post("/account/login/", {"login": address, "password": PASSWORD})


def curating(client: Client, model: str, action: str, *rows: Any) -> Any:
    """An action of the admin, with the reason that it asks for."""
    chosen = {
        "action": action,
        "_selected_action": [row.pk for row in rows],
        "confirmed": "1",
        "why": "a track",
    }
    return client.post(f"/admin/leaderboard/{model}/", chosen, follow=True)


@pytest.fixture
def curator_client() -> Client:
    client = Client()
    client.force_login(make_a_curator())
    return client


def test_nobody_signs_up_where_that_is_closed_not_even_somebody_who_is_invited(settings: Any) -> None:
    settings.SIGNUP = "closed"
    owner = make_user("Olga")
    invite(team_of(owner), "new@example.org", owner=False, actor=owner)
    assert "Registration is closed" in sign_up().content.decode()
    assert not User.objects.filter(email="new@example.org").exists()
    assert "/account/signup/" not in Client().get("/").content.decode()


def test_only_addresses_of_the_named_domains_sign_up(settings: Any) -> None:
    settings.SIGNUP_DOMAINS = ["example.org"]
    for address in ("a@example.com", "a@badexample.org", "a@example.org.evil.net"):
        assert "Accounts on this site require an address at example.org" in sign_up(address).content.decode()
    assert not User.objects.exists()
    for address in ("a@example.org", "b@lab.Example.ORG"):
        assert sign_up(address).status_code == 302
    assert User.objects.count() == 2


def test_an_account_that_waits_signs_in_only_when_a_curator_has_approved_it(
    settings: Any, curator_client: Client
) -> None:
    settings.SIGNUP = "approval"
    owner = make_user("Olga")
    invitation, _ = invite(team_of(owner), "new@example.org", owner=False, actor=owner)
    assert "This account is awaiting approval" in sign_up().content.decode()
    person = User.objects.get(email="new@example.org")
    client, answer = sign_in()
    assert answer.status_code == 403
    assert client.get("/account/").status_code == 302
    assert "</strong> account waits for approval" in curator_client.get("/admin/").content.decode()
    curating(curator_client, "user", "approve", person)
    assert AuditRecord.objects.filter(action="account approved", subject=f"account {person.pk}").exists()
    assert "is approved" in AccountMail.objects.get(address="new@example.org", subject__contains="approved").subject
    client, answer = sign_in()
    assert answer.status_code == 302
    assert client.get("/account/").status_code == 200
    assert accept_invitation(invitation, User.objects.get(pk=person.pk)).team == team_of(owner)


def test_a_waiting_account_is_told_nothing_that_a_taken_address_is_not(settings: Any) -> None:
    settings.SIGNUP, settings.ACCOUNT_EMAIL_VERIFICATION = "approval", "mandatory"
    make_user("Anna", email="taken@example.org")
    new, taken = sign_up(), sign_up("taken@example.org")
    assert (new.status_code, new["Location"]) == (taken.status_code, taken["Location"])
    EmailAddress.objects.filter(email="new@example.org").update(verified=True)
    assert "awaiting approval" in sign_in()[1].content.decode()


def test_a_team_is_approved_before_it_submits_to_hidden_judgements(
    settings: Any, secret: Dataset, demo: Dataset, api: Api, curator_client: Client
) -> None:
    settings.TEAM_APPROVAL = True
    assert api.user is not None
    team = team_of(api.user)
    refused = api.submit(dataset="secret")
    assert refused.status == 400
    assert refused.body["code"] == "team_not_approved"
    assert "secret" in refused.problem("team_not_approved")["message"].lower()
    assert not QuotaUse.objects.exists()
    assert api.submit(dataset="demo").status == 201
    assert api.get("quotas/").body["quotas"][0]["awaits_approval"] is True
    browser = Client()
    browser.force_login(api.user)
    for address in ("/submit/", "/datasets/secret/", f"/teams/{team.slug}/manage/"):
        assert "not approved yet" in browser.get(address).content.decode(), address
    assert "wait for approval for hidden datasets" in curator_client.get("/admin/").content.decode()
    curating(curator_client, "team", "approve", team)
    assert AuditRecord.objects.filter(action="team approved").exists()
    assert api.submit(dataset="secret", configuration="b").status == 201
    assert "not approved yet" not in browser.get("/submit/").content.decode()
    curating(curator_client, "team", "withdraw_approval", team)
    assert api.submit(dataset="secret", configuration="c").status == 400


def test_a_new_team_of_an_approved_person_is_not_approved(settings: Any, secret: Dataset, api: Api) -> None:
    settings.TEAM_APPROVAL = True
    Team.objects.update(approved_at="2026-01-01T00:00Z")
    assert api.user is not None
    browser = Client()
    browser.force_login(api.user)
    browser.post("/account/teams/", {"name": "Second"})
    team = Team.objects.get(name="Second")
    assert api.submit(dataset="secret", team=team.slug).body["code"] == "team_not_approved"


def test_an_invitation_requires_the_verified_address(settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    owner, ada = make_user("Olga"), make_user("Ada", email="ada@ibm.example")
    invitation, _ = invite(team_of(owner), "ada@ibm.example", owner=False, actor=owner)
    # Databases compare a dotless i with an i, where case does not count.
    EmailAddress.objects.create(user=ada, email="ada@ıbm.example", verified=True)
    with pytest.raises(TeamRefused, match="for another address"):
        accept_invitation(invitation, ada)
    EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
    accept_invitation(invitation, ada)


def test_a_track_approves_by_list_all_or_nobody(tmp_path: Path, settings: Any) -> None:
    settings.SIGNUP = "approval"
    anna, ben = make_user("Anna"), make_user("Ben", approval_awaited=True)
    curator = make_a_curator()
    listed = tmp_path / "teams.csv"
    by = {"by": curator.email, "why": "registered for the track"}
    listed.write_text(f"team,email\n{team_of(anna).slug},\n,{ben.email}\nnobody,\n,x@example.org\n")
    with pytest.raises(
        CommandError,
        match=r"line 4: no team nobody; line 5: no account with the verified address x@example.org",
    ):
        call_command("approve_teams", listed, **by)
    assert not Team.objects.exclude(approved_at=None).exists()
    listed.write_text(f"\ufeffteam,email\n{team_of(anna).slug},\n,{ben.email.upper()}\n")
    call_command("approve_teams", listed, **by)
    assert set(Team.objects.exclude(approved_at=None)) == {team_of(anna), team_of(ben)}
    assert not User.objects.get(pk=ben.pk).approval_awaited
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    cleo = make_user("Cleo", approval_awaited=True)
    listed.write_text(f"email\n{cleo.email}\n")
    with pytest.raises(CommandError, match=f"line 2: no account with the verified address {cleo.email}"):
        call_command("approve_teams", listed, **by)
    EmailAddress.objects.create(user=cleo, email=cleo.email, verified=True, primary=True)
    call_command("approve_teams", listed, **by)
    assert not User.objects.get(pk=cleo.pk).approval_awaited
    listed.write_text("name\nx\n")
    with pytest.raises(CommandError, match="header line with a column"):
        call_command("approve_teams", listed, **by)


def test_the_one_command_default_approves_nobody_and_has_no_young_teams() -> None:
    assert security.SIGNUP == "open"
    assert not security.TEAM_APPROVAL
    assert security.YOUNG_TEAM_DAYS == 0
