"""Say that a request was too large, where the upload handler has stopped reading it."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from evaluation.formats.compression import describe_bytes
from submissions.refusals import Refused

#: The code of the refusal.
OVERSIZE = "request_too_large"


def refuse_oversize(request: HttpRequest | Request) -> None:
    """Raises Refused for a request whose body is over the limit: its files were not read to the end."""
    size = int(request.META.get("CONTENT_LENGTH") or 0)
    if size > settings.UPLOAD_LIMIT_BYTES:
        raise Refused.of(
            OVERSIZE,
            f"The request has {describe_bytes(size)}; the limit is {describe_bytes(settings.UPLOAD_LIMIT_BYTES)}.",
            "Compress the runs with gzip or zstd, keep at most 1,000 documents per query, or submit fewer at a time.",
        )
