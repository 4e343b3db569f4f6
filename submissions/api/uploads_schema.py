"""What the calls about uploads take and answer, as the schema says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers


def header(
    name: str, kind: type, description: str, *, required: bool = False, answers: Sequence[int] = ()
) -> OpenApiParameter:
    """A header of requests, or of answers with these statuses."""
    return OpenApiParameter(
        name,
        kind,
        OpenApiParameter.HEADER,
        description=description,
        required=required,
        response=list(answers) or False,
    )


class UploadSerializer(serializers.Serializer[Any]):
    """A file that comes in pieces."""

    id = serializers.CharField(help_text="What a submission names in `upload`.")
    kind = serializers.ChoiceField(choices=["run", "model"])
    file_name = serializers.CharField(help_text="What its sender called it.")
    length = serializers.IntegerField(help_text="Bytes that were announced.")
    offset = serializers.IntegerField(help_text="Bytes that are here.")
    complete = serializers.BooleanField()
    sha256 = serializers.CharField(help_text="Of the whole file; empty until it is here.")
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField(help_text="When it is given up, unless bytes or a submission come.")
    url = serializers.URLField()
