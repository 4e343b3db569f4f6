"""What pages and messages about accounts ask of the settings."""

from __future__ import annotations

from django import template
from django.conf import settings

register = template.Library()


@register.simple_tag
def mail_goes_where() -> str:
    """A sentence for sites without a mail server, with a space before it; nothing where mail is sent."""
    if "console" not in settings.EMAIL_BACKEND:
        return ""
    return " This site has no mail server: the mail is printed on its console."
