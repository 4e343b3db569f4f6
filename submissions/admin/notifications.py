"""Whether what people are told reaches them: to look at. Texts, addresses, bodies and secrets are nobody's here."""

from __future__ import annotations

from django.contrib import admin

from leaderboard.admin.base import ReadOnlyAdmin
from submissions.models import Delivery, Notice, Webhook


@admin.register(Notice)
class NoticeAdmin(ReadOnlyAdmin):
    """What was told, by subject."""

    list_display = ("subject", "kind", "mail_state", "mail_attempts", "created_at")
    list_filter = ("kind", "mail_state", "created_at")
    search_fields = ("subject",)
    fields = ("subject", "kind", "mail_state", "mail_attempts", "not_before", "created_at")


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    """Where results are sent to, by host: the rest of an address may be a key."""

    list_display = ("team", "host", "active", "created_at")
    list_filter = ("active",)
    list_select_related = ("team",)
    search_fields = ("team__name", "team__slug")
    fields = ("team", "host", "active", "active_since", "created_at")
    readonly_fields = ("host",)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    """What was sent, and what came of it."""

    list_display = ("event", "team", "host", "state", "attempts", "answer", "created_at", "sent_at")
    list_filter = ("state", "event", "created_at")
    list_select_related = ("webhook__team",)
    search_fields = ("webhook__team__name", "webhook__team__slug")
    fields = (
        "event", "team", "host", "state", "attempts", "answer", "not_before", "created_at", "sent_at",
    )  # fmt: skip
    readonly_fields = ("team", "host")

    @admin.display(ordering="webhook__team__name")
    def team(self, delivery: Delivery) -> str:
        """Whose it is."""
        return str(delivery.webhook.team)

    @admin.display
    def host(self, delivery: Delivery) -> str:
        """Where it goes."""
        return delivery.webhook.host
