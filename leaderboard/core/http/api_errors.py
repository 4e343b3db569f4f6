"""Errors of the API, all in the form `{"code", "detail", "problems": […]}`."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.response import Response

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.http.choices import UnknownChoice, UnknownParameter

INVALID = ProblemCode("invalid", "The request is not well formed.", "See the message for the location.")
UNKNOWN_CHOICE = ProblemCode("unknown_choice", "A query parameter has an unknown value.",
    "Use one of the values that the message lists.")  # fmt: skip
UNKNOWN_PARAMETER = ProblemCode("unknown_parameter", "The URL has an unknown query parameter.",
    "Use one of the parameters that the message lists.")  # fmt: skip
INVALID_FIELD = ProblemCode("invalid_…", "A field is missing or invalid; the code ends with its name.",
    "See the API documentation for the fields.", "invalid_architecture")  # fmt: skip


class ProblemSerializer(serializers.Serializer[Any]):
    """A kind of problem in a file, with its occurrences."""

    severity = serializers.ChoiceField(choices=["error", "warning"])
    code = serializers.CharField()
    count = serializers.IntegerField(help_text="Number of occurrences.")
    lines = serializers.ListField(
        child=serializers.IntegerField(), help_text="Numbers of the first five lines, starting at 1."
    )
    message = serializers.CharField(help_text="Description of the problem.")
    hint = serializers.CharField(help_text="How to fix it.")


class ErrorSerializer(serializers.Serializer[Any]):
    """Body of an API error."""

    code = serializers.CharField()
    detail = serializers.CharField()
    problems = ProblemSerializer(many=True)


class ApiError(APIException):
    """An API error with a code, a sentence, and a list of problems.

    Args:
        code: Machine-readable code of the error.
        detail: Sentence that describes it.
        status_code: HTTP status of the response.
        problems: Problems found in the request or file.
        extra: Additional keys of the body.
        wait: Seconds after which the same request may succeed; sent as Retry-After.
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
    return {**ErrorSerializer({"code": code, "detail": detail, "problems": problems}).data}


def problem(code: str, message: str, hint: str = "") -> Problem:
    """Return a problem with the request itself, which has no line numbers."""
    return Problem("error", code, 1, message, hint)


def unknown_choice(*errors: UnknownChoice) -> ApiError:
    """Return the API error for unknown query parameters, or for an unknown value of one."""
    code = UNKNOWN_PARAMETER if isinstance(errors[0], UnknownParameter) else UNKNOWN_CHOICE
    detail = " ".join([*(error.problem for error in errors), errors[0].valid])
    return ApiError(code, detail.rstrip(), problems=[problem(code, error.problem, error.valid) for error in errors])


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the response for a rejected request, in the form of `ErrorSerializer`.

    Return None for unexpected errors, which middleware logs.
    """
    if isinstance(error, SuspiciousOperation):  # Django's own limits on requests.
        too_large = isinstance(error, RequestDataTooBig)
        code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE if too_large else status.HTTP_400_BAD_REQUEST
        error = ApiError(INVALID, str(error) or "The request is invalid. Correct it.", status_code=code)
    if isinstance(error, UnknownChoice):
        error = unknown_choice(error)
    # Imported late: the module reads the authentication settings, and authentication may raise an ApiError.
    from rest_framework.views import exception_handler as default_handler

    response = default_handler(error, dict(context))
    if response is None:
        return None
    if isinstance(error, ApiError):
        response.data = error.body
    elif isinstance(error, ValidationError):
        problems = [problem(INVALID, message) for message in _messages(error.detail)]
        response.data = error_answer(INVALID, "The request is not well formed.", problems)
    else:
        detail = response.data.get("detail") if isinstance(response.data, dict) else None
        error_code = str(detail.code) if isinstance(detail, ErrorDetail) else "error"
        response.data = error_answer(error_code, str(detail or error))
    return response


def _messages(detail: Any, field: str = "") -> list[str]:
    """Return the messages of nested error details, each with the name of its field."""
    if isinstance(detail, Mapping):
        return [text for name, value in detail.items() for text in _messages(value, str(name))]
    if isinstance(detail, list):
        return [text for value in detail for text in _messages(value, field)]
    return [f"{field}: {detail}" if field and field != "non_field_errors" else str(detail)]
