"""What pages and messages about accounts ask of the settings."""

from allauth.account.models import EmailAddress
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from django import template
from django.conf import settings

from leaderboard.models import Team, User
from submissions.accounts.access import device_name

register = template.Library()
register.filter(device_name)


@register.simple_tag
def mail_goes_where() -> str:
    """A sentence for sites without a mail server, with a space before it; nothing where mail is sent."""
    if "console" not in settings.EMAIL_BACKEND:
        return ""
    return " This site has no mail server: the mail is printed on its console."


@register.filter
def unverified(person: User) -> list[str]:
    """The person's addresses that are not verified: while there is one, no second factor can be set up."""
    return list(EmailAddress.objects.filter(user=person, verified=False).values_list("email", flat=True))


@register.filter
def awaits_approval(team: Team) -> bool:
    """Whether a curator is to approve the team before it submits to hidden judgements."""
    return settings.TEAM_APPROVAL and not team.approved_at


@register.filter
def can_be_switched_off(authenticator: Authenticator) -> bool:
    """Whether its owner may switch off the second factor."""
    return bool(get_adapter().can_delete_authenticator(authenticator))
