"""Teams, their members and owners, and invitations.

A team always has an owner. Every function that changes a team locks the team's row before it reads its members, so
that two owners cannot leave at the same time. Each function checks the user's rights itself, because these may have
changed since a page was shown, and raises TeamRefused. Curators need not be members; they pass `curating` after their
rights were checked.

An invitation is a secret link sent to an address, valid once within two weeks. Only the secret's hash is stored.
Users must sign in with the invited address to accept, so that a forwarded link or one in a browser's history is
useless to others.
"""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from leaderboard.boards.state import ANONYMOUS, THIS_SITE
from leaderboard.core import audit
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.slugs import first_unused, name_slug
from leaderboard.models import Invitation, Membership, Team, TeamRedirect, User
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.publishing.descriptions import boards_of_team, team_changed
from submissions.accounts.authentication import own_addresses
from submissions.accounts.outbox import queue_account_mail
from submissions.core.errors import ChangeRefused
from submissions.core.names import is_site_name
from submissions.models import Webhook


@transaction.atomic
def personal_team(user: User, name: str = "") -> Team:
    """Return the user's default team for submissions: the first one, which is created if there is none.

    A new team gets this name, or else the user's name. It is never derived from the email address, which is private.
    """
    team = Team.objects.filter(memberships__user=user).order_by("memberships__pk").first()
    if team is not None:
        return team
    name = name or user.name
    team = make_team(automatic_name(user) if not name or is_site_name(name) else name)
    Membership.objects.create(team=team, user=user, owner=True)
    return team


def automatic_name(user: User) -> str:
    """Return the neutral name of the team of a user without a name."""
    return f"Team {user.pk}"


#: Reserved slugs: filters on boards use them for systems without a team or with an undisclosed one.
RESERVED_SLUGS = (THIS_SITE, ANONYMOUS)


def make_team(name: str) -> Team:
    return Team.objects.create(slug=free_team_slug(name), name=name)


def free_team_slug(name: str, team: Team | None = None) -> str:
    """Return an unused slug for a team of this name; the team's own current and earlier slugs count as unused."""
    base = name_slug(name)[:60] or "team"
    teams = Team.objects.filter(slug__startswith=base)
    redirects = TeamRedirect.objects.filter(slug__startswith=base)
    if team is not None:
        teams, redirects = teams.exclude(pk=team.pk), redirects.exclude(team=team)
    used_slugs = {*RESERVED_SLUGS, *teams.values_list("slug", flat=True), *redirects.values_list("slug", flat=True)}
    return first_unused(base, used_slugs)


def redirect_earlier_slug(team: Team, earlier_slug: str) -> None:
    """Redirect an earlier slug of the team to its current one, which no longer redirects."""
    TeamRedirect.objects.filter(slug=team.slug).delete()
    if team.slug != earlier_slug:
        TeamRedirect.objects.get_or_create(slug=earlier_slug, defaults={"team": team})


@transaction.atomic
def rename_team(team: Team, name: str) -> None:
    """Change the team's name and slug, also on boards. The earlier slug redirects to the new one."""
    lock_boards(boards_of_team(team.pk))
    earlier_name, earlier_slug = team.name, team.slug
    team.name, team.slug = name, free_team_slug(name, team)
    team.save(update_fields=["name", "slug"])
    redirect_earlier_slug(team, earlier_slug)
    team_changed(team)
    audit.record("team renamed", team, before={"name": earlier_name}, after={"name": name})


@transaction.atomic
def set_profile(person: User, name: str, team_name: str) -> None:
    """Store the user's name and the name of their first team, which is renamed only if the name differs."""
    team = personal_team(person)
    if is_renamed := team.name != team_name:
        # Boards are always locked before users.
        lock_boards(boards_of_team(team.pk))
    person.name = name
    person.save(update_fields=["name"])
    if is_renamed:
        rename_team(team, team_name)


# --- members


#: Maximum number of teams per user.
MAX_TEAMS = 20
#: Period in which an invitation can be accepted.
INVITATION_LIFETIME = timedelta(days=14)
#: Maximum number of open invitations per team.
MAX_INVITATIONS = 20

#: The text contains neither the team's nor the user's name: users choose these, but the email comes from the site.
_INVITATION = """An owner of a team on {site} invites you to join it.

To see which team it is, sign in as {email} (or sign up with that address) and open

{link}

The link works once, until {until}. If you did not expect this invitation, ignore this email.
"""


class TeamRefused(ChangeRefused):
    """Refusal to change a team. The message states the reason and the remedy."""


@transaction.atomic
def create_team(name: str, actor: User) -> Team:
    """Create a team that the user owns. Raises TeamRefused if the user is in the maximum number of teams."""
    User.objects.select_for_update(no_key=True).get(pk=actor.pk)
    check_team_count(actor)
    team = make_team(name)
    Membership.objects.create(team=team, user=actor, owner=True)
    with audit.acting(actor):
        audit.record("team made", team)
    return team


def get_memberships(person: User) -> list[Membership]:
    """Return the user's memberships in the order of joining, annotated with the number of members (`people`)."""
    rows = Membership.objects.filter(user=person).select_related("team").annotate(people=Count("team__memberships"))
    return list(rows.order_by("pk"))


@transaction.atomic
def set_role(team: Team, member: int, *, owner: bool, actor: User, curating: bool = False) -> Membership:
    """Make a member an owner, or an owner a plain member. `member` is the key of the membership.

    The open invitations of a former owner are revoked. Raises TeamRefused if the team would have no owner, or `actor`
    may not change it.
    """
    membership = _get_membership(lock_team(team, actor, curating=curating), member)
    if membership.owner != owner:
        if not owner:
            _require_owner(team, former_owner=membership)
        membership.owner = owner
        membership.save(update_fields=["owner"])
        if not owner:
            _revoke_invitations(team=team, invited_by=membership.user)
        _record_membership("role changed", team, membership, actor, before={"owner": not owner})
    return membership


@transaction.atomic
def add_member(team: Team, person: User, *, owner: bool, actor: User) -> Membership:
    """Add a user to the team without an invitation, on behalf of the curator `actor`.

    Raises TeamRefused if the user is a member already or is in the maximum number of teams.
    """
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    _lock_row(team)
    check_can_join(team, person)
    membership = Membership.objects.create(team=team, user=person, owner=owner)
    _record_membership("added to team", team, membership, actor)
    return membership


def check_can_join(team: Team, person: User) -> None:
    if Membership.objects.filter(team=team, user=person).exists():
        raise TeamRefused("You are already a member of this team.")
    check_team_count(person)


def check_team_count(person: User) -> None:
    """Raise TeamRefused if the user is in the maximum number of teams."""
    if Membership.objects.filter(user=person).count() >= MAX_TEAMS:
        raise TeamRefused(f"You are a member of {MAX_TEAMS} teams, which is the maximum. Leave one first.")


@transaction.atomic
def transfer_team(team: Team, member: int, *, actor: User, curating: bool = False) -> Membership:
    """Make the member an owner and `actor` a plain member; curators replace all other owners.

    Open invitations of former owners are revoked. Raises TeamRefused if `actor` may not change the team or is the
    member.
    """
    membership = _get_membership(lock_team(team, actor, curating=curating), member)
    if membership.user_id == actor.pk and not curating:
        raise TeamRefused("You already own this team.")
    membership.owner = True
    membership.save(update_fields=["owner"])
    other_owners = Membership.objects.filter(team=team, owner=True).exclude(pk=membership.pk).select_related("user")
    for former_owner in other_owners if curating else other_owners.filter(user=actor):
        Membership.objects.filter(pk=former_owner.pk).update(owner=False)
        _revoke_invitations(team=team, invited_by=former_owner.user)
    _record_membership("team handed over", team, membership, actor)
    return membership


@transaction.atomic
def remove_member(team: Team, member: int, *, actor: User, curating: bool = False) -> User:
    """Remove the member, who immediately loses access to the team, and return the user.

    Raises TeamRefused for the team's last owner, or if `actor` may not change the team.
    """
    membership = _get_membership(lock_team(team, actor, curating=curating), member)
    _delete_membership(team, membership, actor)
    return membership.user


@transaction.atomic
def leave_team(team: Team, actor: User) -> None:
    """Leave the team. Raises TeamRefused for its last owner, who must transfer it first."""
    _lock_row(team)
    membership = Membership.objects.filter(team=team, user=actor).first()
    if membership is None:
        raise TeamRefused("You are no longer a member of this team.")
    _delete_membership(team, membership, actor)


def lock_team(team: Team, actor: User, *, curating: bool = False) -> Team:
    """Lock the team until the commit and return it. Raises TeamRefused unless the user owns it or is `curating`."""
    _lock_row(team)
    if not curating and not Membership.objects.filter(team=team, user=actor, owner=True).exists():
        raise TeamRefused("Only team owners can do that; you are no longer one.")
    return team


def _lock_row(team: Team) -> None:
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def _get_membership(team: Team, key: int) -> Membership:
    membership = Membership.objects.filter(team=team, pk=key).select_related("user").first()
    if membership is None:
        raise TeamRefused("This user is no longer a member of the team.")
    return membership


def _delete_membership(team: Team, membership: Membership, actor: User) -> None:
    """Delete and record the membership. Raises TeamRefused for the team's last owner.

    The invitations of the former member are revoked, and their webhooks are deactivated.
    """
    if membership.owner:
        _require_owner(team, former_owner=membership)
    membership.delete()
    _revoke_invitations(team=team, invited_by=membership.user)
    # Former members must not receive the team's results.
    Webhook.objects.filter(team=team, created_by=membership.user).update(active=False)
    _record_membership("left team" if membership.user_id == actor.pk else "removed from team", team, membership, actor)


def _require_owner(team: Team, *, former_owner: Membership) -> None:
    if not Membership.objects.filter(team=team, owner=True).exclude(pk=former_owner.pk).exists():
        raise TeamRefused("A team needs an owner. Make another member an owner first, or transfer the team.")


@transaction.atomic
def revoke_access(person: User) -> dict[str, int]:
    """Revoke the invitations and deactivate the webhooks that the user created in any team.

    Called when an account is closed or deactivated. Returns both numbers by name, for the audit record.
    """
    invitations = Invitation.objects.waiting().filter(invited_by=person)
    webhooks = Webhook.objects.filter(created_by=person, active=True)
    is_affected = Q(pk__in=invitations.values("team")) | Q(pk__in=webhooks.values("team"))
    list(Team.objects.select_for_update(no_key=True).filter(is_affected).order_by("pk").values_list("pk"))
    return {
        "invitations revoked": _revoke_invitations(invited_by=person),
        "webhooks switched off": webhooks.update(active=False),
    }


def _revoke_invitations(**conditions: Any) -> int:
    return Invitation.objects.waiting().filter(**conditions).update(revoked_at=timezone.now())


def _record_membership(
    action: str, team: Team, membership: Membership, actor: User, before: Mapping[str, object] | None = None
) -> None:
    """Record the action on the membership, on behalf of `actor` unless a curator's action is being recorded already."""
    # A curator's action already has a reason.
    acting: AbstractContextManager[object] = nullcontext() if audit.actor().person == actor else audit.acting(actor)
    after = {"person": membership.user_id, "owner": membership.owner}
    with acting:
        audit.record(action, team, before=before, after=after)


@transaction.atomic
def invite(team: Team, email: str, *, owner: bool, actor: User) -> tuple[Invitation, str]:
    """Invite an address to the team; return the invitation and the secret of its link, which is not stored.

    An earlier invitation of the same address is revoked. Raises TeamRefused if the address is a member's, the team has
    too many open invitations, or `actor` is not an owner.
    """
    lock_team(team, actor)
    address = email.strip().lower()
    if Membership.objects.filter(team=team, user__email=address).exists():
        raise TeamRefused("A user with this address is already a member of the team.")
    open_invitations(team=team, email=address).update(revoked_at=timezone.now())
    if open_invitations(team=team).count() >= MAX_INVITATIONS:
        raise TeamRefused(f"The team has {MAX_INVITATIONS} open invitations, which is the maximum. Revoke one first.")
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        team=team,
        email=address,
        secret_sha256=_hash_secret(secret),
        owner=owner,
        invited_by=actor,
        expires_at=timezone.now() + INVITATION_LIFETIME,
    )
    _record_invitation("invited", invitation, actor)
    return invitation, secret


@transaction.atomic
def renew_invitation(team: Team, key: int, *, actor: User) -> tuple[Invitation, str]:
    """Replace the secret of the invitation's link, and return both. The new link is valid for two weeks.

    Raises TeamRefused if the invitation was accepted or revoked, or `actor` is not an owner.
    """
    invitation = _lock_invitation(team, key, actor)
    secret = secrets.token_urlsafe(32)
    invitation.secret_sha256, invitation.expires_at = _hash_secret(secret), timezone.now() + INVITATION_LIFETIME
    invitation.invited_by = actor
    invitation.save(update_fields=["secret_sha256", "expires_at", "invited_by"])
    return invitation, secret


@transaction.atomic
def revoke_invitation(team: Team, key: int, *, actor: User) -> None:
    invitation = _lock_invitation(team, key, actor)
    _revoke_invitations(pk=invitation.pk)
    _record_invitation("invitation revoked", invitation, actor)


def open_invitations(**conditions: Any) -> QuerySet[Invitation]:
    return Invitation.objects.waiting().filter(expires_at__gt=timezone.now(), **conditions)


def find_invitation(secret: str) -> Invitation | None:
    return open_invitations(secret_sha256=_hash_secret(secret)).select_related("team", "invited_by").first()


def is_invited(invitation: Invitation, person: User) -> bool:
    return invitation.email in own_addresses(person)


@transaction.atomic
def accept_invitation(invitation: Invitation, person: User) -> Membership:
    """Make the invited user a member of the team.

    Raises TeamRefused if the invitation has ended or is for another address, or the user cannot join.
    """
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    Team.objects.select_for_update(no_key=True).get(pk=invitation.team_id)
    # The team's lock serializes this with a revocation and with changes of owners.
    row = open_invitations(pk=invitation.pk, secret_sha256=invitation.secret_sha256).select_related("team").first()
    if row is None:
        raise TeamRefused("This invitation has expired. Ask for a new one.")
    if not is_invited(row, person):
        raise TeamRefused("This invitation is for another address. Sign in with that address.")
    check_can_join(row.team, person)
    row.accepted_by, row.accepted_at = person, timezone.now()
    row.save(update_fields=["accepted_by", "accepted_at"])
    membership = Membership.objects.create(team=row.team, user=person, owner=row.owner)
    _record_invitation("joined team", row, person)
    return membership


def send_invitation(invitation: Invitation, link: str) -> None:
    """Queue an email with the link."""
    expiry = invitation.expires_at
    text = _INVITATION.format(site=settings.SITE_NAME, email=invitation.email, link=link, until=format_day(expiry))
    queue_account_mail(EmailMessage(f"Invitation to a team on {settings.SITE_NAME}", text, to=[invitation.email]))


def _lock_invitation(team: Team, key: int, actor: User) -> Invitation:
    """Lock the team and return its invitation with this key.

    Raises TeamRefused if the invitation was accepted or revoked, or `actor` is not an owner.
    """
    lock_team(team, actor)
    invitation = Invitation.objects.waiting().filter(team=team, pk=key).first()
    if invitation is None:
        raise TeamRefused("This invitation was already accepted or revoked.")
    return invitation


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record_invitation(action: str, invitation: Invitation, actor: User) -> None:
    """Record the action without the address, which only owners of the team may see."""
    with audit.acting(actor):
        audit.record(action, invitation.team, after={"invitation": invitation.pk, "owner": invitation.owner})
