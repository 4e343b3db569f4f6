"""`/api/v1/quotas/`: what the person may still submit where judgements are hidden."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.api.fields import MomentField
from leaderboard.core.http.api_errors import ErrorSerializer
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.http.query_parameters import reads
from leaderboard.models import Dataset, User
from submissions.accounts.permissions import teams_of
from submissions.api.serializers import QuotaSerializer
from submissions.models import Scope
from submissions.quotas.counting import quotas_for
from submissions.quotas.ledger import refusals_of


class RefusalsSerializer(serializers.Serializer[Any]):
    """Files for hidden datasets that were refused today: so many a day cost nothing, and no more are read."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField()
    left = serializers.IntegerField()
    resets_at = MomentField(help_text="UTC.")


class QuotasSerializer(serializers.Serializer[Any]):
    """What is left of every quota."""

    quotas = QuotaSerializer(many=True, help_text="One for each hidden dataset and each of your teams.")
    refusals = RefusalsSerializer()


@reads("dataset")
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
            known = Dataset.objects.open_for_runs().values_list("slug", flat=True)
            if wanted not in known:
                raise UnknownChoice("dataset", wanted, known.order_by("slug"))
            datasets = datasets.filter(slug=wanted)
        found = quotas_for(person, list(teams_of(person)), datasets)
        answer = {
            "quotas": [each for quotas in found.values() for each in quotas],
            "refusals": refusals_of(person),
        }
        return Response(QuotasSerializer(answer).data)
