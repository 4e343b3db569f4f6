"""Notices and webhooks. Written by `submissions.notifications`; users write their preferences and webhooks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

#: Number of log lines shown per webhook.
LOG_LINES = 50
#: Duration of a claim. If a sender dies, another one claims its message after this time.
CLAIM = timedelta(minutes=2)


def is_due() -> Q:
    return Q(not_before=None) | Q(not_before__lte=timezone.now())


class OutboxQuerySet(models.QuerySet[Any]):
    """Messages in an outbox. Each attempt is counted on the row before it is made."""

    #: Column that counts the attempts.
    counter = "attempts"

    def due(self) -> Self:
        return self.filter(is_due())

    def held(self, row: Any) -> Self:
        """Filter to the row, unless another sender has claimed it since it was read."""
        return self.filter(pk=row.pk, **{self.counter: row.attempts})

    def claim(self, row: Any) -> bool:
        """Claim the row for `CLAIM`. Return False if another sender was faster."""
        increment = {self.counter: F(self.counter) + 1}
        if not self.held(row).update(not_before=timezone.now() + CLAIM, **increment):
            return False
        setattr(row, self.counter, row.attempts + 1)
        return True


class NoticeQuerySet(OutboxQuerySet):
    """Notices, some of which are sent by email."""

    counter = "mail_attempts"


class NoticeKind(models.TextChoices):
    """Kinds of notices, each of which users can switch off."""

    FINISHED = "finished", "a submission finished"
    FAILED = "failed", "a submission failed because of a problem on our side"
    REJECTED = "rejected", "a file was rejected"
    RESCORED = "rescored", "results were rescored on new judgments"
    ROUND_OPENING = "round_opening", "a round opens"
    ROUND_CLOSING = "round_closing", "a round closes soon"
    ROUND_REVEALED = "round_revealed", "a round was revealed"
    CHALLENGED = "challenged", "a system was challenged or a challenge was decided"
    WEBHOOK_OFF = "webhook_off", "a webhook was switched off"


class Notice(models.Model):
    """A message to one user: in the inbox, by email, or both. The row is the email's outbox."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    kind = models.CharField(max_length=16, choices=NoticeKind.choices)
    subject = models.CharField(max_length=200)
    text = models.TextField()
    path = models.CharField(
        max_length=300, blank=True, help_text="Path of the page with details, such as /submissions/abc123/."
    )
    key = models.CharField(max_length=120, help_text="Key of the event. Each user gets one notice per kind and key.")
    in_inbox = models.BooleanField(default=True)
    read_at = models.DateTimeField(null=True, blank=True)
    mail_state = models.CharField(
        max_length=8,
        choices=[("none", "not wanted"), ("waiting", "waiting"), ("sent", "sent"), ("failed", "failed")],
        default="none",
        db_index=True,
    )
    mail_attempts = models.PositiveSmallIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = NoticeQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [models.UniqueConstraint(fields=["person", "kind", "key"], name="told_once")]
        indexes = [models.Index(fields=["person"], condition=Q(read_at=None, in_inbox=True), name="notice_unread")]

    def __str__(self) -> str:
        return self.subject

    @property
    def attempts(self) -> int:
        """Number of attempts to send the email, under the name that all outbox rows use."""
        return self.mail_attempts


class NoticePreference(models.Model):
    """A user's channels for a kind of notice. Without a row, both are on."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notice_preferences")
    kind = models.CharField(max_length=16, choices=NoticeKind.choices)
    by_mail = models.BooleanField(default=True)
    in_inbox = models.BooleanField(default=True)
    everywhere = models.BooleanField(
        default=False, help_text="For rounds: notify also if none of the user's teams has submitted."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["person", "kind"], name="one_preference_per_kind")]

    def __str__(self) -> str:
        return f"{self.person}: {self.kind}"

    @property
    def concerns_rounds(self) -> bool:
        """Whether the kind is about rounds, for which `everywhere` applies."""
        return self.kind in (NoticeKind.ROUND_OPENING, NoticeKind.ROUND_CLOSING, NoticeKind.ROUND_REVEALED)


class AccountMail(models.Model):
    """An email about an account, with the secret of its link. The row is deleted once it is sent or abandoned."""

    address = models.EmailField()
    sender = models.CharField(max_length=320)
    subject = models.TextField()
    text = models.TextField()
    attempts = models.PositiveSmallIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OutboxQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"account mail {self.pk}"


class Webhook(models.Model):
    """A team's URL that receives finished and rescored results in signed messages."""

    team = models.ForeignKey("leaderboard.Team", on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    secret = models.CharField(max_length=80, help_text="HMAC key. Shown once, never logged.")
    active = models.BooleanField(default=True)
    active_since = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"webhook {self.pk} of {self.team}"

    @property
    def host(self) -> str:
        """Host of the URL, a short name for the webhook."""
        return urlsplit(self.url).netloc

    @property
    def latest_deliveries(self) -> models.QuerySet[Delivery]:
        return self.deliveries.all()[:LOG_LINES]


class Delivery(models.Model):
    """A message to a webhook. The row is the outbox."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=16)
    key = models.CharField(max_length=120)
    body = models.JSONField()
    state = models.CharField(
        max_length=8,
        choices=[("waiting", "waiting"), ("sent", "sent"), ("failed", "failed")],
        default="waiting",
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=120, blank=True, help_text="Result of the last attempt.")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    objects = OutboxQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "deliveries"
        indexes = [models.Index(fields=["state"], condition=Q(state="waiting"), name="delivery_waiting")]
        constraints = [models.UniqueConstraint(fields=["webhook", "event", "key"], name="delivered_once")]

    def __str__(self) -> str:
        return f"{self.event} to {self.webhook}"
