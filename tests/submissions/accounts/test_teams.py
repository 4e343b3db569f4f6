"""Teams: who is in them, who decides, and how somebody gets in. A team never ends without an owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.utils import timezone

from leaderboard.models import AuditRecord, Dataset, Invitation, Membership, System, Team, User
from submissions.accounts import teams as membership
from submissions.accounts.teams import (
    TeamRefused,
    create_team,
    leave_team,
    make_team,
    remove_member,
    set_role,
    transfer_team,
)
from submissions.models import Submission, Webhook
from tests.factories import make_a_curator, make_user, team_of
from tests.submissions.clients import Api
from tests.submissions.outbox import account_mail
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


def member(team: Team, name: str = "Carol", *, owner: bool = False) -> User:
    """Somebody in the team."""
    person = make_user(name)
    Membership.objects.create(team=team, user=person, owner=owner)
    return person


def key(team: Team, person: User) -> int:
    """The key of a membership."""
    return Membership.objects.get(team=team, user=person).pk


def client_of(person: User) -> Client:
    """The site as this person."""
    client = Client()
    client.force_login(person)
    return client


def owners(team: Team) -> int:
    """How many own the team."""
    return Membership.objects.filter(team=team, owner=True).count()


@pytest.fixture
def lab(alice: User) -> Team:
    """A team that Alice owns beside her own."""
    return create_team("The lab", alice)


def link_in(page: str) -> str:
    """The path of the link that a page shows."""
    found = re.search(r"https?://[^/<]+(/invitations/[\w-]+/)", page)
    assert found, page
    return found[1]


def invite(client: Client, team: Team, email: str, **fields: Any) -> str:
    """Invite on the team's page; the path of the link."""
    page = client.post(f"/teams/{team.slug}/manage/invitations/", {"email": email, **fields})
    assert page.status_code == 200
    return link_in(page.content.decode())


def test_an_invitation_is_mailed_shown_once_and_good_once(signed_in: Client, lab: Team) -> None:
    bob = make_user("Bob")
    path = invite(signed_in, lab, bob.email.upper())
    assert mail.outbox == []  # the page waits for no mail server
    (sent,) = account_mail()
    assert sent.to == [bob.email]
    assert link_in(sent.body) == path
    page = signed_in.get(f"/teams/{lab.slug}/manage/").content.decode()
    assert bob.email in page
    assert 'name="email"' in page
    assert f"for {membership.INVITATION_LIFETIME.days} days" in page
    assert path not in page
    secret = path.split("/")[2]
    assert secret not in str(Invitation.objects.values().get())
    theirs = client_of(bob)
    assert "The lab" in theirs.get(path).content.decode()
    assert theirs.post(path).status_code == 302
    joined = Membership.objects.get(team=lab, user=bob)
    assert not joined.owner
    assert theirs.get(path).status_code == 404
    assert client_of(make_user("Eve")).post(path).status_code == 404
    assert AuditRecord.objects.filter(action="joined team", actor=bob).exists()


def test_only_the_address_that_was_invited_gets_in(signed_in: Client, lab: Team) -> None:
    path = invite(signed_in, lab, "bob@example.org")
    eve = make_user("Eve")
    page = client_of(eve).get(path)
    assert page.status_code == 403
    assert "The lab" not in page.content.decode()
    assert "bob@example.org" not in page.content.decode()
    assert client_of(eve).post(path).status_code == 403
    assert not Membership.objects.filter(team=lab, user=eve).exists()
    assert Client().get(path).status_code == 302
    # A further address that the account has confirmed counts as well.
    address = eve.emailaddress_set.create(email="bob@example.org", verified=False)  # type: ignore[attr-defined]
    assert client_of(eve).post(path).status_code == 403
    address.verified = True
    address.save()
    assert client_of(eve).post(path).status_code == 302


def test_revoked_expired_and_renewed_links_let_nobody_in(signed_in: Client, lab: Team) -> None:
    bob = make_user("Bob")
    first = invite(signed_in, lab, bob.email)
    again = Invitation.objects.get()
    page = signed_in.post(f"/teams/{lab.slug}/manage/invitations/{again.pk}/", {"action": "renew"})
    second = link_in(page.content.decode())
    assert client_of(bob).get(first).status_code == 404
    assert client_of(bob).get(second).status_code == 200
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client_of(bob).get(second).status_code == 404
    assert "expired" in signed_in.get(f"/teams/{lab.slug}/manage/").content.decode()
    third = invite(signed_in, lab, bob.email)
    newest = Invitation.objects.get(revoked_at=None, expires_at__gt=timezone.now())
    signed_in.post(f"/teams/{lab.slug}/manage/invitations/{newest.pk}/", {"action": "revoke"})
    assert client_of(bob).get(third).status_code == 404
    assert not Membership.objects.filter(team=lab, user=bob).exists()


def test_invitations_of_somebody_who_no_longer_decides_end(signed_in: Client, lab: Team, alice: User) -> None:
    bob, carol = make_user("Bob"), member(lab, owner=True)
    path = invite(client_of(carol), lab, bob.email)
    set_role(lab, key(lab, carol), owner=False, actor=alice)
    assert client_of(bob).post(path).status_code == 404


def test_invitations_are_limited(signed_in: Client, lab: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("submissions.accounts.teams.MAX_INVITATIONS", 2)
    for number in range(2):
        invite(signed_in, lab, f"bob{number}@example.org")
    page = signed_in.post(f"/teams/{lab.slug}/manage/invitations/", {"email": "bob3@example.org"})
    assert page.status_code == 400
    assert "Revoke one first" in page.content.decode()
    assert len(account_mail()) == 2


def test_an_invitation_carries_no_words_of_its_sender(signed_in: Client, lab: Team, alice: User) -> None:
    hostile = "Lab\r\nBcc: victim@example.org\n\n{link.__class__}\u202e"
    Team.objects.filter(pk=lab.pk).update(name=hostile)
    User.objects.filter(pk=alice.pk).update(name=hostile)
    invite(signed_in, lab, "bob@example.org")
    (sent,) = account_mail()
    assert sent.subject == "Invitation to a team on Runboard"
    assert sent.message()["Bcc"] is None
    assert not re.search("Lab|Bcc|victim|\u202e", sent.body)


#: Role → what each action on the team's pages is answered with.
ROLES = {"owner": 302, "member": 403, "stranger": 404, "nobody": 302}


@pytest.mark.parametrize("role", ROLES)
def test_roles_and_actions(lab: Team, alice: User, role: str) -> None:
    carol, dave = member(lab), member(lab, "Dave", owner=True)
    people = {"owner": alice, "member": carol, "stranger": make_user("Eve")}
    client = client_of(people[role]) if role in people else Client()
    base = f"/teams/{lab.slug}/manage/"
    before = sorted(Membership.objects.values_list("pk", "owner"))
    waiting = membership.invite(lab, "bob@example.org", owner=False, actor=alice)[0]
    acts = [
        (f"{base}members/{key(lab, dave)}/", {"action": "member"}),
        (f"{base}members/{key(lab, dave)}/", {"action": "remove"}),
        (f"{base}invitations/{waiting.pk}/", {"action": "revoke"}),
    ]
    for path, fields in acts:
        answer = client.post(path, fields)
        assert answer.status_code == ROLES[role], path
        if role == "nobody":
            assert answer.url.startswith("/account/login/")  # type: ignore[attr-defined]
    renamed = client.post(f"{base}name/", {"name": "Other"}).status_code
    assert renamed == {"owner": 302, "member": 403, "stranger": 404, "nobody": 302}[role]
    invited = client.post(f"{base}invitations/", {"email": "x@example.org"}).status_code
    assert invited == {"owner": 200, "member": 403, "stranger": 404, "nobody": 302}[role]
    assert client.get(base).status_code == {"owner": 200, "member": 200, "stranger": 404, "nobody": 302}[role]
    lab.refresh_from_db()
    assert (lab.name == "Other") is (role == "owner")
    changed = sorted(Membership.objects.values_list("pk", "owner"))
    assert (changed != before) is (role == "owner")


def test_a_member_submits_and_sees_and_is_shown_no_addresses(
    demo: Dataset, lab: Team, alice: User, signed_in: Client
) -> None:
    carol = member(lab)
    answer = Api(carol).submit(team=lab.slug, system="Lab system", public="no")
    assert answer.status == 201, answer.body
    assert System.objects.get(slug="lab-system").team == lab
    identifier = answer.body["id"]
    assert signed_in.get(f"/submissions/{identifier}/").status_code == 200
    page = client_of(carol).get(f"/teams/{lab.slug}/manage/").content.decode()
    assert "Alice" in page
    assert alice.email not in page
    assert "Invite" not in page


def test_who_is_removed_loses_access_at_once(demo: Dataset, lab: Team, alice: User) -> None:
    carol = member(lab)
    api, client = Api(carol), client_of(carol)
    identifier = api.submit(team=lab.slug, system="Lab system", public="no").body["id"]
    work()
    Webhook.objects.create(team=lab, url="https://example.org/", secret="s" * 40, created_by=carol)
    assert api.get(f"submissions/{identifier}/").status == 200
    remove_member(lab, key(lab, carol), actor=alice)
    assert api.get(f"submissions/{identifier}/").status == 404
    assert api.post(f"submissions/{identifier}/withdraw/", reason="spite").status == 404
    assert client.get(f"/submissions/{identifier}/").status_code == 404
    assert client.get("/systems/lab-system/edit/").status_code == 404
    assert client.get(f"/teams/{lab.slug}/manage/").status_code == 404
    assert api.submit(team=lab.slug, system="Another").problem("invalid_team")
    assert not Webhook.objects.get().active
    assert Submission.objects.get(pk=identifier).team == lab


def test_the_last_owner_stays(lab: Team, alice: User, signed_in: Client) -> None:
    carol = member(lab)
    for act in (
        lambda: leave_team(lab, alice),
        lambda: remove_member(lab, key(lab, alice), actor=alice),
        lambda: set_role(lab, key(lab, alice), owner=False, actor=alice),
    ):
        with pytest.raises(TeamRefused, match="needs an owner"):
            act()
    page = signed_in.post(f"/teams/{lab.slug}/manage/leave/")
    assert page.status_code == 400
    assert "transfer the team" in page.content.decode()
    transfer_team(lab, key(lab, carol), actor=alice)
    assert owners(lab) == 1
    leave_team(lab, alice)
    assert list(Membership.objects.filter(team=lab).values_list("user", "owner")) == [(carol.pk, True)]


def test_a_new_system_is_of_the_chosen_team_and_else_of_the_first(
    demo: Dataset, lab: Team, api: Api, alice: User, signed_in: Client
) -> None:
    assert api.submit(system="Mine").status == 201
    assert System.objects.get(slug="mine").team == team_of(alice)
    page = signed_in.get("/submit/").content.decode()
    assert "The lab" in page
    assert api.submit(system="Ours", team=lab.slug).status == 201
    assert System.objects.get(slug="ours").team == lab
    eve = make_user("Eve")
    refused = Api(eve).submit(system="Theirs", team=lab.slug)
    assert refused.status == 400
    assert team_of(eve).slug in refused.problem("invalid_team")["hint"]


def test_the_same_name_in_two_teams_is_told_apart_by_the_team(demo: Dataset, lab: Team, api: Api) -> None:
    assert api.submit(system="Twin").status == 201
    assert api.submit(system="Twin", team=lab.slug).status == 201
    assert System.objects.filter(name="Twin").count() == 2


def test_teams_are_made_listed_renamed_and_recorded(signed_in: Client, alice: User) -> None:
    answer = signed_in.post("/account/teams/", {"name": "Research group"})
    assert answer.status_code == 302
    team = Team.objects.get(name="Research group")
    assert owners(team) == 1
    page = signed_in.get("/account/").content.decode()
    assert "Research group" in page
    assert f"/teams/{team.slug}/manage/" in page
    signed_in.post(f"/teams/{team.slug}/manage/name/", {"name": "Group for research"})
    record = AuditRecord.objects.get(action="team renamed")
    assert (record.actor, record.before, record.after) == (
        alice,
        {"name": "Research group"},
        {"name": "Group for research"},
    )
    history: Any = Team.history
    assert history.filter(id=team.pk).count() == 2


@pytest.mark.parametrize("name", ["Anonymous", "this site", "Runboard"])
def test_names_that_boards_use_for_something_else_are_refused(signed_in: Client, name: str) -> None:
    assert signed_in.post("/account/teams/", {"name": name}).status_code == 400


def test_no_team_has_the_address_of_what_boards_call_otherwise(db: None) -> None:
    assert make_team("Anonymous!").slug == "anonymous-2"


def at_once(*works: Callable[[], Any]) -> list[BaseException]:
    """Do these in a thread each; what was raised."""
    raised: list[BaseException] = []

    def do(act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as error:
            raised.append(error)
        finally:
            connections.close_all()

    threads = [Thread(target=do, args=(each,)) for each in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_leave_at_once_one_stays() -> None:
    alice = make_user("Alice")
    for _ in range(4):
        team = create_team("Lab", alice)
        carol = member(team, owner=True)
        refused = at_once(lambda t=team: leave_team(t, alice), lambda t=team, c=carol: leave_team(t, c))  # type: ignore[misc]
        assert [type(each) for each in refused] == [TeamRefused], refused
        assert owners(team) == 1


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_remove_each_other_at_once_one_stays() -> None:
    alice = make_user("Alice")
    for _ in range(4):
        team = create_team("Lab", alice)
        carol = member(team, owner=True)
        keys = key(team, alice), key(team, carol)
        refused = at_once(
            lambda t=team, k=keys: remove_member(t, k[1], actor=alice),  # type: ignore[misc]
            lambda t=team, k=keys, c=carol: remove_member(t, k[0], actor=c),  # type: ignore[misc]
        )
        assert [type(each) for each in refused] == [TeamRefused], refused
        assert owners(team) == 1


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_several_who_accept_one_invitation_at_once_none_joins_twice() -> None:
    alice, bob = make_user("Alice"), make_user("Bob")
    team = create_team("Lab", alice)
    invitation, _ = membership.invite(team, bob.email, owner=False, actor=alice)
    refused = at_once(*[lambda: membership.accept_invitation(invitation, bob)] * 3)
    assert [type(each) for each in refused] == [TeamRefused] * 2, refused
    assert Membership.objects.filter(team=team, user=bob).count() == 1


def test_a_curator_keeps_a_team_in_order_from_the_command_line() -> None:
    boss, owner, other = (make_user(name, is_superuser=name == "Boss") for name in ("Boss", "Olga", "Mo"))
    team = create_team("Owls", owner)
    by = {"by": boss.email, "why": "asked for by mail"}
    call_command("team", "rename", team.slug, "Night owls", **by)
    call_command("team", "add", team.slug, other.email, **by)
    call_command("team", "transfer", team.slug, other.email, **by)
    roles = dict(team.memberships.values_list("user__email", "owner"))
    assert roles == {owner.email: False, other.email: True}
    with pytest.raises(CommandError, match="needs an owner"):
        call_command("team", "remove", team.slug, other.email, **by)
    call_command("team", "role", team.slug, owner.email, owner=True, **by)
    call_command("team", "remove", team.slug, other.email, **by)
    team.refresh_from_db()
    assert (team.name, team.memberships.get().user) == ("Night owls", owner)
    record = AuditRecord.objects.get(action="removed from team")
    assert (record.actor, record.reason) == (boss, "asked for by mail")
    curator = make_a_curator()
    call_command("team", "rename", team.slug, "Owls", by=curator.email, why="asked for by mail")
    for verb in ("add", "role", "remove", "transfer"):
        with pytest.raises(CommandError, match="change_user"):
            call_command("team", verb, team.slug, curator.email, owner=True, by=curator.email, why="I like it")
    with pytest.raises(CommandError, match="change_team"):
        call_command("team", "rename", team.slug, "Mine", by=other.email, why="I like it")
