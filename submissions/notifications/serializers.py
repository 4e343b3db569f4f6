"""What the API's calls about notices and webhooks take and answer: these serializers read and write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from leaderboard.api.fields import AddressField, Answer, IsSetField, MomentField
from leaderboard.core.text.numbers import parse_number
from submissions.api.requests import FlagField, RequestSerializer, list_of, malformed
from submissions.models import NoticeKind
from submissions.notifications.forms import WebhookForm


class NoticeSerializer(Answer):
    """Something that you were told."""

    id = serializers.IntegerField(source="pk")
    kind = serializers.ChoiceField(choices=NoticeKind.choices)
    subject = serializers.CharField()
    text = serializers.CharField()
    url = AddressField(source="path", allow_null=True, help_text="Where to read more.")
    at = MomentField(source="created_at")
    read = IsSetField(source="read_at")


class NoticePageSerializer(Answer):
    """A page of notices."""

    count = serializers.IntegerField(help_text="On all pages.")
    unread = serializers.IntegerField(help_text="How many you have not read, up to 100.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = NoticeSerializer(many=True)


class ReadRequest(RequestSerializer):
    """Which notices you have read."""

    id = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="May repeat; left out: all of them."
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers, None for all. Raises ApiError."""
        numbers = [parse_number(text) for text in list_of(data, "id")]
        if None in numbers:
            raise malformed("id", "id: not the id of a notice.", "Send numbers.")
        return {"id": numbers if "id" in data else None}


class ReadAnswer(Answer):
    """What was marked."""

    marked = serializers.IntegerField(help_text="How many were unread before.")
    unread = serializers.IntegerField()


class WebhookSerializer(Answer):
    """An address that finished and rescored results are sent to."""

    id = serializers.IntegerField(source="pk")
    url = serializers.URLField()
    active = serializers.BooleanField(help_text="False: it took nothing for days, or was switched off.")
    created = MomentField(source="created_at")


class DeliverySerializer(Answer):
    """A message to a webhook."""

    id = serializers.CharField(source="body.id", help_text="As in webhook-id.")
    event = serializers.CharField()
    state = serializers.ChoiceField(choices=["waiting", "sent", "failed"])
    attempts = serializers.IntegerField()
    answer = serializers.CharField(help_text="What came of the last attempt.")
    at = MomentField(source="created_at")


class WebhookDetailSerializer(WebhookSerializer):
    """The same with the last messages."""

    deliveries = DeliverySerializer(many=True, source="latest_deliveries", help_text="The last 50.")


class NewWebhookSerializer(WebhookSerializer):
    """The same with its secret, which is shown this once."""

    secret = serializers.CharField(help_text="The key of the signature. Keep it: it is never shown again.")


class WebhookRequest(RequestSerializer):
    """A new webhook."""

    url = serializers.URLField(max_length=500, help_text="https, port 443 or 8443.")

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """As the page reads it. Raises ApiError."""
        form = WebhookForm(data)
        if not form.is_valid():
            raise malformed("webhook", str(form.errors["url"][0]))
        return form.cleaned_data


class SwitchRequest(RequestSerializer):
    """Whether a webhook is sent to."""

    active = FlagField(help_text="true: send to it again. To stop for good, delete it.")

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Whether. Raises ApiError."""
        if "active" not in data:
            raise malformed("webhook", "Send active=true or active=false.")
        return super().to_internal_value(data)
