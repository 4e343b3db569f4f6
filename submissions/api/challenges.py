"""`/api/v1/systems/{slug}/challenges/`: what is doubted of a system. Doors: one domain call each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import IsAuthenticatedOrReadOnly
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from evaluation.core.problems import ProblemCode
from leaderboard.api.answers import ChallengeSerializer
from leaderboard.core.http.api_errors import ApiError, ErrorSerializer, problem
from leaderboard.models import Challenge, System
from leaderboard.systems.challenges import (
    ChallengeRefused,
    challengeable_datasets,
    challenges_of,
    raise_challenge,
)
from submissions.accounts.permissions import signed_in
from submissions.accounts.throttling import ChallengeThrottle
from submissions.api.requests import RequestSerializer, require_valid
from submissions.intake.forms import ChallengeForm
from submissions.intake.system_form import seen_systems
from submissions.models import Scope

CHALLENGE_REFUSED = ProblemCode("challenge_refused", "The system cannot be challenged so: it was already, or by its "
    "own team, or the text is missing.", "The message says what would be right.")  # fmt: skip

_SLUG = OpenApiParameter("slug", str, OpenApiParameter.PATH, description="As in the address of its page.")


class ChallengeRequest(RequestSerializer):
    """A doubt of what a system says of itself."""

    claim = serializers.ChoiceField(choices=Challenge.Claim.choices)
    text = serializers.CharField(help_text="Why: what can be checked. Public; Markdown.")
    dataset = serializers.CharField(required=False, help_text="Slug, where it is about one dataset.")

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """As the page reads it. Raises ApiError."""
        slug = self.context["request"].parser_context["kwargs"]["slug"]
        form = ChallengeForm(
            data, datasets=challengeable_datasets(get_object_or_404(seen_systems(), slug=slug))
        )
        require_valid(form)
        return form.cleaned_data


class ChallengesSerializer(serializers.Serializer[Any]):
    """A system's challenges."""

    challenges = ChallengeSerializer(many=True)


class ChallengesView(APIView):
    """The challenges of a system."""

    required_scope = {"GET": Scope.READ, "POST": Scope.MANAGE}
    permission_classes = [IsAuthenticatedOrReadOnly]

    def get_throttles(self) -> list[BaseThrottle]:
        """Only raising one counts."""
        return [ChallengeThrottle()] if self.request.method == "POST" else []

    @extend_schema(
        summary="What is doubted of a system",
        parameters=[_SLUG],
        responses={200: ChallengesSerializer, 404: ErrorSerializer},
        tags=["systems"],
    )
    def get(self, request: Request, slug: str) -> Response:
        """Every challenge on record, the newest first, with its decision."""
        return Response(_answer(get_object_or_404(seen_systems(), slug=slug)))

    @extend_schema(
        summary="Challenge a system",
        parameters=[_SLUG],
        request=ChallengeRequest,
        responses={
            201: ChallengesSerializer,
            400: ErrorSerializer,
            401: ErrorSerializer,
            404: ErrorSerializer,
            429: OpenApiResponse(ErrorSerializer, "Too many challenges; `Retry-After` says when to send."),
        },
        tags=["systems"],
    )
    def post(self, request: Request, slug: str) -> Response:
        """Doubt what the system says of itself. A curator settles it; until then boards mark the system."""
        system = get_object_or_404(seen_systems(), slug=slug)
        person = signed_in(request)
        try:
            raise_challenge(system, person, **ChallengeRequest.read(request))
        except ChallengeRefused as error:
            raise ApiError(
                CHALLENGE_REFUSED, str(error), problems=[problem(CHALLENGE_REFUSED, str(error))]
            ) from error
        return Response(_answer(system), status=status.HTTP_201_CREATED)


def _answer(system: System) -> dict[str, Any]:
    return ChallengesSerializer({"challenges": challenges_of(system.pk)}).data
