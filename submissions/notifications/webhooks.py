"""A team's webhooks: made, given a new secret, switched on, and removed by its owners."""

from __future__ import annotations

import secrets
from base64 import b64encode

from django.db import transaction
from django.utils import timezone

from leaderboard.models import Team, User
from submissions.models import Webhook
from submissions.notifications.addresses import target_of

#: How many a team may have.
LIMIT = 5


class TooManyWebhooks(Exception):
    """The team has as many as it may."""


@transaction.atomic
def add_webhook(team: Team, url: str, by: User) -> Webhook:
    """Have finished and rescored results of the team sent there; the caller shows the secret, this once.

    Raises AddressRefused for an address that nothing is sent to, TooManyWebhooks.
    """
    target_of(url)
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)
    if Webhook.objects.filter(team=team).count() >= LIMIT:
        raise TooManyWebhooks(f"A team has at most {LIMIT} webhooks. Remove one first.")
    return Webhook.objects.create(team=team, url=url, secret=_new_secret(), created_by=by)


def rotate_secret(webhook: Webhook) -> str:
    """Another secret, which signs whatever is sent from now on; the old one is gone."""
    webhook.secret = _new_secret()
    webhook.save(update_fields=["secret"])
    return webhook.secret


def switch_on(webhook: Webhook) -> None:
    """Send to it again, what happens from now on."""
    Webhook.objects.filter(pk=webhook.pk, active=False).update(active=True, active_since=timezone.now())


def switch_off(webhook: Webhook) -> None:
    """Send nothing more to it; what waits is given up."""
    Webhook.objects.filter(pk=webhook.pk).update(active=False)


def remove_webhook(webhook: Webhook) -> None:
    """Send nothing more, and forget what was sent."""
    webhook.delete()


def _new_secret() -> str:
    return f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
