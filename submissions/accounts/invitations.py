"""Ways into a team: a secret link, sent to an address, good once, for two weeks. Only the secret's hash is kept.

Who accepts must be signed in with the address that was invited: neither a forwarded link nor one read in somebody's
history lets anybody else in.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import models, transaction
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.models import Invitation, Membership, Team, User
from submissions.accounts.membership import TeamRefused, check_room, hold
from submissions.accounts.outbox import write_account_mail

#: How long an invitation is good.
LIFETIME = timedelta(days=14)
#: How many of a team's invitations may wait at a time.
MOST_OPEN = 20

#: No name of the team or the person: whoever has an account chooses these, and the mail is the site's.
_TEXT = """An owner of a team on {site} invites you to join it.

To see which team it is, sign in as {email} (or sign up with that address) and open

{link}

The link works once, until {until:%-d %B %Y}. If you do not know what this is about, do nothing.
"""


@transaction.atomic
def invite(team: Team, email: str, *, owner: bool, by: User) -> tuple[Invitation, str]:
    """Invite an address into the team; the secret of its link is returned and stored nowhere.

    An earlier invitation of the same address ends. Raises TeamRefused.
    """
    hold(team, by)
    address = email.strip().lower()
    if Membership.objects.filter(team=team, user__email=address).exists():
        raise TeamRefused("Somebody with this address belongs to the team already.")
    open_invitations(team=team, email=address).update(revoked_at=timezone.now())
    if open_invitations(team=team).count() >= MOST_OPEN:
        raise TeamRefused(f"{MOST_OPEN} invitations wait for an answer. Revoke one first.")
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        team=team,
        email=address,
        secret_sha256=_digest(secret),
        owner=owner,
        invited_by=by,
        expires_at=timezone.now() + LIFETIME,
    )
    _record("invited", invitation, by)
    return invitation, secret


@transaction.atomic
def renew(team: Team, key: int, *, by: User) -> tuple[Invitation, str]:
    """Another link for an invitation, for another two weeks; the earlier link ends. Raises TeamRefused."""
    invitation = _waiting(team, key, by)
    secret = secrets.token_urlsafe(32)
    invitation.secret_sha256, invitation.expires_at = _digest(secret), timezone.now() + LIFETIME
    invitation.invited_by = by
    invitation.save(update_fields=["secret_sha256", "expires_at", "invited_by"])
    return invitation, secret


@transaction.atomic
def revoke(team: Team, key: int, *, by: User) -> None:
    """End an invitation that nobody has accepted. Raises TeamRefused."""
    invitation = _waiting(team, key, by)
    invitation.revoked_at = timezone.now()
    invitation.save(update_fields=["revoked_at"])
    _record("invitation revoked", invitation, by)


def waiting_invitations(team: Team) -> list[Invitation]:
    """Those that nobody has accepted or revoked, expired ones too, the newest first."""
    return list(Invitation.objects.waiting().filter(team=team).select_related("invited_by"))


def open_invitations(**conditions: Any) -> models.QuerySet[Invitation]:
    """Invitations that may be accepted now."""
    return Invitation.objects.waiting().filter(expires_at__gt=timezone.now(), **conditions)


def find(secret: str) -> Invitation | None:
    """The invitation whose link has this secret, if it is good now."""
    rows = open_invitations(secret_sha256=_digest(secret))
    return rows.select_related("team", "invited_by").first()


def is_for(invitation: Invitation, person: User) -> bool:
    """Whether the address that was invited is the person's: the account's own, or a further one they confirmed."""
    if person.email.lower() == invitation.email:
        return True
    return EmailAddress.objects.filter(user=person, verified=True, email__iexact=invitation.email).exists()


@transaction.atomic
def accept(invitation: Invitation, person: User) -> Membership:
    """Join the team. Raises TeamRefused for another's invitation, and for one that is good no longer."""
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    Team.objects.select_for_update(no_key=True).get(pk=invitation.team_id)
    # Under the team's lock: whoever revokes it, or ceases to be an owner, has done so before or does after.
    same = open_invitations(pk=invitation.pk, secret_sha256=invitation.secret_sha256)
    row = same.select_related("team").first()
    if row is None:
        raise TeamRefused("This invitation is good no longer. Ask for a new one.")
    if not is_for(row, person):
        raise TeamRefused("This invitation is for another address. Sign in with that one.")
    check_room(row.team, person)
    row.accepted_by, row.accepted_at = person, timezone.now()
    row.save(update_fields=["accepted_by", "accepted_at"])
    membership = Membership.objects.create(team=row.team, user=person, owner=row.owner)
    _record("joined team", row, person)
    return membership


def send(invitation: Invitation, link: str) -> None:
    """Write down the mail with the link, which the notifier sends."""
    until = invitation.expires_at
    text = _TEXT.format(site=settings.SITE_NAME, email=invitation.email, link=link, until=until)
    subject = f"Invitation to a team on {settings.SITE_NAME}"
    write_account_mail(EmailMessage(subject, text, to=[invitation.email]))


def _waiting(team: Team, key: int, by: User) -> Invitation:
    hold(team, by)
    found = Invitation.objects.waiting().filter(team=team, pk=key).first()
    if found is None:
        raise TeamRefused("This invitation was accepted or revoked meanwhile.")
    return found


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record(action: str, invitation: Invitation, by: User) -> None:
    """Write it down without the address, which is nobody's business but the team's owners'."""
    with audit.acting(by):
        audit.record(action, invitation.team, after={"invitation": invitation.pk, "owner": invitation.owner})
