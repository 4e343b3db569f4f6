"""Template tags and filters for pages and emails about accounts."""

from allauth.account.models import EmailAddress
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from django import template
from django.conf import settings

from leaderboard.models import User
from submissions.accounts.access import device_name
from submissions.quotas.counting import needs_approval

register = template.Library()
register.filter(device_name)
register.filter("awaits_approval", needs_approval)


@register.simple_tag
def console_mail_note() -> str:
    """Return a sentence that emails are printed on the console if the site has no mail server, or an empty string.

    The sentence starts with a space.
    """
    if "console" not in settings.EMAIL_BACKEND:
        return ""
    return " This site has no mail server; emails are printed on its console."


@register.filter
def unverified(person: User) -> list[str]:
    """Return the user's unverified addresses, which prevent the setup of a second factor."""
    return list(EmailAddress.objects.filter(user=person, verified=False).values_list("email", flat=True))


@register.filter
def can_be_switched_off(authenticator: Authenticator) -> bool:
    return bool(get_adapter().can_delete_authenticator(authenticator))
