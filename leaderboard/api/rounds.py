"""The read API of rounds: phases, times, what is asked, how many runs have come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from leaderboard.api.fields import AddressField, Answer, ReadView
from leaderboard.models import Round
from leaderboard.rounds.lifecycle import count_runs, describe_round, listed_datasets, listed_rounds


class RoundSerializer(Answer):
    """A round. All times are UTC."""

    slug = serializers.CharField()
    name = serializers.CharField()
    phase = serializers.ChoiceField(choices=["before opening", "open", "closed", "revealed"])
    next = serializers.CharField(help_text="What happens next, and in how long, in words.")
    dataset = serializers.CharField(allow_null=True, help_text="Slug; null for a round of a benchmark.")
    benchmark = serializers.CharField(allow_null=True, help_text="Slug; null for a round of one dataset.")
    datasets = serializers.ListField(child=serializers.CharField(), help_text="All that it takes runs for.")
    opens_at = serializers.DateTimeField()
    closes_at = serializers.DateTimeField()
    reveals_at = serializers.DateTimeField(help_text="From then on its curator may reveal the results.")
    revealed_at = serializers.DateTimeField(allow_null=True)
    runs_per_team = serializers.IntegerField()
    visible_per_team = serializers.IntegerField(help_text="Of a competition: results of a team on the board.")
    takes_late = serializers.BooleanField()
    per_topic_at_reveal = serializers.BooleanField()
    runs = serializers.IntegerField(help_text="Submissions that came in time and passed.")
    teams = serializers.IntegerField()
    late = serializers.IntegerField(help_text="Submissions that came late.")
    description = serializers.CharField(help_text="The rules, as Markdown.")
    url = AddressField()


class RoundListSerializer(Answer):
    """Every round."""

    rounds = RoundSerializer(many=True)


def _answers(rows: Iterable[Round], request: Request) -> list[dict[str, Any]]:
    came, now = count_runs(rows), timezone.now()
    answers = [
        {
            **vars(row),
            **asdict(came[row.pk]),
            "phase": description.phase.value,
            "next": description.next,
            "dataset": row.dataset.slug if row.dataset else None,
            "benchmark": row.benchmark.slug if row.benchmark else None,
            "datasets": [dataset.slug for dataset in listed_datasets(row)],
            "url": row.get_absolute_url(),
        }
        for row in rows
        for description in [describe_round(row, now)]
    ]
    return list(RoundSerializer(answers, many=True, context={"request": request}).data)


class RoundsView(ReadView):
    """Every round."""

    @extend_schema(operation_id="rounds", responses=RoundListSerializer)
    def get(self, request: Request) -> Response:
        """Every round with its phase, the latest to open first."""
        return Response({"rounds": _answers(listed_rounds(), request)})


class RoundView(ReadView):
    """One round."""

    @extend_schema(
        operation_id="round",
        parameters=[OpenApiParameter("slug", str, OpenApiParameter.PATH, description="As in its address.")],
        responses=RoundSerializer,
    )
    def get(self, request: Request, slug: str) -> Response:
        """A round: its phase and times, what it asks, and how many runs have come."""
        rows = _answers(listed_rounds().filter(slug=slug), request)
        if not rows:
            raise Http404
        return Response(rows[0])
