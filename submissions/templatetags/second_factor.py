"""What the page of the second factor asks."""

from __future__ import annotations

from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from django import template

register = template.Library()


@register.filter
def may_go(authenticator: Authenticator) -> bool:
    """Whether its owner may switch it off."""
    return bool(get_adapter().can_delete_authenticator(authenticator))
