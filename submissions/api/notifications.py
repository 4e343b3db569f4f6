"""API views of `/api/v1/notices/` and `/api/v1/teams/{slug}/webhooks/`.

The serializers define the schema; they read requests and write responses.
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
from submissions.accounts.permissions import owned_team, require_user
from submissions.accounts.throttling import ChangeThrottle
from submissions.api import requests
from submissions.api.schema import call
from submissions.models import NoticeKind, Scope, Webhook
from submissions.notifications import webhooks
from submissions.notifications.inbox import get_inbox, mark_read, unread_count


class NoticeSerializer(Answer):
    """A notice in a user's inbox."""

    id = integer_field(source="pk")
    kind = serializers.ChoiceField(choices=NoticeKind.choices)
    subject = text_field()
    text = text_field()
    url = AddressField(source="path", allow_null=True, help_text="Page with details.")
    at = MomentField(source="created_at")
    read = IsSetField(source="read_at")


class NoticePageSerializer(requests.PageSerializer):
    """A page of notices."""

    unread = integer_field("Number of unread notices, at most 100.")
    results = NoticeSerializer(many=True)


class ReadRequest(requests.RequestSerializer):
    """Ids of the notices to mark as read."""

    id = serializers.ListField(
        child=serializers.IntegerField(),
        required=False,
        help_text="Ids of notices; may be repeated. Default: all notices.",
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the list of ids as `id`, or None for all notices. Raises ApiError if one is not a number."""
        numbers = [parse_number(text) for text in requests.get_list(data, "id")]
        if None in numbers:
            raise requests.field_error("id", "id: not the id of a notice.", "Send the numeric ids of your notices.")
        return {"id": numbers if "id" in data else None}


class ReadAnswer(Answer):
    """Result of marking notices as read."""

    marked = integer_field("Number of notices that were unread before.")
    unread = integer_field()


class WebhookSerializer(Answer):
    """A URL that receives finished and rescored results."""

    id = integer_field(source="pk")
    url = serializers.URLField()
    active = serializers.BooleanField(
        help_text="False if deliveries failed for days or an owner deactivated the webhook."
    )
    created = MomentField(source="created_at")


class DeliverySerializer(Answer):
    """A message to a webhook and its delivery state."""

    id = text_field("Value of the webhook-id header.", "body.id")
    event = text_field()
    state = serializers.ChoiceField(choices=["waiting", "sent", "failed"])
    attempts = integer_field()
    answer = text_field("Result of the last attempt.")
    at = MomentField(source="created_at")


class WebhookDetailSerializer(WebhookSerializer):
    """A webhook with its latest messages."""

    deliveries = DeliverySerializer(many=True, source="latest_deliveries", help_text="The last 50.")


class NewWebhookSerializer(WebhookSerializer):
    """A webhook with its secret, which is shown only once."""

    secret = text_field("Signing key. Store it now: it is not shown again.")


class WebhookRequest(requests.RequestSerializer):
    """A new webhook."""

    url = serializers.URLField(
        max_length=500, help_text="An https URL on port 443 or 8443, such as https://example.org/hooks/results."
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated `url`. Raises ApiError if the site does not accept the URL."""
        form = webhooks.WebhookForm(data)
        if not form.is_valid():
            raise requests.field_error("webhook", str(form.errors["url"][0]))
        return form.cleaned_data


class SwitchRequest(requests.RequestSerializer):
    """Request to activate or deactivate a webhook."""

    active = requests.FlagField(
        help_text="Set to true to resume deliveries. To stop them permanently, delete the webhook."
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return `active`. Raises ApiError if it is missing."""
        if "active" not in data:
            raise requests.field_error("webhook", "Send active=true or active=false.")
        return super().to_internal_value(data)


_UNREAD = OpenApiParameter("unread", bool, description="Return only unread notices.")


@reads("unread", "limit", "offset")
class NoticesView(APIView):
    """API view of a user's notices."""

    required_scope = Scope.READ
    permission_classes = [IsAuthenticated]

    @call(
        "notices",
        "My notices",
        {200: NoticePageSerializer},
        401,
        operation_id="notices_list",
        parameters=[_UNREAD, *requests.PAGE_PARAMETERS],
    )
    def get(self, request: Request) -> Response:
        """List your notices, newest first, in pages (`limit`, `offset`)."""
        rows = get_inbox(require_user(request))
        if requests.parse_boolean(request.query_params, "unread", default=False):
            rows = rows.filter(read_at=None)
        pagination = requests.Pages()
        page = pagination.paginate_queryset(rows, request, view=self) or []
        notices = NoticeSerializer(page, many=True, context={"request": request}).data
        answer = pagination.get_paginated_response(notices)
        answer.data["unread"] = unread_count(require_user(request))
        return answer


class ReadView(APIView):
    """API view that marks notices as read."""

    required_scope = Scope.MANAGE
    permission_classes = [IsAuthenticated]

    @call("notices", "Mark notices as read", {200: ReadAnswer}, 400, 401, request=ReadRequest)
    def post(self, request: Request) -> Response:
        """Mark the notices with the given `id`s as read, or all of them without `id`."""
        person = require_user(request)
        return Response({"marked": mark_read(person, ReadRequest.read(request)["id"]), "unread": unread_count(person)})


_SLUG = OpenApiParameter("slug", str, OpenApiParameter.PATH, description="Slug of a team that you own.")
_WEBHOOK = OpenApiParameter("identifier", int, OpenApiParameter.PATH, description="The webhook's id.")


def _webhook_call(summary: str, answers: Mapping[int, Any], *codes: int, changes: bool = True, **options: Any) -> Any:
    """Return the schema decorator of a webhook call. Calls with `changes` are throttled and may answer 429.

    `answers` are successful responses by status, `codes` statuses of errors in addition to 401 and 404, and `options`
    other arguments of `schema.call`.
    """
    options = {"parameters": [_SLUG, _WEBHOOK], "remarks": requests.TOO_MANY_CHANGES if changes else None, **options}
    return call("webhooks", summary, answers, *codes, 401, 404, **options)


class _WebhookCall(APIView):
    """Base of the webhook views, which only owners of the team can access."""

    permission_classes = [IsAuthenticated]

    def get_throttles(self) -> list[ChangeThrottle]:  # type: ignore[override]
        return [] if self.request.method in SAFE_METHODS else [ChangeThrottle()]

    def find(self, request: Request, slug: str, identifier: int) -> Webhook:
        return get_object_or_404(Webhook, pk=identifier, team=owned_team(request.user, slug))


class WebhooksView(_WebhookCall):
    """API view of a team's webhooks."""

    required_scope = {"GET": Scope.READ, "POST": Scope.MANAGE}

    @_webhook_call(
        "A team's webhooks",
        {200: WebhookSerializer(many=True)},
        changes=False,
        parameters=[_SLUG],
        operation_id="webhooks_list",
    )
    def get(self, request: Request, slug: str) -> Response:
        """List the URLs that receive finished and rescored results. Only for owners of the team."""
        return Response(WebhookSerializer(Webhook.objects.filter(team=owned_team(request.user, slug)), many=True).data)

    @_webhook_call(
        "Add a webhook",
        {201: NewWebhookSerializer},
        400,
        parameters=[_SLUG],
        request=WebhookRequest,
        operation_id="webhooks_create",
    )
    def post(self, request: Request, slug: str) -> Response:
        """Add a URL that receives finished and rescored results. Only this response contains the secret."""
        team, values = owned_team(request.user, slug), WebhookRequest.read(request)
        try:
            webhook = webhooks.add_webhook(team, values["url"], require_user(request))
        except webhooks.TooManyWebhooks as error:
            raise requests.field_error("webhook", str(error)) from error
        return Response(NewWebhookSerializer(webhook).data, status=status.HTTP_201_CREATED)


class WebhookView(_WebhookCall):
    """API view of one webhook."""

    required_scope = {"GET": Scope.READ, "PATCH": Scope.MANAGE, "DELETE": Scope.MANAGE}

    @_webhook_call(
        "A webhook and its messages", {200: WebhookDetailSerializer}, changes=False, operation_id="webhooks_retrieve"
    )
    def get(self, request: Request, slug: str, identifier: int) -> Response:
        """Return a webhook with its latest messages and their delivery state."""
        return Response(WebhookDetailSerializer(self.find(request, slug, identifier)).data)

    @_webhook_call("Activate or deactivate a webhook", {200: WebhookDetailSerializer}, 400, request=SwitchRequest)
    def patch(self, request: Request, slug: str, identifier: int) -> Response:
        """Set `active` to true or false."""
        webhook = self.find(request, slug, identifier)
        (webhooks.switch_on if SwitchRequest.read(request)["active"] else webhooks.switch_off)(webhook)
        webhook.refresh_from_db()
        return Response(WebhookDetailSerializer(webhook).data)

    @_webhook_call("Delete a webhook", {204: None}, operation_id="webhooks_destroy")
    def delete(self, request: Request, slug: str, identifier: int) -> Response:
        """Delete a webhook and its messages. No further messages are sent."""
        self.find(request, slug, identifier).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


class RotateView(_WebhookCall):
    """API view that replaces a webhook's secret."""

    required_scope = Scope.MANAGE

    @_webhook_call("Replace a webhook's secret", {200: NewWebhookSerializer}, request=None)
    def post(self, request: Request, slug: str, identifier: int) -> Response:
        """Replace the secret that signs messages. Only this response contains the new secret."""
        webhook = self.find(request, slug, identifier)
        webhooks.rotate_secret(webhook)
        return Response(NewWebhookSerializer(webhook).data)


class TestView(_WebhookCall):
    """API view that sends a test event."""

    required_scope = Scope.MANAGE

    @_webhook_call("Test a webhook", {202: DeliverySerializer}, request=None)
    def post(self, request: Request, slug: str, identifier: int) -> Response:
        """Send a `test` event; retrieve the webhook to see the result."""
        delivery = webhooks.send_test(self.find(request, slug, identifier))
        return Response(DeliverySerializer(delivery).data, status=status.HTTP_202_ACCEPTED)
