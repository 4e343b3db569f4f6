"""`/api/v1/notices/` and `/api/v1/teams/{slug}/webhooks/`. Doors: translate in, one domain call, translate out."""

from __future__ import annotations

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.core.http.api_errors import ErrorSerializer
from submissions.accounts.permissions import signed_in
from submissions.accounts.throttling import ChangeThrottle
from submissions.api.requests import malformed, truth
from submissions.models import Scope, Webhook
from submissions.notifications.deliveries import send_test
from submissions.notifications.inbox import inbox_of, mark_read, unread_count
from submissions.notifications.serializers import (
    DeliverySerializer,
    NewWebhookSerializer,
    NoticePageSerializer,
    NoticeSerializer,
    ReadAnswer,
    ReadRequest,
    SwitchRequest,
    WebhookDetailSerializer,
    WebhookRequest,
    WebhookSerializer,
)
from submissions.notifications.webhook_views import owned_team
from submissions.notifications.webhooks import (
    TooManyWebhooks,
    add_webhook,
    remove_webhook,
    rotate_secret,
    switch_off,
    switch_on,
)

_SLUG = OpenApiParameter(
    "slug", str, OpenApiParameter.PATH, description="The team's slug; you are an owner of it."
)
_WEBHOOK = OpenApiParameter("identifier", int, OpenApiParameter.PATH, description="The webhook's id.")
_ERRORS = {401: ErrorSerializer, 404: ErrorSerializer}
_BUSY = {429: OpenApiResponse(ErrorSerializer, "Too many changes; `Retry-After` says when to send.")}


class NoticesView(APIView):
    """What one was told."""

    required_scope = Scope.READ
    permission_classes = [IsAuthenticated]

    @extend_schema(
        summary="My notices",
        operation_id="notices_list",
        parameters=[
            OpenApiParameter("unread", bool, description="Those alone that you have not read."),
            OpenApiParameter("limit", int, description="How many, 50 if not said, 200 at most."),
            OpenApiParameter("offset", int, description="How many of the newest are passed over."),
        ],
        responses={200: NoticePageSerializer, 401: ErrorSerializer},
        tags=["notices"],
    )
    def get(self, request: Request) -> Response:
        """Your inbox, newest first, in pages (`limit`, `offset`)."""
        rows = inbox_of(signed_in(request))
        if truth(request.query_params, "unread", missing=False):
            rows = rows.filter(read_at=None)
        pagination = LimitOffsetPagination()
        pagination.default_limit, pagination.max_limit = 50, 200
        page = pagination.paginate_queryset(rows, request, view=self) or []
        written = NoticeSerializer(page, many=True, context={"request": request}).data
        answer = pagination.get_paginated_response(written)
        answer.data["unread"] = unread_count(signed_in(request))
        return answer


class ReadView(APIView):
    """Mark as read."""

    required_scope = Scope.MANAGE
    permission_classes = [IsAuthenticated]

    @extend_schema(
        summary="Mark notices as read",
        request=ReadRequest,
        responses={200: ReadAnswer, 400: ErrorSerializer, 401: ErrorSerializer},
        tags=["notices"],
    )
    def post(self, request: Request) -> Response:
        """Those whose `id` is sent, or all of them."""
        person = signed_in(request)
        marked = mark_read(person, ReadRequest.read(request)["id"])
        return Response({"marked": marked, "unread": unread_count(person)})


class WebhooksView(APIView):
    """A team's webhooks."""

    required_scope = {"GET": Scope.READ, "POST": Scope.MANAGE}
    permission_classes = [IsAuthenticated]

    def get_throttles(self) -> list[ChangeThrottle]:  # type: ignore[override]
        """Only changes are counted."""
        return [ChangeThrottle()] if self.request.method == "POST" else []

    @extend_schema(
        summary="A team's webhooks",
        operation_id="webhooks_list",
        parameters=[_SLUG],
        responses={200: WebhookSerializer(many=True), **_ERRORS},
        tags=["webhooks"],
    )
    def get(self, request: Request, slug: str) -> Response:
        """Where finished and rescored results are sent to. For owners of the team."""
        rows = Webhook.objects.filter(team=owned_team(request.user, slug))
        return Response(WebhookSerializer(rows, many=True).data)

    @extend_schema(
        summary="Add a webhook",
        operation_id="webhooks_create",
        parameters=[_SLUG],
        request=WebhookRequest,
        responses={201: NewWebhookSerializer, 400: ErrorSerializer, **_ERRORS, **_BUSY},
        tags=["webhooks"],
    )
    def post(self, request: Request, slug: str) -> Response:
        """Have finished and rescored results sent to an address. The secret is in this answer alone."""
        team, given = owned_team(request.user, slug), WebhookRequest.read(request)
        try:
            added = add_webhook(team, given["url"], signed_in(request))
        except TooManyWebhooks as error:
            raise malformed("webhook", str(error)) from error
        return Response(NewWebhookSerializer(added).data, status=status.HTTP_201_CREATED)


class _OneWebhook(APIView):
    """A call about one webhook, which exists only for owners of its team."""

    permission_classes = [IsAuthenticated]

    def get_throttles(self) -> list[ChangeThrottle]:  # type: ignore[override]
        """Only changes are counted."""
        return [] if self.request.method == "GET" else [ChangeThrottle()]

    def find(self, request: Request, slug: str, identifier: int) -> Webhook:
        """The webhook. Raises Http404."""
        return get_object_or_404(Webhook, pk=identifier, team=owned_team(request.user, slug))


class WebhookView(_OneWebhook):
    """One webhook."""

    required_scope = {"GET": Scope.READ, "PATCH": Scope.MANAGE, "DELETE": Scope.MANAGE}

    @extend_schema(
        summary="A webhook and what was sent to it",
        operation_id="webhooks_retrieve",
        parameters=[_SLUG, _WEBHOOK],
        responses={200: WebhookDetailSerializer, **_ERRORS},
        tags=["webhooks"],
    )
    def get(self, request: Request, slug: str, identifier: int) -> Response:
        """The last messages, with what came of each."""
        return Response(WebhookDetailSerializer(self.find(request, slug, identifier)).data)

    @extend_schema(
        summary="Switch a webhook on or off",
        parameters=[_SLUG, _WEBHOOK],
        request=SwitchRequest,
        responses={200: WebhookDetailSerializer, 400: ErrorSerializer, **_ERRORS, **_BUSY},
        tags=["webhooks"],
    )
    def patch(self, request: Request, slug: str, identifier: int) -> Response:
        """Set `active` to true or false."""
        found = self.find(request, slug, identifier)
        (switch_on if SwitchRequest.read(request)["active"] else switch_off)(found)
        found.refresh_from_db()
        return Response(WebhookDetailSerializer(found).data)

    @extend_schema(
        summary="Remove a webhook",
        operation_id="webhooks_destroy",
        parameters=[_SLUG, _WEBHOOK],
        responses={204: None, **_ERRORS, **_BUSY},
        tags=["webhooks"],
    )
    def delete(self, request: Request, slug: str, identifier: int) -> Response:
        """Send nothing more to it, and forget what was sent."""
        remove_webhook(self.find(request, slug, identifier))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RotateView(_OneWebhook):
    """A new secret."""

    required_scope = Scope.MANAGE

    @extend_schema(
        summary="Give a webhook a new secret",
        parameters=[_SLUG, _WEBHOOK],
        request=None,
        responses={200: NewWebhookSerializer, **_ERRORS, **_BUSY},
        tags=["webhooks"],
    )
    def post(self, request: Request, slug: str, identifier: int) -> Response:
        """It signs all that is sent from now on. It is in this answer alone."""
        found = self.find(request, slug, identifier)
        rotate_secret(found)
        return Response(NewWebhookSerializer(found).data)


class TestView(_OneWebhook):
    """A test."""

    required_scope = Scope.MANAGE

    @extend_schema(
        summary="Test a webhook",
        parameters=[_SLUG, _WEBHOOK],
        request=None,
        responses={202: DeliverySerializer, **_ERRORS, **_BUSY},
        tags=["webhooks"],
    )
    def post(self, request: Request, slug: str, identifier: int) -> Response:
        """Send an event `test`; the webhook's own call says what came of it."""
        sent = send_test(self.find(request, slug, identifier))
        return Response(DeliverySerializer(sent).data, status=status.HTTP_202_ACCEPTED)
