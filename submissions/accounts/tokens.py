"""API tokens: shown once, stored hashed, good for what they were made for and for 90 days at most."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from leaderboard.models import User
from submissions.accounts.authentication import has_good_address
from submissions.core.errors import ChangeRefused
from submissions.models import ApiToken, Scope

#: For how many days a token may be made; the last is what a script gets that does not say.
LIFETIMES = (7, 30, 90)
#: How long a token works at most.
LIFETIME = timedelta(days=max(LIFETIMES))
#: How many tokens that work a person may hold at a time.
LIMIT = 10
#: How long a token that has expired stays in the list, to say so.
REMEMBERED = timedelta(days=30)


class TokenRefused(ChangeRefused):
    """The token cannot be made; the message says why and what would be right."""


class TooManyTokens(TokenRefused):
    """The person holds as many tokens as they may."""


@transaction.atomic
def make_token(
    user: User, name: str, *, scopes: Iterable[str] = Scope.values, days: int = LIFETIME.days
) -> str:
    """Create token and return its text, which is stored nowhere. Raises TokenRefused."""
    chosen = [scope for scope in Scope.values if scope in set(scopes)]
    if not chosen:
        raise TokenRefused("Choose what the token may be used for.")
    if not 1 <= days <= LIFETIME.days:
        raise TokenRefused(f"A token works for 1 to {LIFETIME.days} days.")
    if not has_good_address(user):
        raise TokenRefused("Verify your e-mail address first.")
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # of two at once the second counts the first
    now = timezone.now()
    ApiToken.objects.filter(user=user, expiry__lt=now - REMEMBERED).delete()
    if ApiToken.objects.filter(user=user).exclude(expiry__lt=now).count() >= LIMIT:
        raise TooManyTokens(f"You hold {LIMIT} tokens. Revoke one you no longer use, then make a new one.")
    _, text = ApiToken.objects.create(user=user, expiry=timedelta(days=days), name=name, scopes=chosen)
    return str(text)


def revoke_token(user: User, digest: str) -> bool:
    """End one of the person's tokens; whether there was one."""
    deleted, _ = ApiToken.objects.filter(user=user, digest=digest).delete()
    return deleted > 0


def revoke_all(user: User) -> int:
    """End every token of the person: somebody else may have had their account. How many there were."""
    deleted, _ = ApiToken.objects.filter(user=user).delete()
    return deleted
