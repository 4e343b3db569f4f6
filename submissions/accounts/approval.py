"""What curators approve: accounts before they sign in, and teams before they submit to hidden judgements.

See docs/decisions/0039-approval-and-young-teams.md. Within `audit.acting`.
"""

from __future__ import annotations

from typing import Any

from allauth.account.stages import LoginStage
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.core.audit import record
from leaderboard.core.http.site_url import own_address
from leaderboard.models import Membership, Team, User
from leaderboard.results.publishing.publication import reconsider_held
from submissions.accounts.outbox import one_line, queue_account_mail

_ACCOUNT_TEXT = """Your account at {site} is approved. Sign in at

{address}/account/login/
"""
_TEAM_TEXT = """Your team “{team}” at {site} is approved: it may submit to datasets with hidden judgements.

{address}
"""


class ApprovalStage(LoginStage):
    """Keeps out whose account waits for a curator, after the address was verified."""

    key = "approval"

    def handle(self) -> tuple[HttpResponse | None, bool]:
        """Go on, or say that the account waits; no session comes of it."""
        person: Any = self.login.user
        if not person.approval_awaited:
            return None, True
        return render(self.request, "account/approval_awaited.html", status=403), False


def waiting_accounts() -> QuerySet[User]:
    """Those that cannot sign in before somebody approves them."""
    return User.objects.filter(approval_awaited=True, is_active=True)


def waiting_teams() -> QuerySet[Team]:
    """Those that nobody approved, of people who can sign in; none where no team needs it."""
    if not settings.TEAM_APPROVAL:
        return Team.objects.none()
    of_people = Membership.objects.filter(user__is_active=True, user__approval_awaited=False)
    return Team.objects.filter(pk__in=of_people.values("team"), approved_at=None)


def approve_account(person: User) -> bool:
    """Let the person sign in, and tell them by mail. False where the account did not wait."""
    if not User.objects.filter(pk=person.pk, approval_awaited=True).update(approval_awaited=False):
        return False
    person.approval_awaited = False
    record("account approved", person)
    text = _ACCOUNT_TEXT.format(site=settings.SITE_NAME, address=own_address())
    subject = f"Your account at {settings.SITE_NAME} is approved"
    queue_account_mail(EmailMessage(subject, text, to=[person.email]))
    return True


def approve_team(team: Team) -> bool:
    """Let the team submit to hidden judgements, and tell its owners by mail. False where it was approved before.

    From now on it is young for YOUNG_TEAM_DAYS. What it was not told as a team that nobody knew is decided again.
    """
    now = timezone.now()
    if not Team.objects.filter(pk=team.pk, approved_at=None).update(approved_at=now):
        return False
    team.approved_at = now
    record("team approved", team)
    reconsider_held(team)
    text = _TEAM_TEXT.format(team=one_line(team.name), site=settings.SITE_NAME, address=own_address())
    subject = f"Your team at {settings.SITE_NAME} is approved"
    for owner in User.objects.filter(memberships__team=team, memberships__owner=True, is_active=True):
        queue_account_mail(EmailMessage(subject, text, to=[owner.email]))
    return True


def withdraw_approval(team: Team) -> bool:
    """Take the approval back: the team submits nothing more to hidden judgements. False where it had none.

    What it was not told stays so, and has no day any more from which it would be.
    """
    if not Team.objects.filter(pk=team.pk).exclude(approved_at=None).update(approved_at=None):
        return False
    team.approved_at = None
    record("team's approval withdrawn", team)
    reconsider_held(team)
    return True
