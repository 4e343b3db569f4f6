"""Teams, to which results belong: their names, who belongs to them and decides for them, and invitations.

A team never ends without an owner. Every function that changes a team locks the team's row first and reads its members
afterwards: of two owners who leave at once one is told that they are the last. Each checks itself whether the person
may do it, since that may have changed since a page was shown, and raises TeamRefused. A curator, who need not be in the
team, passes `curating`, after the right was checked.

An invitation is a secret link, sent to an address, good once, for two weeks; only the secret's hash is stored. Whoever
accepts must be signed in with the invited address: neither a forwarded link nor one in a browser's history lets anybody
else in.
"""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from itertools import chain, count
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from leaderboard.boards.facets import ANONYMOUS, THIS_SITE
from leaderboard.core import audit
from leaderboard.core.text.slugs import name_slug
from leaderboard.models import Invitation, Membership, Team, TeamRedirect, User
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.publishing.descriptions import boards_of_team, team_changed
from submissions.accounts.authentication import own_addresses
from submissions.accounts.outbox import queue_account_mail
from submissions.core.errors import ChangeRefused
from submissions.core.names import is_site_name
from submissions.models import Webhook


@transaction.atomic
def personal_team(user: User) -> Team:
    """Return the team that the person submits for: their first one, made with a neutral name where there is none.

    The name never comes from the e-mail address, which stays private.
    """
    team = Team.objects.filter(memberships__user=user).order_by("memberships__pk").first()
    if team is not None:
        return team
    neutral = not user.name or is_site_name(user.name)
    team = make_team(automatic_name(user) if neutral else user.name)
    Membership.objects.create(team=team, user=user, owner=True)
    return team


def automatic_name(user: User) -> str:
    """Return the neutral name of the team of a person who has not said any."""
    return f"Team {user.pk}"


#: What boards' filters by team call systems that are no team's, or whose team is kept back.
TAKEN = (THIS_SITE, ANONYMOUS)


def make_team(name: str) -> Team:
    """Create a team with a free slug."""
    return Team.objects.create(slug=free_team_slug(name), name=name)


def free_team_slug(name: str, team: Team | None = None) -> str:
    """An address for a team of this name that no other team has or had; its own or an earlier one where it fits."""
    base = name_slug(name)[:60] or "team"
    teams = Team.objects.filter(slug__startswith=base)
    redirects = TeamRedirect.objects.filter(slug__startswith=base)
    if team is not None:
        teams, redirects = teams.exclude(pk=team.pk), redirects.exclude(team=team)
    taken = {*TAKEN, *teams.values_list("slug", flat=True), *redirects.values_list("slug", flat=True)}
    numbered = (f"{base}-{number}" for number in count(2))
    return next(slug for slug in chain([base], numbered) if slug not in taken)


def keep_address(team: Team, earlier: str) -> None:
    """Let an earlier slug of the team lead to the one that it has now."""
    TeamRedirect.objects.filter(slug=team.slug).delete()
    if team.slug != earlier:
        TeamRedirect.objects.get_or_create(slug=earlier, defaults={"team": team})


@transaction.atomic
def rename_team(team: Team, name: str) -> None:
    """Show the team under another name and address, on its boards too; the earlier address leads there."""
    lock_boards(boards_of_team(team.pk))
    before, earlier = team.name, team.slug
    team.name, team.slug = name, free_team_slug(name, team)
    team.save(update_fields=["name", "slug"])
    keep_address(team, earlier)
    team_changed(team)
    audit.record("team renamed", team, before={"name": before}, after={"name": name})


@transaction.atomic
def set_profile(person: User, name: str, team_name: str) -> None:
    """Store the person's name and their team's."""
    team = personal_team(person)
    renamed = team.name != team_name
    if renamed:
        # Boards before people: the order of everybody who takes both.
        lock_boards(boards_of_team(team.pk))
    person.name = name
    person.save(update_fields=["name"])
    if renamed:
        rename_team(team, team_name)


# --- members


#: How many teams a person may belong to.
MOST_TEAMS = 20
#: How long an invitation is good.
INVITATION_LIFETIME = timedelta(days=14)
#: How many of a team's invitations may wait at a time.
MOST_INVITATIONS = 20

#: No name of the team or the person: whoever has an account chooses these, and the mail is the site's.
_INVITATION = """An owner of a team on {site} invites you to join it.

To see which team it is, sign in as {email} (or sign up with that address) and open

{link}

The link works once, until {until:%-d %B %Y}. If you do not know what this is about, do nothing.
"""


class TeamRefused(ChangeRefused):
    """The team cannot be changed so; the message says why and what would be right."""


@transaction.atomic
def create_team(name: str, by: User) -> Team:
    """Create a team that the person owns."""
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    check_team_count(by)
    team = make_team(name)
    Membership.objects.create(team=team, user=by, owner=True)
    with audit.acting(by):
        audit.record("team made", team)
    return team


def memberships_of(person: User) -> list[Membership]:
    """Return the person's teams with their roles, the first one first, each with how many belong to it (`people`)."""
    people = Count("team__memberships")
    rows = Membership.objects.filter(user=person).select_related("team").annotate(people=people)
    return list(rows.order_by("pk"))


@transaction.atomic
def set_role(team: Team, member: int, *, owner: bool, by: User, curating: bool = False) -> Membership:
    """Make a member, by the key of their membership, an owner, or an owner a plain member."""
    membership = _get_membership(lock_team(team, by, curating=curating), member)
    if membership.owner != owner:
        if not owner:
            _require_owner(team, without=membership)
        membership.owner = owner
        membership.save(update_fields=["owner"])
        if not owner:
            _revoke_invitations(team=team, invited_by=membership.user)
        _record("role changed", team, membership, by, before={"owner": not owner})
    return membership


@transaction.atomic
def add_member(team: Team, person: User, *, owner: bool, by: User) -> Membership:
    """Let somebody in without an invitation: for curators."""
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    _lock_row(team)
    check_can_join(team, person)
    membership = Membership.objects.create(team=team, user=person, owner=owner)
    _record("added to team", team, membership, by)
    return membership


def check_can_join(team: Team, person: User) -> None:
    """Raise TeamRefused if the person may not join."""
    if Membership.objects.filter(team=team, user=person).exists():
        raise TeamRefused("You belong to this team already.")
    check_team_count(person)


def check_team_count(person: User) -> None:
    """Raise TeamRefused if the person may not be in one more team."""
    if Membership.objects.filter(user=person).count() >= MOST_TEAMS:
        raise TeamRefused(f"You belong to {MOST_TEAMS} teams. Leave one that you no longer need first.")


@transaction.atomic
def transfer_team(team: Team, member: int, *, by: User, curating: bool = False) -> Membership:
    """Hand the team over: the member owns it from now on, and who does it no longer does (a curator: nobody else)."""
    membership = _get_membership(lock_team(team, by, curating=curating), member)
    if membership.user_id == by.pk and not curating:
        raise TeamRefused("The team is yours already.")
    membership.owner = True
    membership.save(update_fields=["owner"])
    others = Membership.objects.filter(team=team, owner=True).exclude(pk=membership.pk).select_related("user")
    for former in others if curating else others.filter(user=by):
        Membership.objects.filter(pk=former.pk).update(owner=False)
        _revoke_invitations(team=team, invited_by=former.user)
    _record("team handed over", team, membership, by)
    return membership


@transaction.atomic
def remove_member(team: Team, member: int, *, by: User, curating: bool = False) -> User:
    """Take a member out of the team: they lose all access to it at once."""
    membership = _get_membership(lock_team(team, by, curating=curating), member)
    _delete_membership(team, membership, by)
    return membership.user


@transaction.atomic
def leave_team(team: Team, by: User) -> None:
    """Leave the team. Its last owner hands it over first."""
    _lock_row(team)
    membership = Membership.objects.filter(team=team, user=by).first()
    if membership is None:
        raise TeamRefused("You do not belong to this team any more.")
    _delete_membership(team, membership, by)


def lock_team(team: Team, by: User, *, curating: bool = False) -> Team:
    """Lock the team until the commit, for one of its owners or a curator. Raises TeamRefused for anybody else."""
    _lock_row(team)
    if not curating and not Membership.objects.filter(team=team, user=by, owner=True).exists():
        raise TeamRefused("Only an owner of the team can do that, and you are none now.")
    return team


def _lock_row(team: Team) -> None:
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def _get_membership(team: Team, key: int) -> Membership:
    membership = Membership.objects.filter(team=team, pk=key).select_related("user").first()
    if membership is None:
        raise TeamRefused("This person does not belong to the team any more.")
    return membership


def _delete_membership(team: Team, membership: Membership, by: User) -> None:
    if membership.owner:
        _require_owner(team, without=membership)
    membership.delete()
    _revoke_invitations(team=team, invited_by=membership.user)
    # What they had sent elsewhere is theirs to read no longer.
    Webhook.objects.filter(team=team, created_by=membership.user).update(active=False)
    _record("left team" if membership.user_id == by.pk else "removed from team", team, membership, by)


def _require_owner(team: Team, *, without: Membership) -> None:
    if not Membership.objects.filter(team=team, owner=True).exclude(pk=without.pk).exists():
        raise TeamRefused(
            "A team is never without an owner. Make somebody else an owner first, or hand the team over."
        )


@transaction.atomic
def revoke_access(person: User) -> dict[str, int]:
    """Revoke whatever invitations the person made and switch off their webhooks, in every team: their account is
    closed. How many of each, in words for a record.
    """
    waiting = Invitation.objects.waiting().filter(invited_by=person)
    hooks = Webhook.objects.filter(created_by=person, active=True)
    theirs = Q(pk__in=waiting.values("team")) | Q(pk__in=hooks.values("team"))
    list(Team.objects.select_for_update(no_key=True).filter(theirs).order_by("pk").values_list("pk"))
    return {
        "invitations revoked": _revoke_invitations(invited_by=person),
        "webhooks switched off": hooks.update(active=False),
    }


def _revoke_invitations(**conditions: Any) -> int:
    """Revoke invitations: a person who no longer decides for a team lets nobody in any more."""
    return Invitation.objects.waiting().filter(**conditions).update(revoked_at=timezone.now())


def _record(
    action: str, team: Team, membership: Membership, by: User, before: Mapping[str, object] | None = None
) -> None:
    # A curator's act has its reason already.
    acting: AbstractContextManager[object] = nullcontext() if audit.actor().person == by else audit.acting(by)
    after = {"person": membership.user_id, "owner": membership.owner}
    with acting:
        audit.record(action, team, before=before, after=after)


@transaction.atomic
def invite(team: Team, email: str, *, owner: bool, by: User) -> tuple[Invitation, str]:
    """Invite an address into the team; the secret of its link is returned and stored nowhere.

    An earlier invitation of the same address ends. Raises TeamRefused.
    """
    lock_team(team, by)
    address = email.strip().lower()
    if Membership.objects.filter(team=team, user__email=address).exists():
        raise TeamRefused("Somebody with this address belongs to the team already.")
    open_invitations(team=team, email=address).update(revoked_at=timezone.now())
    if open_invitations(team=team).count() >= MOST_INVITATIONS:
        raise TeamRefused(f"{MOST_INVITATIONS} invitations wait for an answer. Revoke one first.")
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        team=team,
        email=address,
        secret_sha256=_digest(secret),
        owner=owner,
        invited_by=by,
        expires_at=timezone.now() + INVITATION_LIFETIME,
    )
    _record_invitation("invited", invitation, by)
    return invitation, secret


@transaction.atomic
def renew_invitation(team: Team, key: int, *, by: User) -> tuple[Invitation, str]:
    """Another link for an invitation, for another two weeks; the earlier link ends. Raises TeamRefused."""
    invitation = _waiting_invitation(team, key, by)
    secret = secrets.token_urlsafe(32)
    invitation.secret_sha256, invitation.expires_at = _digest(secret), timezone.now() + INVITATION_LIFETIME
    invitation.invited_by = by
    invitation.save(update_fields=["secret_sha256", "expires_at", "invited_by"])
    return invitation, secret


@transaction.atomic
def revoke_invitation(team: Team, key: int, *, by: User) -> None:
    """End an invitation that nobody has accepted. Raises TeamRefused."""
    invitation = _waiting_invitation(team, key, by)
    _revoke_invitations(pk=invitation.pk)
    _record_invitation("invitation revoked", invitation, by)


def open_invitations(**conditions: Any) -> QuerySet[Invitation]:
    """Invitations that may be accepted now."""
    return Invitation.objects.waiting().filter(expires_at__gt=timezone.now(), **conditions)


def find_invitation(secret: str) -> Invitation | None:
    """Return the invitation whose link has this secret, if it is good now."""
    rows = open_invitations(secret_sha256=_digest(secret))
    return rows.select_related("team", "invited_by").first()


def is_invited(invitation: Invitation, person: User) -> bool:
    """Return whether the invited address is known to belong to the person."""
    return invitation.email in own_addresses(person)


@transaction.atomic
def accept_invitation(invitation: Invitation, person: User) -> Membership:
    """Join the team. Raises TeamRefused for another's invitation, and for one that is good no longer."""
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    Team.objects.select_for_update(no_key=True).get(pk=invitation.team_id)
    # Under the team's lock: whoever revokes it, or ceases to be an owner, has done so before or does after.
    same = open_invitations(pk=invitation.pk, secret_sha256=invitation.secret_sha256)
    row = same.select_related("team").first()
    if row is None:
        raise TeamRefused("This invitation is good no longer. Ask for a new one.")
    if not is_invited(row, person):
        raise TeamRefused("This invitation is for another address. Sign in with that one.")
    check_can_join(row.team, person)
    row.accepted_by, row.accepted_at = person, timezone.now()
    row.save(update_fields=["accepted_by", "accepted_at"])
    membership = Membership.objects.create(team=row.team, user=person, owner=row.owner)
    _record_invitation("joined team", row, person)
    return membership


def send_invitation(invitation: Invitation, link: str) -> None:
    """Write down the mail with the link, which the notifier sends."""
    until = invitation.expires_at
    text = _INVITATION.format(site=settings.SITE_NAME, email=invitation.email, link=link, until=until)
    subject = f"Invitation to a team on {settings.SITE_NAME}"
    queue_account_mail(EmailMessage(subject, text, to=[invitation.email]))


def _waiting_invitation(team: Team, key: int, by: User) -> Invitation:
    lock_team(team, by)
    invitation = Invitation.objects.waiting().filter(team=team, pk=key).first()
    if invitation is None:
        raise TeamRefused("This invitation was accepted or revoked meanwhile.")
    return invitation


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record_invitation(action: str, invitation: Invitation, by: User) -> None:
    """Write it down without the address, which is nobody's business but the team's owners'."""
    with audit.acting(by):
        audit.record(action, invitation.team, after={"invitation": invitation.pk, "owner": invitation.owner})
