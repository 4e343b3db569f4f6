"""Export of personal data, and closing of accounts."""

import io
import json
import zipfile
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models import Model

from leaderboard.core import audit
from leaderboard.models import Acceptance, AuditRecord, Challenge, Invitation, Membership, Team, User
from submissions import models
from submissions.accounts.access import end_access
from submissions.accounts.approval import forget_addresses
from submissions.accounts.teams import TeamRefused, rename_team, revoke_access
from submissions.core.errors import ChangeRefused

#: Exported tables by name, with the field that refers to the user and the exported columns. No secrets, no scores.
_EXPORTED_TABLES: dict[str, tuple[type[Model], str, tuple[str, ...]]] = {
    "addresses": (EmailAddress, "user", ("email", "verified", "primary")),
    "sign_in_elsewhere": (SocialAccount, "user", ("provider", "uid", "date_joined", "last_login", "extra_data")),
    "second_factors": (Authenticator, "user", ("type", "created_at", "last_used_at")),
    "sessions": (UserSession, "user", ("ip", "user_agent", "created_at", "last_seen_at")),
    "tokens": (models.ApiToken, "user", ("name", "scopes", "created", "expiry", "last_used_at")),
    "teams": (Membership, "user", ("team__name", "team__slug", "owner", "joined_at")),
    "invitations": (Invitation, "invited_by", ("team__name", "email", "owner", "created_at", "accepted_at")),
    "submissions": (
        models.Submission, "submitter", ("id", "kind", "team__name", "system__name", "configuration", "created_at"),
    ),
    "checkpoints": (models.Checkpoint, "created_by", ("file_name", "kind", "size", "hub_name", "created_at")),
    "uploads": (models.Upload, "owner", ("file_name", "length", "offset", "created_at")),
    "quota_uses": (models.QuotaUse, "person", ("at", "kind", "dataset__slug", "team__name")),
    "challenges": (Challenge, "raised_by", ("system__name", "claim", "text", "state", "raised_at")),
    "webhooks": (models.Webhook, "created_by", ("team__name", "url", "active", "created_at")),
    "acceptances": (
        Acceptance, "person",
        ("agreement__dataset__slug", "agreement__round__slug", "version", "text_sha256", "accepted_at"),
    ),
    "notices": (models.Notice, "person", ("subject", "text", "created_at", "read_at")),
    "notice_preferences": (models.NoticePreference, "person", ("kind", "by_mail", "in_inbox", "everywhere")),
    "audit_records": (AuditRecord, "actor", ("at", "action", "subject", "reason")),
}  # fmt: skip
#: Tables deleted with the account. The others keep the account's number, which does not identify the user.
_DELETED_TABLES = (EmailAddress, SocialAccount, Authenticator, models.Webhook, models.Notice, models.NoticePreference)
#: Display name of closed accounts.
FORMER_MEMBER = "A former member"


def personal_data(person: User) -> bytes:
    """Return a zip archive with one file, `account.json`, containing the user's stored data."""
    account_fields = ("id", "email", "name", "date_joined", "last_login", "is_staff", "approval_awaited")
    data: dict[str, Any] = {"account": {name: getattr(person, name) for name in account_fields}}
    for name, (table, field, columns) in _EXPORTED_TABLES.items():
        data[name] = list(table._default_manager.filter(**{field: person}).order_by("pk").values(*columns))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("account.json", json.dumps(data, cls=DjangoJSONEncoder, indent=2, ensure_ascii=False))
    return buffer.getvalue()


def check_can_close(person: User) -> None:
    """Raise TeamRefused if a team would lose its only owner, ChangeRefused for staff."""
    if person.is_staff or person.is_superuser:
        raise ChangeRefused("Your account has curator rights. Ask an administrator to remove them first.")
    for team in Team.objects.filter(memberships__user=person, memberships__owner=True).order_by("pk"):
        other_members = team.memberships.exclude(user=person)
        if other_members.exists() and not other_members.filter(owner=True).exists():
            raise TeamRefused(
                f"You are the only owner of “{team.name}”. Transfer the team or make another member an owner first."
            )


@transaction.atomic
def close_account(person: User) -> None:
    """Close the account: remove its name, addresses, memberships, and all ways to sign in.

    Results stay with their teams, and records keep the account's number. A team of one that has the user's name gets a
    neutral name. Raises TeamRefused if a team would lose its only owner, or ChangeRefused for staff.
    """
    teams = Team.objects.filter(memberships__user=person).order_by("pk")
    teams_to_rename = [team for team in teams if team.name == person.name and team.memberships.count() == 1]
    for team in teams_to_rename:  # locks boards, which must be locked before users
        rename_team(team, FORMER_MEMBER)
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    list(teams.select_for_update(no_key=True, of=("self",)).values_list("pk"))
    check_can_close(person)
    addresses = {person.email, *EmailAddress.objects.filter(user=person).values_list("email", flat=True)}
    models.AccountMail.objects.filter(address__in=addresses).delete()
    ended_counts = {**end_access(person), **revoke_access(person)}
    person.email = f"account-{person.pk}@closed.invalid"
    forget_addresses(addresses)
    Invitation.objects.filter(email__in=addresses).update(email=person.email)
    Membership.objects.filter(user=person).delete()
    for table, field, _ in _EXPORTED_TABLES.values():
        if table in _DELETED_TABLES:
            table._default_manager.filter(**{field: person}).delete()
    person.name, person.is_active = FORMER_MEMBER, False
    person.set_unusable_password()
    person.groups.clear()
    person.save()
    audit.record("account closed", person, after=ended_counts)
