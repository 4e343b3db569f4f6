"""Errors of the API, all of one shape: `{"code", "detail", "problems": […]}`."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.response import Response

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.http.choices import UnknownChoice, UnknownParameter

INVALID = ProblemCode("invalid", "The request is not well formed.", "The sentence beside it says where.")
UNKNOWN_CHOICE = ProblemCode("unknown_choice", "A query parameter has an unknown value.",
    "Use one of the values that the message lists.")  # fmt: skip
UNKNOWN_PARAMETER = ProblemCode("unknown_parameter", "The address has a query parameter that is not read here.",
    "Use one of the parameters that the message lists.")  # fmt: skip
INVALID_FIELD = ProblemCode("invalid_…", "A field is missing or cannot be read; the code ends in its name.",
    "The API's documentation lists the fields.", "invalid_architecture")  # fmt: skip


class ProblemSerializer(serializers.Serializer[Any]):
    """One class of problem in a file."""

    severity = serializers.ChoiceField(choices=["error", "warning"])
    code = serializers.CharField()
    count = serializers.IntegerField(help_text="How often it occurs.")
    lines = serializers.ListField(child=serializers.IntegerField(), help_text="The first five lines, from 1.")
    message = serializers.CharField(help_text="What is wrong.")
    hint = serializers.CharField(help_text="What would be right.")


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error of the API."""

    code = serializers.CharField()
    detail = serializers.CharField()
    problems = ProblemSerializer(many=True)


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
        problems: Iterable[Problem] = (),
        extra: Mapping[str, Any] | None = None,
        wait: int | None = None,
    ) -> None:
        self.status_code = status_code
        self.body = {**error_answer(code, detail, problems), **(extra or {})}
        self.wait = wait
        super().__init__(detail, code)


def error_answer(code: str, detail: str, problems: Iterable[Problem] = ()) -> dict[str, Any]:
    """The body of an error."""
    return {**ErrorSerializer({"code": code, "detail": detail, "problems": problems}).data}


def problem(code: str, message: str, hint: str = "") -> Problem:
    """One problem that has no lines: something about the request, not about a file."""
    return Problem("error", code, 1, message, hint)


def unknown_choice(error: UnknownChoice) -> ApiError:
    """Return the API's error for an unknown query parameter, or an unknown value of one."""
    code = UNKNOWN_PARAMETER if isinstance(error, UnknownParameter) else UNKNOWN_CHOICE
    message = " ".join(filter(None, (f"{error.subject}.", error.suggestion)))
    return ApiError(code, str(error), problems=[problem(code, message, error.valid)])


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Answer a refused request. Unexpected errors are left to the middleware, which logs them."""
    if isinstance(error, SuspiciousOperation):  # Django's own limits on the form of a request
        too_large = isinstance(error, RequestDataTooBig)
        code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE if too_large else status.HTTP_400_BAD_REQUEST
        error = ApiError(INVALID, str(error) or "The request is not acceptable.", status_code=code)
    if isinstance(error, UnknownChoice):
        error = unknown_choice(error)
    # Here, for it reads the setting of how people are authenticated, and who is authenticated may be told an error.
    from rest_framework.views import exception_handler as default_handler

    response = default_handler(error, dict(context))
    if response is None:
        return None
    if isinstance(error, ApiError):
        response.data = error.body
    elif isinstance(error, ValidationError):
        found = [problem(INVALID, message) for message in _messages(error.detail)]
        response.data = error_answer(INVALID, "The request is not well formed.", found)
    else:
        detail = response.data.get("detail") if isinstance(response.data, dict) else None
        named = str(detail.code) if isinstance(detail, ErrorDetail) else "error"
        response.data = error_answer(named, str(detail or error))
    return response


def _messages(detail: Any, field: str = "") -> list[str]:
    if isinstance(detail, Mapping):
        return [text for name, value in detail.items() for text in _messages(value, str(name))]
    if isinstance(detail, list):
        return [text for value in detail for text in _messages(value, field)]
    return [f"{field}: {detail}" if field and field != "non_field_errors" else str(detail)]
