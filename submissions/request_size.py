"""Say that a request was too large, where the upload handler has stopped reading it."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from evaluation.formats.compression import describe_bytes
from submissions.refusals import Refused
from submissions.uploads import CHECKPOINT_FIELD, STOPPED_AT

#: The code of the refusal.
OVERSIZE = "request_too_large"


#: The advice with it, for files of either kind.
SMALLER_RUNS = (
    "Compress the runs with gzip or zstd, keep at most 1,000 documents per query, or submit fewer at a time."
)
SMALLER_CHECKPOINT = (
    "Store the weights in half precision and leave out everything but the model: python -m evaluation pack FOLDER "
    "writes an archive of what is needed."
)


def refuse_oversize(request: HttpRequest | Request) -> None:
    """Raises Refused for a request whose body is over the limit: its files were not read to the end."""
    size = int(request.META.get("CONTENT_LENGTH") or 0)
    with_checkpoint = CHECKPOINT_FIELD in request.FILES
    allowed = settings.CHECKPOINT_LIMIT_BYTES if with_checkpoint else settings.UPLOAD_LIMIT_BYTES
    limit = request.META.get(STOPPED_AT, allowed)
    if STOPPED_AT in request.META or size > limit:
        raise Refused.of(
            OVERSIZE,
            f"The request has {describe_bytes(size)}; the limit is {describe_bytes(limit)}.",
            SMALLER_CHECKPOINT if limit == settings.CHECKPOINT_LIMIT_BYTES else SMALLER_RUNS,
        )
