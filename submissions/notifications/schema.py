"""What the API's calls about notices and webhooks take and answer, described for its documentation."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from submissions.models import NoticeKind


class NoticeSerializer(serializers.Serializer[Any]):
    """Something that you were told."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=NoticeKind.choices)
    subject = serializers.CharField()
    text = serializers.CharField()
    url = serializers.URLField(allow_null=True, help_text="Where to read more.")
    at = serializers.DateTimeField()
    read = serializers.BooleanField()


class NoticePageSerializer(serializers.Serializer[Any]):
    """A page of notices."""

    count = serializers.IntegerField(help_text="On all pages.")
    unread = serializers.IntegerField(help_text="How many you have not read, up to 100.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = NoticeSerializer(many=True)


class ReadRequest(serializers.Serializer[Any]):
    """Which notices you have read."""

    id = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="May repeat; left out: all of them."
    )


class ReadAnswer(serializers.Serializer[Any]):
    """What was marked."""

    marked = serializers.IntegerField(help_text="How many were unread before.")
    unread = serializers.IntegerField()


class WebhookSerializer(serializers.Serializer[Any]):
    """An address that finished and rescored results are sent to."""

    id = serializers.IntegerField()
    url = serializers.URLField()
    active = serializers.BooleanField(help_text="False: it took nothing for days, or was switched off.")
    created = serializers.DateTimeField()


class DeliverySerializer(serializers.Serializer[Any]):
    """A message to a webhook."""

    id = serializers.CharField(help_text="As in webhook-id.")
    event = serializers.CharField()
    state = serializers.ChoiceField(choices=["waiting", "sent", "failed"])
    attempts = serializers.IntegerField()
    answer = serializers.CharField(help_text="What came of the last attempt.")
    at = serializers.DateTimeField()


class WebhookDetailSerializer(WebhookSerializer):
    """The same with the last messages."""

    deliveries = DeliverySerializer(many=True, help_text="The last 50.")


class NewWebhookSerializer(WebhookSerializer):
    """The same with its secret, which is shown this once."""

    secret = serializers.CharField(help_text="The key of the signature. Keep it: it is never shown again.")


class WebhookRequest(serializers.Serializer[Any]):
    """A new webhook."""

    url = serializers.URLField(max_length=500, help_text="https, port 443 or 8443.")


class SwitchRequest(serializers.Serializer[Any]):
    """Whether a webhook is sent to."""

    active = serializers.BooleanField(help_text="true: send to it again. To stop for good, delete it.")
