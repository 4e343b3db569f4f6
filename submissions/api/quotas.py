"""`/api/v1/quotas/`: what the person may still submit where judgements are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.models import Dataset, User
from submissions.accounts.permissions import teams_of
from submissions.api.schema import ErrorSerializer, QuotaSerializer
from submissions.models import Scope
from submissions.quotas.counting import Quota, Window
from submissions.quotas.refused_files import refusals_of
from submissions.quotas.shown import Charged, quotas_for


class RefusalsSerializer(serializers.Serializer[Any]):
    """Files for hidden datasets that were refused today: so many a day cost nothing, and no more are read."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField()
    left = serializers.IntegerField()
    resets_at = serializers.DateTimeField(help_text="UTC.")


class QuotasSerializer(serializers.Serializer[Any]):
    """What is left of every quota."""

    quotas = QuotaSerializer(many=True, help_text="One for each hidden dataset and each of your teams.")
    refusals = RefusalsSerializer()


class QuotasView(APIView):
    """How often one may still submit."""

    required_scope = Scope.READ
    permission_classes = [IsAuthenticated]

    @extend_schema(
        summary="My quotas",
        operation_id="quotas_list",
        parameters=[OpenApiParameter("dataset", str, description="Slug: of this dataset alone.")],
        responses={200: QuotasSerializer, 401: ErrorSerializer},
        tags=["submissions"],
    )
    def get(self, request: Request) -> Response:
        """How many submissions you and your teams have used, and have left, where judgements are hidden.

        Counted by day and calendar month, UTC. Datasets that are not limited are not listed.
        """
        person = request.user
        if not isinstance(person, User):
            raise PermissionDenied
        datasets = Dataset.objects.open_for_runs().filter(hidden=True)
        if wanted := request.query_params.get("dataset"):
            datasets = datasets.filter(slug=wanted)
        found = quotas_for(person, list(teams_of(person)), datasets)
        refusals = refusals_of(person)
        return Response(
            {
                "quotas": quota_answers([quota for quotas in found.values() for quota in quotas]),
                "refusals": {
                    "used": refusals.used,
                    "limit": refusals.limit,
                    "left": refusals.left,
                    "resets_at": refusals.resets_at.isoformat(),
                },
            }
        )


def quota_answers(quotas: Sequence[Quota]) -> list[dict[str, Any]]:
    """Quotas as the API answers them; `left` of null is as many as wanted."""
    return [
        {
            "dataset": quota.dataset.slug,
            "team": quota.team.slug if quota.team else None,
            "awaits_approval": quota.awaits_approval,
            "left": quota.left,
            "resets_at": quota.resets_at.isoformat(),
            "day": _window(quota.day),
            "month": _window(quota.month),
        }
        for quota in quotas
    ]


def _window(window: Window) -> dict[str, Any]:
    return {
        "used": window.used,
        "by_person": window.by_person,
        "by_team": window.by_team,
        "limit": window.limit,
        "left": window.left,
        "resets_at": window.resets_at.isoformat(),
    }


def charge_answers(charges: Sequence[Charged]) -> list[dict[str, Any]]:
    """What a submission cost, by dataset."""
    return [
        {
            "dataset": charge.dataset.slug,
            "counted": not charge.refunded,
            "refund_reason": charge.refund_reason,
            "quota": quota_answers([charge.quota])[0] if charge.quota else None,
        }
        for charge in charges
    ]
