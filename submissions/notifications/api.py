"""`/api/v1/notices/` and `/api/v1/teams/{slug}/webhooks/`. Doors: translate in, one domain call, translate out."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.core.http.api_errors import INVALID, INVALID_FIELD, ApiError, problem
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.numbers import parse_number
from submissions.accounts.permissions import signed_in
from submissions.accounts.throttling import ChangeThrottle
from submissions.api.requests import data_of, list_of, truth
from submissions.api.schema import ErrorSerializer
from submissions.models import Delivery, Notice, Scope, Webhook
from submissions.notifications.deliveries import send_test
from submissions.notifications.forms import WebhookForm
from submissions.notifications.inbox import inbox_of, mark_read, unread_count
from submissions.notifications.schema import (
    DeliverySerializer,
    NewWebhookSerializer,
    NoticePageSerializer,
    ReadAnswer,
    ReadRequest,
    SwitchRequest,
    WebhookDetailSerializer,
    WebhookRequest,
    WebhookSerializer,
)
from submissions.notifications.webhook_views import LOG_LINES, owned_team
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
        answer = pagination.get_paginated_response([_notice(row, request) for row in page])
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
        person, given = signed_in(request), list_of(data_of(request), "id")
        numbers = [number for text in given if (number := parse_number(text)) is not None]
        if len(numbers) < len(given):
            message = "id: not the id of a notice."
            raise ApiError(
                INVALID, message, problems=[problem(INVALID_FIELD.named("id"), message, "Send numbers.")]
            )
        marked = mark_read(person, numbers if "id" in data_of(request) else None)
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
        return Response([_webhook(row) for row in rows])

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
        team, form = owned_team(request.user, slug), WebhookForm(data_of(request))
        if not form.is_valid():
            raise _invalid(str(form.errors["url"][0]))
        try:
            added = add_webhook(team, form.cleaned_data["url"], signed_in(request))
        except TooManyWebhooks as error:
            raise _invalid(str(error)) from error
        return Response({**_webhook(added), "secret": added.secret}, status=status.HTTP_201_CREATED)


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
        return Response(_detail(self.find(request, slug, identifier)))

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
        if "active" not in data_of(request):
            raise _invalid("Send active=true or active=false.")
        (switch_on if truth(data_of(request), "active") else switch_off)(found)
        found.refresh_from_db()
        return Response(_detail(found))

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
        secret = rotate_secret(found)
        return Response({**_webhook(found), "secret": secret})


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
        return Response(_delivery(sent), status=status.HTTP_202_ACCEPTED)


def _invalid(message: str) -> ApiError:
    return ApiError(INVALID, message, problems=[problem(INVALID_FIELD.named("webhook"), message)])


def _notice(notice: Notice, request: Request) -> dict[str, Any]:
    return {
        "id": notice.pk,
        "kind": notice.kind,
        "subject": notice.subject,
        "text": notice.text,
        "url": absolute(request, notice.path) if notice.path else None,
        "at": notice.created_at.isoformat(),
        "read": notice.read_at is not None,
    }


def _webhook(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.pk,
        "url": webhook.url,
        "active": webhook.active,
        "created": webhook.created_at.isoformat(),
    }


def _detail(webhook: Webhook) -> dict[str, Any]:
    deliveries = webhook.deliveries.all()[:LOG_LINES]
    return {**_webhook(webhook), "deliveries": [_delivery(each) for each in deliveries]}


def _delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.body["id"],
        "event": delivery.event,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "answer": delivery.answer,
        "at": delivery.created_at.isoformat(),
    }
