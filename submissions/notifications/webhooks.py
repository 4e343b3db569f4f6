"""Webhooks of teams, and their messages, which are stored with the event and sent later with up to five attempts."""

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

#: Maximum number of webhooks per team.
LIMIT = 5
#: Delays after each failure but the last.
BACKOFF = (timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
ATTEMPTS = len(BACKOFF) + 1
#: Days without success, and minimum number of failed messages, after which a webhook is switched off.
FAILURE_DAYS, MIN_FAILURES = 3, 3
#: Retention period of the delivery log.
LOG_RETENTION = timedelta(days=90)


class TooManyWebhooks(ChangeRefused):
    """Refusal because the team has the maximum number of webhooks."""


class WebhookForm(forms.Form):
    """Form for the address of a webhook."""

    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=500,
        widget=forms.URLInput(attrs={"placeholder": "https://", "autocomplete": "off"}),
        help_text=gettext_lazy("An https address on the internet, port 443 or 8443. Messages are signed."),
    )

    def clean_url(self) -> str:
        """Return the address. Raises ValidationError if it is not allowed for webhooks."""
        url: str = self.cleaned_data["url"]
        try:
            parse_target(url)
        except AddressRefused as refusal:
            raise ValidationError(str(refusal)) from None
        return url


@transaction.atomic
def add_webhook(team: Team, url: str, creator: User) -> Webhook:
    """Create a webhook for finished and rescored results; the caller shows its secret once.

    Raises:
        AddressRefused: If the address is not allowed for webhooks.
        TooManyWebhooks: If the team has the maximum number of webhooks.
    """
    parse_target(url)
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)
    if Webhook.objects.filter(team=team).count() >= LIMIT:
        raise TooManyWebhooks(f"A team has at most {LIMIT} webhooks. Remove one first.")
    return Webhook.objects.create(team=team, url=url, secret=_new_secret(), created_by=creator)


def rotate_secret(webhook: Webhook) -> str:
    """Replace the secret that signs messages from now on, and return the new one."""
    webhook.secret = _new_secret()
    webhook.save(update_fields=["secret"])
    return webhook.secret


def switch_on(webhook: Webhook) -> None:
    """Resume sending, starting with future events."""
    Webhook.objects.filter(pk=webhook.pk, active=False).update(active=True, active_since=timezone.now())


def switch_off(webhook: Webhook) -> None:
    """Stop sending. Waiting messages are given up once they are due."""
    Webhook.objects.filter(pk=webhook.pk).update(active=False)


def _new_secret() -> str:
    return f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"


def has_webhooks(team: Team) -> bool:
    return bool(settings.WEBHOOKS_ENABLED) and Webhook.objects.filter(team=team, active=True).exists()


def queue_delivery(team: Team, event: str, key: str, body: Mapping[str, Any]) -> int:
    """Store a message for each active webhook of the team, once per `key`; return the number of webhooks.

    Returns 0 if webhooks are disabled on this site.
    """
    if not settings.WEBHOOKS_ENABLED:
        return 0
    rows = [_build_delivery(webhook, event, key, body) for webhook in Webhook.objects.filter(team=team, active=True)]
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def send_test(webhook: Webhook) -> Delivery:
    """Queue a test message for delivery, and return it."""
    row = _build_delivery(webhook, "test", uuid.uuid4().hex, {"outcome": "This is a test."})
    row.save()
    return row


def _build_delivery(webhook: Webhook, event: str, key: str, body: Mapping[str, Any]) -> Delivery:
    values = {"event": event, "id": uuid.uuid4().hex, "at": timezone.now().isoformat(), **body}
    return Delivery(webhook=webhook, event=event, key=key, body=values)


def deliveries_are_due() -> bool:
    return bool(settings.WEBHOOKS_ENABLED) and _waiting_deliveries().due().exists()


def send_deliveries(deadline: float) -> int:
    """Send due messages until `time.monotonic()` reaches `deadline`; return the number that arrived.

    Failed messages are retried later, up to `ATTEMPTS` times. Then a webhook that has failed for days is switched off.
    """
    arrived_count = 0
    while settings.WEBHOOKS_ENABLED and time.monotonic() < deadline and (delivery := _claim_delivery()) is not None:
        outcome = _post_delivery(delivery)
        logger.info("Delivery %s to webhook %s: %s", delivery.pk, delivery.webhook_id, outcome.text)
        # Store the outcome unless another sender has claimed the message meanwhile.
        now = timezone.now()
        changes: dict[str, Any] = {"answer": outcome.text[:120]}
        if outcome.arrived:
            changes |= {"state": "sent", "sent_at": now, "not_before": None}
        elif delivery.attempts >= ATTEMPTS:
            changes |= {"state": "failed", "not_before": None}
        else:
            changes |= {"not_before": now + BACKOFF[delivery.attempts - 1]}
        with transaction.atomic():
            if _waiting_deliveries().held(delivery).update(**changes) and changes.get("state") == "failed":
                _switch_off_if_failing(delivery.webhook, now)
        arrived_count += outcome.arrived
    return arrived_count


def delete_old_deliveries() -> int:
    """Delete messages that were sent or given up long ago; return their number."""
    return Delivery.objects.filter(created_at__lt=timezone.now() - LOG_RETENTION).exclude(state="waiting").delete()[0]


def _waiting_deliveries() -> OutboxQuerySet:
    return Delivery.objects.filter(state="waiting")


def _claim_delivery() -> Delivery | None:
    """Claim and return the due message with the fewest attempts, oldest first, or return None if there is none.

    Messages of inactive webhooks, or without attempts left, are given up.
    """
    due_deliveries = _waiting_deliveries().due().order_by("attempts", "pk").select_related("webhook__team")
    while (delivery := due_deliveries.first()) is not None:
        if not delivery.webhook.active:
            _waiting_deliveries().held(delivery).update(state="failed", answer="not sent: the webhook is switched off")
        elif delivery.attempts >= ATTEMPTS:  # the sender died during the last attempt
            _waiting_deliveries().held(delivery).update(state="failed", answer="given up")
        elif _waiting_deliveries().claim(delivery):
            return delivery
    return None


def _post_delivery(delivery: Delivery) -> DeliveryOutcome:
    """Sign the message, send it to its webhook, and return the outcome. Errors are logged and become an outcome."""
    body = json.dumps(delivery.body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    identifier, now, secret = delivery.body["id"], timezone.now(), delivery.webhook.secret
    try:
        # Older secrets lack the prefix `whsec_`; their bytes are the key.
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
        logger.error("Could not send delivery %s: %s", delivery.pk, type(error).__name__)
        return DeliveryOutcome(False, "a fault on our side")


def _switch_off_if_failing(webhook: Webhook, now: datetime) -> None:
    """Switch off a webhook that has accepted no message for days, and notify the team's owners.

    Several messages must have failed since the last success.
    """
    last_success = webhook.deliveries.aggregate(last=Max("sent_at"))["last"]
    start = max(filter(None, (last_success, webhook.active_since)))
    failures = webhook.deliveries.filter(state="failed", created_at__gt=start).order_by("created_at")
    oldest = failures.first()
    if oldest is None or failures.count() < MIN_FAILURES or oldest.created_at > now - timedelta(days=FAILURE_DAYS):
        return
    if not Webhook.objects.filter(pk=webhook.pk, active=True).update(active=False):
        return
    team = webhook.team
    text = _(
        "A webhook of {team} has not accepted any message for {days} days and was switched off. Its page shows "
        "the responses, and you can switch it on again there."
    ).format(team=team.name, days=FAILURE_DAYS)
    key = f"webhook-{webhook.pk}-{now:%Y%m%dT%H%M%S}"
    subject = _("A webhook of {team} was switched off").format(team=team.name)
    message = Message(NoticeKind.WEBHOOK_OFF, key, subject, text, reverse("webhooks", args=[team.slug]))
    notify(team_owners(team), message)
