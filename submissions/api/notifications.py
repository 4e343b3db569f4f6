"""`/api/v1/notices/` and `/api/v1/teams/{slug}/webhooks/`: each call makes one call of the domain.

The serializers are the schema: they read what calls take and write what calls answer.
"""

from collections.abc import Mapping
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.api.fields import AddressField, Answer, IsSetField, MomentField, integer_field, text_field
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.text.numbers import parse_number
from submissions.accounts.permissions import owned_team, signed_in
from submissions.accounts.throttling import ChangeThrottle
from submissions.api import requests
from submissions.api.schema import call
from submissions.models import NoticeKind, Scope, Webhook
from submissions.notifications import webhooks
from submissions.notifications.inbox import get_inbox, mark_read, unread_count


class NoticeSerializer(Answer):
    """Something that you were told."""

    id = integer_field(source="pk")
    kind = serializers.ChoiceField(choices=NoticeKind.choices)
    subject = text_field()
    text = text_field()
    url = AddressField(source="path", allow_null=True, help_text="Where to read more.")
    at = MomentField(source="created_at")
    read = IsSetField(source="read_at")


class NoticePageSerializer(requests.PageSerializer):
    """A page of notices."""

    unread = integer_field("How many you have not read, up to 100.")
    results = NoticeSerializer(many=True)


class ReadRequest(requests.RequestSerializer):
    """Which notices you have read."""

    id = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="May repeat; left out: all of them."
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers, None for all. Raises ApiError."""
        numbers = [parse_number(text) for text in requests.list_of(data, "id")]
        if None in numbers:
            raise requests.malformed("id", "id: not the id of a notice.", "Send numbers.")
        return {"id": numbers if "id" in data else None}


class ReadAnswer(Answer):
    """What was marked."""

    marked = integer_field("How many were unread before.")
    unread = integer_field()


class WebhookSerializer(Answer):
    """An address that finished and rescored results are sent to."""

    id = integer_field(source="pk")
    url = serializers.URLField()
    active = serializers.BooleanField(help_text="False: it took nothing for days, or was switched off.")
    created = MomentField(source="created_at")


class DeliverySerializer(Answer):
    """A message to a webhook."""

    id = text_field("As in webhook-id.", "body.id")
    event = text_field()
    state = serializers.ChoiceField(choices=["waiting", "sent", "failed"])
    attempts = integer_field()
    answer = text_field("What came of the last attempt.")
    at = MomentField(source="created_at")


class WebhookDetailSerializer(WebhookSerializer):
    """The same with the last messages."""

    deliveries = DeliverySerializer(many=True, source="latest_deliveries", help_text="The last 50.")


class NewWebhookSerializer(WebhookSerializer):
    """The same with its secret, which is shown this once."""

    secret = text_field("The key of the signature. Keep it: it is never shown again.")


class WebhookRequest(requests.RequestSerializer):
    """A new webhook."""

    url = serializers.URLField(max_length=500, help_text="https, port 443 or 8443.")

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """As the page reads it. Raises ApiError."""
        form = webhooks.WebhookForm(data)
        if not form.is_valid():
            raise requests.malformed("webhook", str(form.errors["url"][0]))
        return form.cleaned_data


class SwitchRequest(requests.RequestSerializer):
    """Whether a webhook is sent to."""

    active = requests.FlagField(help_text="true: send to it again. To stop for good, delete it.")

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Whether. Raises ApiError."""
        if "active" not in data:
            raise requests.malformed("webhook", "Send active=true or active=false.")
        return super().to_internal_value(data)


_UNREAD = OpenApiParameter("unread", bool, description="Those alone that you have not read.")


@reads("unread", "limit", "offset")
class NoticesView(APIView):
    """What one was told."""

    required_scope = Scope.READ
    permission_classes = [IsAuthenticated]

    @call(
        "notices", "My notices", {200: NoticePageSerializer}, 401,
        operation_id="notices_list", parameters=[_UNREAD, *requests.PAGE_PARAMETERS],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Your inbox, newest first, in pages (`limit`, `offset`)."""
        rows = get_inbox(signed_in(request))
        if requests.parse_boolean(request.query_params, "unread", missing=False):
            rows = rows.filter(read_at=None)
        pagination = requests.Pages()
        page = pagination.paginate_queryset(rows, request, view=self) or []
        written = NoticeSerializer(page, many=True, context={"request": request}).data
        answer = pagination.get_paginated_response(written)
        answer.data["unread"] = unread_count(signed_in(request))
        return answer


class ReadView(APIView):
    """Mark as read."""

    required_scope = Scope.MANAGE
    permission_classes = [IsAuthenticated]

    @call("notices", "Mark notices as read", {200: ReadAnswer}, 400, 401, request=ReadRequest)
    def post(self, request: Request) -> Response:
        """Those whose `id` is sent, or all of them."""
        person = signed_in(request)
        marked = mark_read(person, ReadRequest.read(request)["id"])
        return Response({"marked": marked, "unread": unread_count(person)})


_SLUG = OpenApiParameter(
    "slug", str, OpenApiParameter.PATH, description="The team's slug; you are an owner of it."
)
_WEBHOOK = OpenApiParameter("identifier", int, OpenApiParameter.PATH, description="The webhook's id.")


def _schema(
    summary: str, answers: Mapping[int, Any], *codes: int, changes: bool = True, **options: Any
) -> Any:
    """Return the schema of a call about webhooks."""
    options = {
        "parameters": [_SLUG, _WEBHOOK],
        "remarks": requests.TOO_MANY_CHANGES if changes else None,
        **options,
    }
    return call("webhooks", summary, answers, *codes, 401, 404, **options)


class _WebhookCall(APIView):
    """A call about webhooks, which exist only for owners of their team."""

    permission_classes = [IsAuthenticated]

    def get_throttles(self) -> list[ChangeThrottle]:  # type: ignore[override]
        """Only changes are counted."""
        return [] if self.request.method in SAFE_METHODS else [ChangeThrottle()]

    def find(self, request: Request, slug: str, identifier: int) -> Webhook:
        """Return the webhook. Raises Http404."""
        return get_object_or_404(Webhook, pk=identifier, team=owned_team(request.user, slug))


class WebhooksView(_WebhookCall):
    """A team's webhooks."""

    required_scope = {"GET": Scope.READ, "POST": Scope.MANAGE}

    @_schema(
        "A team's webhooks",
        {200: WebhookSerializer(many=True)},
        changes=False,
        parameters=[_SLUG],
        operation_id="webhooks_list",
    )
    def get(self, request: Request, slug: str) -> Response:
        """Where finished and rescored results are sent to. For owners of the team."""
        rows = Webhook.objects.filter(team=owned_team(request.user, slug))
        return Response(WebhookSerializer(rows, many=True).data)

    @_schema(
        "Add a webhook",
        {201: NewWebhookSerializer},
        400,
        parameters=[_SLUG],
        request=WebhookRequest,
        operation_id="webhooks_create",
    )
    def post(self, request: Request, slug: str) -> Response:
        """Have finished and rescored results sent to an address. The secret is in this answer alone."""
        team, values = owned_team(request.user, slug), WebhookRequest.read(request)
        try:
            added = webhooks.add_webhook(team, values["url"], signed_in(request))
        except webhooks.TooManyWebhooks as error:
            raise requests.malformed("webhook", str(error)) from error
        return Response(NewWebhookSerializer(added).data, status=status.HTTP_201_CREATED)


class WebhookView(_WebhookCall):
    """One webhook."""

    required_scope = {"GET": Scope.READ, "PATCH": Scope.MANAGE, "DELETE": Scope.MANAGE}

    @_schema(
        "A webhook and what was sent to it",
        {200: WebhookDetailSerializer},
        changes=False,
        operation_id="webhooks_retrieve",
    )
    def get(self, request: Request, slug: str, identifier: int) -> Response:
        """The last messages, with what came of each."""
        return Response(WebhookDetailSerializer(self.find(request, slug, identifier)).data)

    @_schema("Switch a webhook on or off", {200: WebhookDetailSerializer}, 400, request=SwitchRequest)
    def patch(self, request: Request, slug: str, identifier: int) -> Response:
        """Set `active` to true or false."""
        webhook = self.find(request, slug, identifier)
        (webhooks.switch_on if SwitchRequest.read(request)["active"] else webhooks.switch_off)(webhook)
        webhook.refresh_from_db()
        return Response(WebhookDetailSerializer(webhook).data)

    @_schema("Remove a webhook", {204: None}, operation_id="webhooks_destroy")
    def delete(self, request: Request, slug: str, identifier: int) -> Response:
        """Send nothing more to it, and forget what was sent."""
        self.find(request, slug, identifier).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


class RotateView(_WebhookCall):
    """A new secret."""

    required_scope = Scope.MANAGE

    @_schema("Give a webhook a new secret", {200: NewWebhookSerializer}, request=None)
    def post(self, request: Request, slug: str, identifier: int) -> Response:
        """It signs all that is sent from now on. It is in this answer alone."""
        webhook = self.find(request, slug, identifier)
        webhooks.rotate_secret(webhook)
        return Response(NewWebhookSerializer(webhook).data)


class TestView(_WebhookCall):
    """A test."""

    required_scope = Scope.MANAGE

    @_schema("Test a webhook", {202: DeliverySerializer}, request=None)
    def post(self, request: Request, slug: str, identifier: int) -> Response:
        """Send an event `test`; the webhook's own call says what came of it."""
        sent = webhooks.send_test(self.find(request, slug, identifier))
        return Response(DeliverySerializer(sent).data, status=status.HTTP_202_ACCEPTED)
