"""Say that a request was too large: from the length that it announces, or where the upload handler stopped reading."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from rest_framework import status
from rest_framework.request import Request

from evaluation.archives.compression import describe_bytes
from evaluation.core.problems import ProblemCode
from leaderboard.core.http.api_errors import error_answer
from leaderboard.core.http.middleware import Middleware
from submissions.core.errors import Refused
from submissions.uploads import handler

REQUEST_TOO_LARGE = ProblemCode("request_too_large", "The request as a whole is over the limit for uploads.",
    "Compress the runs, or submit fewer at a time.")  # fmt: skip

#: The views of uploads in pieces, of which one may be a checkpoint: they say themselves what is too much.
_PIECES = frozenset({"api-uploads", "api-upload"})
#: For how long, in seconds, what a refused sender goes on sending is thrown away: cut off at once it would mostly
#: not read the answer.
_LINGER = 1.0

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
    size = handler.announced_bytes(request)
    with_checkpoint = handler.CHECKPOINT_FIELD in request.FILES
    allowed = settings.CHECKPOINT_LIMIT_BYTES if with_checkpoint else settings.UPLOAD_LIMIT_BYTES
    limit = request.META.get(handler.STOPPED_AT, allowed)
    if handler.STOPPED_AT in request.META or size > limit:
        raise _refusal(size, limit)


class RequestSizeMiddleware(Middleware):
    """Answers 413 before anything of the body is read, where its length is over all that the address takes.

    Whoever announces much and sends little would otherwise hold a thread for as long as it likes.
    """

    def process_view(
        self, request: HttpRequest, view: Any, arguments: Any, options: Any
    ) -> HttpResponse | None:
        """None where the view may read it; before the check against forged requests, which reads forms."""
        name = request.resolver_match.view_name if request.resolver_match else ""
        checkpoints = name in handler.TAKE_CHECKPOINTS or name in _PIECES
        limit = settings.CHECKPOINT_LIMIT_BYTES if checkpoints else settings.UPLOAD_LIMIT_BYTES
        size = handler.announced_bytes(request)
        if size <= limit + handler.FORM_BYTES:
            return None
        response = _answer(request, _refusal(size, limit))
        if connection := request.META.get("gunicorn.socket"):
            response._resource_closers.append(lambda: _hang_up(connection))  # type: ignore[attr-defined]
        return response


def _refusal(size: int, limit: int) -> Refused:
    return Refused.of(
        REQUEST_TOO_LARGE,
        f"The request has {describe_bytes(size)}; the limit is {describe_bytes(limit)}.",
        SMALLER_CHECKPOINT if limit == settings.CHECKPOINT_LIMIT_BYTES else SMALLER_RUNS,
    )


def _answer(request: HttpRequest, refusal: Refused) -> HttpResponse:
    told = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    if not request.path_info.startswith("/api/"):
        return render(request, "413.html", {"refusal": refusal}, status=told)
    return JsonResponse(error_answer(refusal.code, refusal.detail, refusal.all_problems()), status=told)


def _hang_up(connection: socket.socket) -> None:
    """Once the answer is written: read on for a moment, then end what comes, so that the server's thread is free."""
    until = time.monotonic() + _LINGER
    with suppress(OSError):
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                break
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
