"""Accounts, groups and teams in the admin: who may change them, what ends with it, and that all of it is recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from leaderboard.core.audit import acting
from leaderboard.core.permissions import GROUP, curators, make_curator
from leaderboard.models import AuditRecord, Benchmark, Membership, Team, User
from submissions.accounts import teams as membership
from submissions.accounts.access import make_token, reset_second_factor
from submissions.accounts.teams import TeamRefused
from submissions.admin.accounts import TeamAdmin
from submissions.models import ApiToken, Webhook
from tests.curating import filled, save
from tests.factories import make_a_curator, make_dataset, make_user, team_of

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]
PHRASE = "an entirely new phrase"


@pytest.fixture
def root() -> User:
    """Somebody with every right."""
    return make_user("Root", is_staff=True, is_superuser=True)


@pytest.fixture
def owls() -> Team:
    """A team of two: Olga owns it, Max is in it."""
    team = Team.objects.create(slug="owls", name="Owls")
    Membership.objects.create(team=team, user=make_user("Olga"), owner=True)
    Membership.objects.create(team=team, user=make_user("Max"))
    return team


def browser(person: User) -> Client:
    """The person, signed in."""
    client = Client()
    client.force_login(person)
    return client


def page_of(row: Any, page: str = "change") -> str:
    """The address of a row in the admin."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{page}", args=[row.pk])


def row(number: int, person: User, **fields: str) -> dict[str, str]:
    """What the form of a team sends for somebody who is to join."""
    sent = {"user": str(person.pk), "id": "", **fields}
    values = {f"memberships-{number}-{name}": value for name, value in sent.items()}
    return {**values, "memberships-TOTAL_FORMS": str(number + 1)}


def members(team: Team) -> dict[str, bool]:
    """Who is in the team, and whether they own it."""
    return dict(team.memberships.order_by("pk").values_list("user__name", "owner"))


# --- teams


@pytest.mark.parametrize("rights", ["of the group", "of an old group"])
def test_a_curator_renames_a_team_and_lets_nobody_in(owls: Team, rights: str) -> None:
    person = make_a_curator()
    if rights == "of an old group":
        own = Permission.objects.filter(content_type__app_label="leaderboard", codename__endswith="membership")
        curators().permissions.add(*own)
    client, address = browser(person), page_of(owls)
    page = client.get(address).content.decode()
    assert "Olga" in page
    assert 'name="memberships-0-owner"' not in page
    data = {**filled(client, address), "why": "a try", "name": "Barn owls"}
    mine = team_of(person).memberships.get()
    for changes in (
        row(2, person, owner="on"),
        {"memberships-INITIAL_FORMS": "0", **row(0, person, owner="on")},
        {"memberships-0-DELETE": "on", "memberships-1-owner": "on"},
        {"memberships-0-user": str(person.pk)},
        {"memberships-0-id": str(mine.pk), "memberships-0-owner": "on"},
    ):
        client.post(address, {**data, **changes})
        assert members(owls) == {"Olga": True, "Max": False}
    assert Membership.objects.get(pk=mine.pk).team == team_of(person)
    assert client.get(reverse("admin:leaderboard_team_add")).status_code == 403
    assert save(client, address, name="Tawny owls").status_code == 302
    assert Team.objects.get(pk=owls.pk).name == "Tawny owls"


def test_the_group_of_curators_has_no_right_over_who_is_in_a_team() -> None:
    rights = curators().permissions.filter(content_type__model__in=["membership", "invitation", "user"])
    assert set(rights.values_list("codename", flat=True)) == {"view_membership", "view_user"}


def test_who_is_in_a_team_is_changed_by_who_may_change_accounts_and_recorded(owls: Team, root: User) -> None:
    client, address = browser(root), page_of(owls)
    olga, max_ = (each.user for each in owls.memberships.order_by("pk"))
    new = make_user("Nora")
    membership.invite(owls, "friend@example.org", owner=False, actor=olga)
    assert save(client, address, why="they wrote", **row(2, new)).status_code == 302
    handing = {"memberships-0-owner": None, "memberships-1-owner": "on"}
    assert save(client, address, why="Max leads", **handing).status_code == 302
    assert save(client, address, why="she left", **{"memberships-0-DELETE": "on"}).status_code == 302
    assert members(owls) == {"Max": True, "Nora": False}
    assert not membership.open_invitations(team=owls).exists()  # of somebody who no longer decides
    found = AuditRecord.objects.filter(actor=root).order_by("pk")
    assert [(each.action, each.before, each.after, each.reason) for each in found] == [
        ("added to team", {}, {"person": new.pk, "owner": False}, "they wrote"),
        ("role changed", {"owner": False}, {"person": max_.pk, "owner": True}, "Max leads"),
        ("role changed", {"owner": True}, {"person": olga.pk, "owner": False}, "Max leads"),
        ("removed from team", {}, {"person": olga.pk, "owner": False}, "she left"),
    ]
    assert {each.subject for each in found} == {"Owls"}


def test_a_member_is_nobody_else_and_who_has_too_many_teams_cannot_join(
    owls: Team, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, address, new = browser(root), page_of(owls), make_user("Nora")
    monkeypatch.setattr("submissions.accounts.teams.MAX_TEAMS", 1)
    refused = save(client, address, **row(2, new))
    assert refused.status_code == 200
    assert "Nora cannot join the team: You are a member of 1 teams" in refused.content.decode()
    save(client, address, **{"memberships-1-user": str(new.pk)})
    assert members(owls) == {"Olga": True, "Max": False}


def test_a_new_team_begins_with_an_owner(root: User) -> None:
    client, address = browser(root), reverse("admin:leaderboard_team_add")
    first = row(0, make_user("Nora"), owner="on")
    assert save(client, address, name="Larks", slug="larks", **first).status_code == 302
    assert members(Team.objects.get(slug="larks")) == {"Nora": True}


def test_who_cannot_join_a_new_team_is_told_in_the_form(root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client, address = browser(root), reverse("admin:leaderboard_team_add")
    monkeypatch.setattr("submissions.accounts.teams.MAX_TEAMS", 1)
    refused = save(client, address, name="Larks", slug="larks", **row(0, make_user("Nora"), owner="on"))
    assert refused.status_code == 200
    assert "Nora cannot join the team: You are a member of 1 teams" in refused.content.decode()
    assert 'value="Larks"' in refused.content.decode()


def test_a_team_is_deleted_by_who_may_say_who_is_in_it_and_its_people_are_recorded(owls: Team, root: User) -> None:
    address, sent = page_of(owls, "delete"), {"post": "yes", "why": "they asked"}
    assert browser(make_a_curator()).post(address, sent).status_code == 403
    people = [{"person": each.user_id, "owner": each.owner} for each in owls.memberships.order_by("pk")]
    assert browser(root).post(address, sent).status_code == 302
    assert not Team.objects.filter(slug="owls").exists()
    record = told("deleted")
    assert (record.subject, record.before, record.reason) == ("team Owls", {"members": people}, "they asked")


def test_who_joins_is_locked_in_everybodys_order(owls: Team, root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_user("Nora"), make_user("Olaf")
    locked: list[str] = []
    lock_row, get_board_ids = TeamAdmin.lock_row, TeamAdmin.get_board_ids

    def lock(page: TeamAdmin, key: Any) -> None:
        locked.append("team")
        lock_row(page, key)

    def boards(page: TeamAdmin, key: Any) -> Any:
        locked.append("boards")
        return get_board_ids(page, key)

    monkeypatch.setattr(TeamAdmin, "lock_row", lock)
    monkeypatch.setattr(TeamAdmin, "get_board_ids", boards)
    client, joining = browser(root), {**row(2, second), **row(3, first)}
    assert save(client, page_of(owls), **joining).status_code == 302
    assert locked == ["boards", "team"]
    both = {**row(0, second, owner="on"), **row(1, first)}
    add = reverse("admin:leaderboard_team_add")
    assert save(client, add, name="Larks", slug="larks", **both).status_code == 302
    added = AuditRecord.objects.filter(action="added to team", subject="Larks").order_by("pk")
    assert [each.after["person"] for each in added] == [first.pk, second.pk]


def test_rows_that_are_edited_with_another_are_recorded() -> None:
    person = make_a_curator()
    benchmark = Benchmark.objects.create(slug="few", name="Few")
    first, second = make_dataset(name="First"), make_dataset(name="Second")
    client, address = browser(person), page_of(benchmark)
    added = {"members-TOTAL_FORMS": "1", "members-0-dataset": str(first.pk), "members-0-position": "1"}
    assert save(client, address, why="it belongs there", **added).status_code == 302
    save(client, address, why="the other one", **{"members-0-dataset": str(second.pk)})
    save(client, address, why="out again", **{"members-0-DELETE": "on"})
    found = AuditRecord.objects.filter(subject__startswith="benchmark member").order_by("pk")
    assert [(each.action, each.actor, each.reason) for each in found] == [
        ("added", person, "it belongs there"),
        ("edited", person, "the other one"),
        ("deleted", person, "out again"),
    ]
    values = [(each.before.get("dataset"), each.after.get("dataset")) for each in found]
    assert values == [(None, "First"), ("First", "Second"), ("Second", None)]


# --- accounts


def told(action: str = "edited") -> AuditRecord:
    """The one record of the action."""
    return AuditRecord.objects.get(action=action)


def test_rights_that_are_given_and_taken_are_recorded(root: User) -> None:
    person, client = make_user("Sam"), browser(root)
    right = Permission.objects.get(codename="read_qrels")
    given = {"is_staff": "on", "user_permissions": [str(right.pk)], "groups": [str(curators().pk)]}
    assert save(client, page_of(person), why="she curates", **given).status_code == 302
    record = told()
    assert (record.actor, record.subject, record.reason) == (root, f"account {person.pk}", "she curates")
    assert (record.before["is_staff"], record.after["is_staff"]) == (False, True)
    assert (record.after["user_permissions"], record.after["groups"]) == ([str(right)], [GROUP])
    taken = {"is_superuser": "on", "user_permissions": []}
    assert save(client, page_of(person), **taken).status_code == 302
    record = AuditRecord.objects.filter(action="edited").latest("pk")
    assert record.before == {"is_superuser": False, "user_permissions": [str(right)]}
    assert record.after == {"is_superuser": True, "user_permissions": []}


def test_a_password_that_staff_set_ends_what_came_of_the_old_one_and_is_not_recorded(root: User) -> None:
    person, client = make_user("Sam"), browser(root)
    theirs = browser(person)
    assert theirs.get("/submissions/").status_code == 200
    make_token(person, "theirs")
    address = reverse("admin:auth_user_password_change", args=[person.pk])
    short = {"password1": "short", "password2": "short", "usable_password": "true"}
    assert client.post(address, short).status_code == 200
    assert ApiToken.objects.exists()
    sent = {"password1": PHRASE, "password2": PHRASE, "usable_password": "true"}
    assert client.post(address, sent).status_code == 302
    assert not ApiToken.objects.exists()
    assert theirs.get("/submissions/").status_code == 302
    record = told("password set")
    assert (record.actor, record.subject) == (root, f"account {person.pk}")
    assert record.after == {"sessions ended": 1, "tokens ended": 1}
    assert client.get(page_of(person)).status_code == 200


def test_who_sets_their_own_password_stays_signed_in_here_alone(root: User) -> None:
    here, elsewhere = browser(root), browser(root)
    address = reverse("admin:auth_user_password_change", args=[root.pk])
    sent = {"password1": PHRASE, "password2": PHRASE, "usable_password": "true"}
    assert here.post(address, sent).status_code == 302
    assert here.get(page_of(root)).status_code == 200
    assert elsewhere.get(page_of(root)).status_code == 302
    assert told("password set").actor == root


@pytest.mark.parametrize("right", ["is_active", "is_staff", "is_superuser"])
def test_nobody_shuts_themselves_out(root: User, right: str) -> None:
    client = browser(root)
    refused = save(client, page_of(root), **{right: None})
    assert refused.status_code == 200
    assert "You cannot remove your own access" in refused.content.decode()
    assert getattr(User.objects.get(pk=root.pk), right)
    assert not AuditRecord.objects.exists()
    other = make_user("Second", is_staff=True, is_superuser=True)
    assert save(client, page_of(other), **{right: None}).status_code == 302
    assert save(client, page_of(root), name="Root II").status_code == 302


def test_closing_an_account_ends_all_that_it_can_do(root: User, owls: Team) -> None:
    person, client = make_user("Sam"), browser(root)
    theirs, new = browser(person), make_user("Nora")
    make_token(person, "theirs")
    team, olga = team_of(person), owls.memberships.get(owner=True).user
    invitation, _ = membership.invite(team, new.email, owner=True, actor=person)
    others, _ = membership.invite(owls, new.email, owner=False, actor=olga)
    hook, kept = (
        Webhook.objects.create(team=each, url="https://example.org/", secret="s", created_by=by)
        for each, by in ((team, person), (owls, olga))
    )
    assert save(client, page_of(person), why="left the field", is_active=None).status_code == 302
    assert not ApiToken.objects.exists()
    assert theirs.get("/submissions/").status_code == 302
    assert told().after == {"is_active": False}
    assert told("access ended").after == {
        "sessions ended": 1,
        "tokens ended": 1,
        "invitations revoked": 1,
        "webhooks switched off": 1,
    }
    with pytest.raises(TeamRefused, match="has expired"):
        membership.accept_invitation(invitation, new)
    assert membership.accept_invitation(others, new).team == owls
    assert [Webhook.objects.get(pk=each.pk).active for each in (hook, kept)] == [False, True]
    assert save(client, page_of(person), why="is back", is_active="on").status_code == 302
    assert theirs.get("/submissions/").status_code == 302


def test_addresses_are_recorded_by_their_ends(root: User) -> None:
    person, client = make_user("Sam"), browser(root)
    assert save(client, page_of(person), email="other@example.net").status_code == 302
    assert told().after == {"email": "o…@example.net"}
    address = EmailAddress.objects.create(user=person, email="second@example.net")
    chosen = {"action": "make_verified", "_selected_action": [address.pk]}
    assert client.post("/admin/account/emailaddress/", chosen).status_code == 302
    address.refresh_from_db()
    assert address.verified
    assert save(client, page_of(address), primary="on").status_code == 302
    assert client.post(page_of(address, "delete"), {"post": "yes", "why": "not theirs"}).status_code == 302
    named = AuditRecord.objects.filter(subject=f"address s…@example.net of account {person.pk}").order_by("pk")
    assert [(each.action, each.after) for each in named] == [
        ("edited", {"verified": True}),
        ("edited", {"primary": True}),
        ("deleted", {}),
    ]


def test_what_a_group_may_is_recorded(root: User) -> None:
    client, right = browser(root), Permission.objects.get(codename="read_qrels")
    added = {"name": "Readers", "permissions": [str(right.pk)]}
    assert save(client, reverse("admin:auth_group_add"), **added).status_code == 302
    group = Group.objects.get(name="Readers")
    assert save(client, page_of(group), permissions=[]).status_code == 302
    assert told("added").after == {"name": "Readers", "permissions": [str(right)]}
    assert (told().subject, told().before) == ("group Readers", {"permissions": [str(right)]})
    assert client.post(page_of(group, "delete"), {"post": "yes", "why": "empty"}).status_code == 302
    assert told("deleted").reason == "empty"


def test_a_new_account_is_recorded_and_no_record_tells_a_secret(root: User) -> None:
    client = browser(root)
    new = {"email": "nora@example.org", "name": "Nora", "password1": PHRASE, "password2": PHRASE}
    added = save(client, reverse("admin:leaderboard_user_add"), **new, usable_password="true")
    assert added.status_code == 302
    person = User.objects.get(email="nora@example.org")
    assert person.check_password(PHRASE)
    assert (told("added").subject, told("added").after) == (
        f"account {person.pk}",
        {"email": "n…@example.org", "name": "Nora"},
    )
    nameless = User.objects.create_user("quiet@example.org")
    address = {"user": str(nameless.pk), "email": "second@example.net"}
    assert save(client, reverse("admin:account_emailaddress_add"), **address).status_code == 302
    assert AuditRecord.objects.latest("pk").after["user"] == f"account {nameless.pk}"
    with acting(nameless):
        make_curator(nameless)
        reset_second_factor(nameless)
    acts = AuditRecord.objects.filter(actor=nameless).values_list("actor_name", "subject")
    assert list(acts) == [(f"account {nameless.pk}",) * 2] * 2
    said = json.dumps(list(AuditRecord.objects.values("before", "after", "subject", "reason", "actor_name")))
    secrets = (PHRASE, person.password, person.email, nameless.email, address["email"])
    assert not any(secret in said for secret in secrets)
