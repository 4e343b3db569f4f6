"""Request serializers, which define the schema of API calls and parse their input.

System and submission fields are declared once, in the forms of the pages; the API validates them with the same forms.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.forms import Form
from django.http import QueryDict
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from leaderboard.api.fields import Answer, integer_field, text_field
from leaderboard.boards.state import whole_number
from leaderboard.core.http.api_errors import INVALID, INVALID_FIELD, ApiError, problem
from leaderboard.models import Challenge
from leaderboard.systems.challenges import challengeable_datasets
from submissions.intake.forms import ChallengeForm, WithdrawalForm
from submissions.intake.system_form import seen_systems

#: Form fields of a system, by their request names where these differ.
ALIASES = {"paper": "paper_url", "code": "code_url", "model": "model_url", "license": "licence"}
#: Request names of form fields, where these differ.
FORM_NAMES = {"paper_url": "paper", "code_url": "code", "model_url": "model"}
_FALSE_WORDS = frozenset({"no", "false", "0", "off", "private"})
_TRUE_WORDS = frozenset({"yes", "true", "1", "on", "public"})


class FlagField(serializers.BooleanField):
    """Boolean in any common spelling; an empty value means `blank`."""

    def __init__(self, *, blank: bool = True, **options: Any) -> None:
        self.blank = blank
        super().__init__(**options)

    def get_value(self, dictionary: Mapping[str, Any]) -> Any:
        """Return the raw value. Unlike in DRF, form data may omit the field."""
        return dictionary.get(str(self.field_name), empty)

    def run_validation(self, data: Any = empty) -> bool:
        """Return the boolean. An omitted or empty value means `blank`, but a field without a default is required.

        Raises ApiError if a required field is omitted or the value is not a boolean.
        """
        name = str(self.field_name)
        if data is empty and self.default is empty:
            raise ApiError(INVALID, f"Send {name}=true or {name}=false.")
        return parse_boolean({} if data is empty else {name: data}, name, default=self.blank)


class WholeNumberField(serializers.IntegerField):
    """Integer of at least 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, **options)

    def run_validation(self, data: Any = empty) -> int:
        """Return the integer, read from the first nine digits. Raises ApiError unless it is a positive integer."""
        text = "" if data is empty else str(data).strip()
        if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
            name = str(self.field_name)
            raise field_error(name, f"{name}: “{text[:40]}” is not a positive integer.", f"Send {name}=1.")
        return int(text[:9])


class TextField(serializers.CharField):
    """Stripped text; empty if the field is omitted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def run_validation(self, data: Any = empty) -> Any:
        return "" if data is empty else str(data or "").strip()


class TextsField(serializers.ListField):
    """List of texts: a repeated field or a JSON list; empty if the field is omitted."""

    child = serializers.CharField()

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def get_value(self, dictionary: Mapping[str, Any]) -> list[str]:
        return get_list(dictionary, str(self.field_name))

    def run_validation(self, data: Any = empty) -> Any:
        return data


class OptionField(serializers.ChoiceField):
    """Choice among several words; the default or an empty text if omitted.

    `message` contains a placeholder for the value. Without a message, any value is accepted.
    """

    def __init__(self, choices: Sequence[str], message: str = "", hint: str = "", **options: Any) -> None:
        self.message, self.hint = message, hint
        super().__init__(choices, **options)

    def run_validation(self, data: Any = empty) -> Any:
        """Return the stripped option; if it is empty or omitted, the default or an empty text.

        Raises ApiError for an unknown option if the field has a message.
        """
        text = "" if data is empty else str(data or "").strip()
        if self.message and text and text not in self.choices:
            raise field_error(str(self.field_name), self.message.format(text), self.hint)
        return text or ("" if self.default is empty else self.default)


class RequestSerializer(serializers.Serializer[Any]):
    """Base of all request serializers."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        return dict(cls(context={"request": request}).to_internal_value(get_request_fields(request)))


class WithdrawRequest(RequestSerializer):
    """Reason for withdrawing a submission."""

    reason = text_field(max_length=300)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `reason`, validated by the page's form. Raises ApiError if it is not valid."""
        form = WithdrawalForm(data)
        if not form.is_valid():
            raise field_error("reason", str(form.errors["reason"][0]))
        return form.cleaned_data


class VisibilityRequest(RequestSerializer):
    """Visibility of a submission."""

    public = FlagField()


class PriorityRequest(RequestSerializer):
    """Priority of a submission among the team's runs in a round."""

    priority = WholeNumberField(
        help_text="Priority from 1 (highest). A run that already has it swaps priorities with this one."
    )


class ReusableRequest(RequestSerializer):
    """Permission to re-rank or fuse a submission's runs."""

    reusable = FlagField(blank=False)


class ChallengeRequest(RequestSerializer):
    """Challenge of a claim that a system makes."""

    claim = serializers.ChoiceField(choices=Challenge.Claim.choices)
    text = text_field("Reason for the challenge, with evidence that a curator can check. Public; Markdown.")
    dataset = text_field("Slug of the dataset, if the challenge concerns only one.", required=False)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the form's cleaned data for a challenge of the system in the URL.

        Raises ApiError if a field is invalid, and Http404 if no system with a visible result has this slug.
        """
        slug = self.context["request"].parser_context["kwargs"]["slug"]
        form = ChallengeForm(data, datasets=challengeable_datasets(get_object_or_404(seen_systems(), slug=slug)))
        require_valid(form)
        return form.cleaned_data


#: Errors of calls that `ChangeThrottle` limits.
TOO_MANY_CHANGES = {429: "Too many changes; try again after `Retry-After` seconds."}
#: Query parameters of paginated calls.
PAGE_PARAMETERS = [
    OpenApiParameter("limit", int, description="Number of rows. Default: 50, at most 200."),
    OpenApiParameter("offset", int, description="Number of newest rows to skip."),
]


class PageSerializer(Answer):
    """A page of rows. Subclasses add `results`."""

    count = integer_field("Number of rows on all pages.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class Pages(LimitOffsetPagination):
    """Pagination with 50 rows per page, or `limit` rows."""

    default_limit, max_limit = 50, 200

    def get_limit(self, request: Request) -> int:
        limit = whole_number(request.query_params, "limit", self.default_limit)
        return min(limit or self.default_limit, self.max_limit)

    def get_offset(self, request: Request) -> int:
        return whole_number(request.query_params, "offset", 0)


def get_request_fields(request: Request) -> Mapping[str, Any]:
    """Return the request's fields. Raises ApiError if JSON is not an object or a text contains NUL characters."""
    data = request.data
    if not isinstance(data, Mapping):
        raise ApiError(INVALID, "The request body is not a JSON object.")
    texts = [text for _, values in data.lists() for text in values] if isinstance(data, QueryDict) else data.values()
    if any("\0" in text for text in texts if isinstance(text, str)):
        raise ApiError(INVALID, "A field contains a NUL character. Remove it.")
    return data


def parse_boolean(data: Mapping[str, Any], name: str, *, default: bool = True) -> bool:
    """Return the boolean in the field `name`, such as yes, on, or private; `default` if it is empty or missing.

    Raises ApiError if the value is not a boolean.
    """
    value = str(data.get(name, "")).strip().casefold()
    if value == "":
        return default
    if value in _FALSE_WORDS:
        return False
    if value in _TRUE_WORDS:
        return True
    raise field_error(name, f"{name}: “{value}” is not a boolean.", "Send true or false.")


def get_list(data: Mapping[str, Any], name: str) -> list[str]:
    """Return the stripped, non-empty values of a repeatable field.

    They come from a repeated form field, a JSON list, or a single JSON value.
    """
    values = data.getlist(name) if isinstance(data, QueryDict) else data.get(name, [])
    values = values if isinstance(values, list) else [values]
    return [str(value).strip() for value in values if str(value).strip()]


def field_error(field: str, message: str, hint: str = "") -> ApiError:
    return ApiError(INVALID, message, problems=[problem(INVALID_FIELD.named(field), message, hint)])


def require_valid(form: Form) -> None:
    """Raise ApiError with one problem per message if the form is invalid."""
    if form.is_valid():
        return
    named_messages = [
        (FORM_NAMES.get(field, field), message) for field, messages in form.errors.items() for message in messages
    ]
    problems = [problem(INVALID_FIELD.named(name), f"{name}: {message}") for name, message in named_messages]
    raise ApiError(INVALID, "The request has invalid fields.", problems=problems)
