"""`GET /api/v1/datasets/{slug}/files/`: what a dataset offers, with sizes and checksums."""

from __future__ import annotations

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.api.boards import SLUG
from leaderboard.api.fields import AddressField, Answer
from leaderboard.datasets.files import offered_files
from leaderboard.views.files import visible_dataset


class FileSerializer(Answer):
    """One offered file."""

    name = serializers.CharField(source="file.name")
    kind = serializers.CharField(source="file.kind")
    description = serializers.CharField(source="file.description")
    size = serializers.IntegerField(source="file.size", help_text="Bytes, as downloaded.")
    sha256 = serializers.CharField(source="file.sha256", help_text="Of the bytes as downloaded.")
    url = AddressField(source="path")


class DatasetFiles(APIView):
    """The files that a dataset offers to whoever asks."""

    required_scope = "read"

    @extend_schema(parameters=[SLUG], responses=FileSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """Queries, documents, ids, open judgements and example runs, as the dataset's settings allow."""
        dataset = visible_dataset(request, slug)
        files = [
            {"file": file, "path": reverse("dataset-file", args=[slug, file.name])}
            for file in offered_files(dataset, request.user)
        ]
        return Response(FileSerializer(files, many=True, context={"request": request}).data)
