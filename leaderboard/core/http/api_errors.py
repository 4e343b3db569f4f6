"""Errors of the API, all of one shape: `{"code", "detail", "problems": […]}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.response import Response

from evaluation.core.problems import ProblemCode
from leaderboard.core.http.choices import UnknownChoice

INVALID = ProblemCode("invalid", "The request is not well formed.", "The sentence beside it says where.")
UNKNOWN_CHOICE = ProblemCode(
    "unknown_choice", "A parameter has a value that the board does not have.", "Choose one of those that it names."
)  # fmt: skip
INVALID_FIELD = ProblemCode(
    "invalid_…", "A field is missing or cannot be read; the code ends in its name.",
    "The API's documentation lists the fields.", "invalid_architecture"
)  # fmt: skip


class ApiError(APIException):
    """An error with a code, a sentence, the problems found, and perhaps more keys for this one call.

    `wait`: after how many seconds the same request may do better; sent as Retry-After.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status_code: int = status.HTTP_400_BAD_REQUEST,
        problems: Iterable[Mapping[str, Any]] = (),
        extra: Mapping[str, Any] | None = None,
        wait: int | None = None,
    ) -> None:
        self.status_code = status_code
        self.problems = [dict(problem) for problem in problems]
        self.extra = dict(extra or {})
        self.wait = wait
        super().__init__(detail, code)


def unknown_choice(error: UnknownChoice) -> dict[str, Any]:
    """The body of an error for a view that a board does not have."""
    hint = f"Choose one of: {', '.join(error.choices)}"
    found = problem(UNKNOWN_CHOICE, str(error), hint)
    return {"code": UNKNOWN_CHOICE, "detail": str(error), "problems": [found]}


def problem(code: str, message: str, hint: str = "") -> dict[str, Any]:
    """One problem that has no lines: something about the request, not about a file."""
    return {
        "severity": "error",
        "code": code,
        "count": 1,
        "lines": [],
        "message": message,
        "hint": hint,
    }


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Answer a refused request. Unexpected errors are left to the middleware, which logs them."""
    if isinstance(error, SuspiciousOperation):  # Django's own limits on the form of a request
        too_large = isinstance(error, RequestDataTooBig)
        code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE if too_large else status.HTTP_400_BAD_REQUEST
        error = ApiError(INVALID, str(error) or "The request is not acceptable.", status_code=code)
    # Here, for it reads the setting of how people are authenticated, and who is authenticated may be told an error.
    from rest_framework.views import exception_handler as default_handler

    response = default_handler(error, dict(context))
    if response is None:
        return None
    response.data = _body(error, response)
    return response


def _body(error: Exception, response: Response) -> dict[str, Any]:
    if isinstance(error, ApiError):
        code = error.detail.code if isinstance(error.detail, ErrorDetail) else error.default_code
        return {"code": code, "detail": str(error.detail), "problems": error.problems, **error.extra}
    if isinstance(error, ValidationError):
        found = [problem(INVALID, message) for message in _messages(error.detail)]
        return {"code": INVALID, "detail": "The request is not well formed.", "problems": found}
    detail = response.data.get("detail") if isinstance(response.data, dict) else None
    code = detail.code if isinstance(detail, ErrorDetail) else "error"
    return {"code": code, "detail": str(detail or error), "problems": []}


def _messages(detail: Any, field: str = "") -> list[str]:
    if isinstance(detail, Mapping):
        return [text for name, value in detail.items() for text in _messages(value, str(name))]
    if isinstance(detail, list):
        return [text for value in detail for text in _messages(value, field)]
    return [f"{field}: {detail}" if field and field != "non_field_errors" else str(detail)]
