"""API tokens: shown once, stored hashed."""

from __future__ import annotations

from datetime import timedelta

from leaderboard.models import User
from submissions.models import ApiToken

#: How long a token works.
LIFETIME = timedelta(days=90)
#: How many tokens a person may hold at a time.
LIMIT = 10


class TooManyTokens(Exception):
    """The person holds as many tokens as they may."""


def make_token(user: User, name: str) -> str:
    """Make a token and return its text, which is stored nowhere. Raises TooManyTokens."""
    if ApiToken.objects.filter(user=user).count() >= LIMIT:
        raise TooManyTokens(f"You hold {LIMIT} tokens. Revoke one you no longer use, then make a new one.")
    _, text = ApiToken.objects.create(user=user, expiry=LIFETIME, name=name)
    return str(text)


def revoke_token(user: User, digest: str) -> bool:
    """End one of the person's tokens; whether there was one."""
    deleted, _ = ApiToken.objects.filter(user=user, digest=digest).delete()
    return deleted > 0
