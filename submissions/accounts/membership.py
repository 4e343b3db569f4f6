"""Who belongs to a team and decides for it. A team never ends without an owner.

Every verb locks the team's row first and looks at who is in it afterwards: of two owners who leave at once one is told
that they are the last. Each says itself whether the person may do it, since that may have changed since a page was
shown; raises TeamRefused. A curator, who need not be in the team, says `curating`, having asked for the right before.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.models import Invitation, Membership, Team, User
from submissions.accounts.teams import make_team
from submissions.core.errors import ChangeRefused
from submissions.models import Webhook

#: How many teams a person may belong to.
MOST_TEAMS = 20


class TeamRefused(ChangeRefused):
    """The team cannot be changed so; the message says why and what would be right."""


@transaction.atomic
def create_team(name: str, by: User) -> Team:
    """A new team that the person owns."""
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    check_count(by)
    team = make_team(name)
    Membership.objects.create(team=team, user=by, owner=True)
    with audit.acting(by):
        audit.record("team made", team)
    return team


def memberships_of(person: User) -> list[Membership]:
    """The person's teams with their roles, the first one first, each with how many belong to it (`people`)."""
    people = Count("team__memberships")
    rows = Membership.objects.filter(user=person).select_related("team").annotate(people=people)
    return list(rows.order_by("pk"))


@transaction.atomic
def set_role(team: Team, member: int, *, owner: bool, by: User, curating: bool = False) -> Membership:
    """Make a member, by the key of their membership, an owner, or an owner a plain member."""
    found = _membership(hold(team, by, curating=curating), member)
    if found.owner != owner:
        if not owner:
            _keep_an_owner(team, without=found)
        found.owner = owner
        found.save(update_fields=["owner"])
        if not owner:
            _revoke_invitations_by(team, found.user)
        _record("role changed", team, found, by, owner=owner, before={"owner": not owner})
    return found


@transaction.atomic
def add(team: Team, person: User, *, owner: bool, by: User) -> Membership:
    """Let somebody in without an invitation: for curators."""
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    _lock(team)
    check_room(team, person)
    found = Membership.objects.create(team=team, user=person, owner=owner)
    _record("added to team", team, found, by, owner=owner)
    return found


def check_room(team: Team, person: User) -> None:
    """Whether the person may join. Raises TeamRefused."""
    if Membership.objects.filter(team=team, user=person).exists():
        raise TeamRefused("You belong to this team already.")
    check_count(person)


def check_count(person: User) -> None:
    """Whether the person may be in one more team. Raises TeamRefused."""
    if Membership.objects.filter(user=person).count() >= MOST_TEAMS:
        raise TeamRefused(f"You belong to {MOST_TEAMS} teams. Leave one that you no longer need first.")


@transaction.atomic
def transfer(team: Team, member: int, *, by: User, curating: bool = False) -> Membership:
    """Hand the team over: the member owns it from now on, and who does it no longer does (a curator: nobody else)."""
    found = _membership(hold(team, by, curating=curating), member)
    if found.user_id == by.pk and not curating:
        raise TeamRefused("The team is yours already.")
    Membership.objects.filter(pk=found.pk).update(owner=True)
    others = Membership.objects.filter(team=team, owner=True).exclude(pk=found.pk).select_related("user")
    for former in others if curating else others.filter(user=by):
        Membership.objects.filter(pk=former.pk).update(owner=False)
        _revoke_invitations_by(team, former.user)
    _record("team handed over", team, found, by, owner=True)
    return found


@transaction.atomic
def remove(team: Team, member: int, *, by: User, curating: bool = False) -> User:
    """Take a member out of the team: they lose all access to it at once."""
    found = _membership(hold(team, by, curating=curating), member)
    _take_out(team, found, by)
    return found.user


@transaction.atomic
def leave(team: Team, by: User) -> None:
    """Leave the team. Its last owner hands it over first."""
    _lock(team)
    found = Membership.objects.filter(team=team, user=by).first()
    if found is None:
        raise TeamRefused("You do not belong to this team any more.")
    _take_out(team, found, by)


def hold(team: Team, by: User, *, curating: bool = False) -> Team:
    """Lock the team until the commit, for one of its owners or a curator. Raises TeamRefused for anybody else."""
    _lock(team)
    if not curating and not Membership.objects.filter(team=team, user=by, owner=True).exists():
        raise TeamRefused("Only an owner of the team can do that, and you are none now.")
    return team


def _lock(team: Team) -> None:
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def _membership(team: Team, key: int) -> Membership:
    found = Membership.objects.filter(team=team, pk=key).select_related("user").first()
    if found is None:
        raise TeamRefused("This person does not belong to the team any more.")
    return found


def _take_out(team: Team, found: Membership, by: User) -> None:
    if found.owner:
        _keep_an_owner(team, without=found)
    found.delete()
    _revoke_invitations_by(team, found.user)
    # What they had sent elsewhere is theirs to read no longer.
    Webhook.objects.filter(team=team, created_by=found.user).update(active=False)
    _record(
        "left team" if found.user_id == by.pk else "removed from team", team, found, by, owner=found.owner
    )


def _keep_an_owner(team: Team, *, without: Membership) -> None:
    if not Membership.objects.filter(team=team, owner=True).exclude(pk=without.pk).exists():
        raise TeamRefused(
            "A team is never without an owner. Make somebody else an owner first, or hand the team over."
        )


@transaction.atomic
def end_reach(person: User) -> dict[str, int]:
    """Revoke whatever invitations the person made and switch off their webhooks, in every team: their account is
    closed. How many of each, in words for a record.
    """
    waiting = Invitation.objects.waiting().filter(invited_by=person)
    hooks = Webhook.objects.filter(created_by=person, active=True)
    theirs = Q(pk__in=waiting.values("team")) | Q(pk__in=hooks.values("team"))
    list(Team.objects.select_for_update(no_key=True).filter(theirs).order_by("pk").values_list("pk"))
    return {
        "invitations revoked": _revoke_invitations(waiting),
        "webhooks switched off": hooks.update(active=False),
    }


def _revoke_invitations_by(team: Team, person: User) -> None:
    """Whoever no longer decides for a team lets nobody in any more."""
    _revoke_invitations(Invitation.objects.waiting().filter(team=team, invited_by=person))


def _revoke_invitations(waiting: QuerySet[Invitation]) -> int:
    return waiting.update(revoked_at=timezone.now())


def _record(
    action: str,
    team: Team,
    found: Membership,
    by: User,
    *,
    owner: bool,
    before: Mapping[str, object] | None = None,
) -> None:
    # A curator's act has its reason already.
    acting: AbstractContextManager[object] = nullcontext() if audit.actor().person == by else audit.acting(by)
    with acting:
        audit.record(action, team, before=before, after={"person": found.user_id, "owner": owner})
