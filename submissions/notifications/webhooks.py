"""A team's webhooks, and the messages to them: written in the transaction of the event, sent from their rows, tried
five times.
"""

import json
import logging
import secrets
import time
import uuid
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import standardwebhooks
from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from leaderboard.models import Team, User
from submissions.core.errors import ChangeRefused
from submissions.models import Delivery, NoticeKind, Webhook
from submissions.models.notifications import OutboxQuerySet
from submissions.notifications.inbox import Message, notify, team_owners
from submissions.notifications.webhook_client import AddressRefused, DeliveryOutcome, parse_target, post

logger = logging.getLogger(__name__)

#: How many webhooks a team may have.
LIMIT = 5
#: How long after each failure but the last it is tried again.
BACKOFF = (timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
ATTEMPTS = len(BACKOFF) + 1
#: A webhook that took nothing for so long, of so many messages at least, is switched off.
DAYS_OF_FAILURE, FAILURES = 3, 3
#: How long the log of what was sent is kept.
KEPT_FOR = timedelta(days=90)


class TooManyWebhooks(ChangeRefused):
    """The team has as many as it may."""


class WebhookForm(forms.Form):
    """Where results are to be sent."""

    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=500,
        widget=forms.URLInput(attrs={"placeholder": "https://", "autocomplete": "off"}),
        help_text=gettext_lazy("https, port 443 or 8443, on the internet. Each message is signed."),
    )

    def clean_url(self) -> str:
        """The address. Raises ValidationError for one that nothing is sent to."""
        url: str = self.cleaned_data["url"]
        try:
            parse_target(url)
        except AddressRefused as refusal:
            raise ValidationError(str(refusal)) from None
        return url


@transaction.atomic
def add_webhook(team: Team, url: str, by: User) -> Webhook:
    """Have finished and rescored results of the team sent there; the caller shows the secret, this once.

    Raises AddressRefused for an address that nothing is sent to, TooManyWebhooks.
    """
    parse_target(url)
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


def _new_secret() -> str:
    return f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"


def has_webhooks(team: Team) -> bool:
    """Return whether anything is to be sent for the team."""
    return bool(settings.WEBHOOKS_ENABLED) and Webhook.objects.filter(team=team, active=True).exists()


def queue_delivery(team: Team, event: str, key: str, body: Mapping[str, Any]) -> int:
    """Write down a message for each of the team's webhooks, once for each `key`. Returns for how many."""
    if not settings.WEBHOOKS_ENABLED:
        return 0
    webhooks = Webhook.objects.filter(team=team, active=True)
    rows = [_delivery(webhook, event, key, body) for webhook in webhooks]
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def send_test(webhook: Webhook) -> Delivery:
    """Write down a message that says nothing, to see whether it arrives."""
    name = uuid.uuid4().hex
    row = _delivery(webhook, "test", name, {"outcome": "This is a test."})
    row.save()
    return row


def _delivery(webhook: Webhook, event: str, key: str, body: Mapping[str, Any]) -> Delivery:
    values = {"event": event, "id": uuid.uuid4().hex, "at": timezone.now().isoformat(), **body}
    return Delivery(webhook=webhook, event=event, key=key, body=values)


def deliveries_are_due() -> bool:
    """Return whether any message is to be sent now."""
    return bool(settings.WEBHOOKS_ENABLED) and _waiting().due().exists()


def send_deliveries(until: float) -> int:
    """Send what is due until `time.monotonic()` is `until`. Returns how many arrived."""
    arrived = 0
    while settings.WEBHOOKS_ENABLED and time.monotonic() < until and (delivery := _claim()) is not None:
        outcome = _attempt(delivery)
        logger.info("delivery %s to webhook %s: %s", delivery.pk, delivery.webhook_id, outcome.text)
        # What came of the attempt is stored unless another sender has claimed the message since.
        now = timezone.now()
        changes: dict[str, Any] = {"answer": outcome.text[:120]}
        if outcome.arrived:
            changes |= {"state": "sent", "sent_at": now, "not_before": None}
        elif delivery.attempts >= ATTEMPTS:
            changes |= {"state": "failed", "not_before": None}
        else:
            changes |= {"not_before": now + BACKOFF[delivery.attempts - 1]}
        with transaction.atomic():
            if _waiting().held(delivery).update(**changes) and changes.get("state") == "failed":
                _switch_off_if_failing(delivery.webhook, now)
        arrived += outcome.arrived
    return arrived


def delete_old_deliveries() -> int:
    """Remove what was sent, or given up, long ago. Returns how many."""
    old = Delivery.objects.filter(created_at__lt=timezone.now() - KEPT_FOR).exclude(state="waiting")
    return old.delete()[0]


def _waiting() -> OutboxQuerySet:
    return Delivery.objects.filter(state="waiting")


def _claim() -> Delivery | None:
    """Take the message that was tried least and has waited longest, for the length of a claim."""
    due = _waiting().due().order_by("attempts", "pk").select_related("webhook__team")
    while (delivery := due.first()) is not None:
        if not delivery.webhook.active:
            _waiting().held(delivery).update(state="failed", answer="not sent: the webhook is switched off")
        elif delivery.attempts >= ATTEMPTS:  # its sender died in the middle of the last attempt
            _waiting().held(delivery).update(state="failed", answer="given up")
        elif _waiting().claim(delivery):
            return delivery
    return None


def _attempt(delivery: Delivery) -> DeliveryOutcome:
    body = json.dumps(delivery.body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    identifier, now, secret = delivery.body["id"], timezone.now(), delivery.webhook.secret
    try:
        # The bytes of an older secret, which does not begin with `whsec_`, are the key.
        signer = standardwebhooks.Webhook(secret if secret.startswith("whsec_") else secret.encode())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Runboard-Webhook/1",
            "X-Runboard-Event": delivery.event,
            "webhook-id": identifier,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signer.sign(identifier, now, body),
        }
        return post(delivery.webhook.url, body.encode(), headers)
    except Exception as error:
        logger.error("delivery %s could not be sent: %s", delivery.pk, type(error).__name__)
        return DeliveryOutcome(False, "a fault of ours")


def _switch_off_if_failing(webhook: Webhook, now: datetime) -> None:
    """Switch off a webhook that nothing has arrived at for days, and notify its team's owners."""
    arrived = webhook.deliveries.aggregate(last=Max("sent_at"))["last"]
    since = max(filter(None, (arrived, webhook.active_since)))
    failed = webhook.deliveries.filter(state="failed", created_at__gt=since).order_by("created_at")
    first = failed.first()
    if first is None or failed.count() < FAILURES or first.created_at > now - timedelta(days=DAYS_OF_FAILURE):
        return
    if not Webhook.objects.filter(pk=webhook.pk, active=True).update(active=False):
        return
    team = webhook.team
    text = _(
        "A webhook of {team} took nothing that was sent to it for {days} days, and was switched off. Its page "
        "says what it answered; there it can be switched on again."
    ).format(team=team.name, days=DAYS_OF_FAILURE)
    key = f"webhook-{webhook.pk}-{now:%Y%m%dT%H%M%S}"
    subject = _("A webhook of {team} was switched off").format(team=team.name)
    message = Message(NoticeKind.WEBHOOK_OFF, key, subject, text, reverse("webhooks", args=[team.slug]))
    notify(team_owners(team), message)
