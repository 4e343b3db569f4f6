"""What calls take: serializers that are its schema and read what was sent, in the domain's words.

What systems and submissions say is declared once, in the pages' forms: they check it here too.
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

#: What fields of a system are called in requests, where forms call them otherwise.
ALIASES = {"paper": "paper_url", "code": "code_url", "model": "model_url", "license": "licence"}
#: The names in requests of fields of the forms.
FORM_NAMES = {"paper_url": "paper", "code_url": "code", "model_url": "model"}
_NO = frozenset({"no", "false", "0", "off", "private"})
_YES = frozenset({"yes", "true", "1", "on", "public"})


class FlagField(serializers.BooleanField):
    """Yes or no, in any of the usual words; a name with nothing behind it means `blank`."""

    def __init__(self, *, blank: bool = True, **options: Any) -> None:
        self.blank = blank
        super().__init__(**options)

    def get_value(self, dictionary: Mapping[str, Any]) -> Any:
        """Return what was sent; forms, too, may leave it out."""
        return dictionary.get(str(self.field_name), empty)

    def run_validation(self, data: Any = empty) -> bool:
        """Return the value. Raises ApiError."""
        name = str(self.field_name)
        if data is empty and self.default is empty:
            raise ApiError(INVALID, f"Send {name}=true or {name}=false.")
        return parse_boolean({} if data is empty else {name: data}, name, missing=self.blank)


class WholeNumberField(serializers.IntegerField):
    """A whole number from 1 on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, **options)

    def run_validation(self, data: Any = empty) -> int:
        """Return the value. Raises ApiError."""
        text = "" if data is empty else str(data).strip()
        if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
            name = str(self.field_name)
            raise malformed(name, f"{name}: “{text[:40]}” is no whole number from 1 on.", f"Send {name}=1.")
        return int(text[:9])


class TextField(serializers.CharField):
    """A text without blanks around it; empty if it is left out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def run_validation(self, data: Any = empty) -> Any:
        """Return the text."""
        return "" if data is empty else str(data or "").strip()


class TextsField(serializers.ListField):
    """Texts: the values of a field that may repeat, or a list; empty if it is left out."""

    child = serializers.CharField()

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def get_value(self, dictionary: Mapping[str, Any]) -> list[str]:
        """Return all values."""
        return list_of(dictionary, str(self.field_name))

    def run_validation(self, data: Any = empty) -> Any:
        """Return the values as they are."""
        return data


class OptionField(serializers.ChoiceField):
    """One of several words; the default, or else an empty text, if it is left out.

    `message` has a place for the word that was sent. Without a message any word is taken.
    """

    def __init__(self, choices: Sequence[str], message: str = "", hint: str = "", **options: Any) -> None:
        self.message, self.hint = message, hint
        super().__init__(choices, **options)

    def run_validation(self, data: Any = empty) -> Any:
        """Return the word. Raises ApiError."""
        text = "" if data is empty else str(data or "").strip()
        if self.message and text and text not in self.choices:
            raise malformed(str(self.field_name), self.message.format(text), self.hint)
        return text or ("" if self.default is empty else self.default)


class RequestSerializer(serializers.Serializer[Any]):
    """The fields of a call."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        """Return what was sent. Raises ApiError for what is missing or cannot be read."""
        return dict(cls(context={"request": request}).to_internal_value(data_of(request)))


class WithdrawRequest(RequestSerializer):
    """Why a submission is withdrawn."""

    reason = text_field(max_length=300)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the page's form accepts. Raises ApiError."""
        form = WithdrawalForm(data)
        if not form.is_valid():
            raise malformed("reason", str(form.errors["reason"][0]))
        return form.cleaned_data


class VisibilityRequest(RequestSerializer):
    """Who sees a submission."""

    public = FlagField()


class PriorityRequest(RequestSerializer):
    """A place among the team's runs in a round."""

    priority = WholeNumberField(help_text="1 first; the run that has it gets the old one.")


class ReusableRequest(RequestSerializer):
    """Whether others may build on a submission's runs."""

    reusable = FlagField(blank=False)


class ChallengeRequest(RequestSerializer):
    """A doubt of what a system says of itself."""

    claim = serializers.ChoiceField(choices=Challenge.Claim.choices)
    text = text_field("Why: what can be checked. Public; Markdown.")
    dataset = text_field("Slug, where it is about one dataset.", required=False)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the page's form accepts. Raises ApiError."""
        slug = self.context["request"].parser_context["kwargs"]["slug"]
        form = ChallengeForm(
            data, datasets=challengeable_datasets(get_object_or_404(seen_systems(), slug=slug))
        )
        require_valid(form)
        return form.cleaned_data


#: The errors of calls that `ChangeThrottle` limits.
TOO_MANY_CHANGES = {429: "Too many changes; `Retry-After` says when to send."}
#: Query parameters of paginated calls.
PAGE_PARAMETERS = [
    OpenApiParameter("limit", int, description="Number of rows. Default: 50, at most 200."),
    OpenApiParameter("offset", int, description="Number of newest rows to skip."),
]


class PageSerializer(Answer):
    """A page of rows. Subclasses have `results`."""

    count = integer_field("On all pages.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class Pages(LimitOffsetPagination):
    """Pages of 50 rows, or of `limit`."""

    default_limit, max_limit = 50, 200

    def get_limit(self, request: Request) -> int:
        """Return the number of rows. Raises UnknownChoice."""
        limit = whole_number(request.query_params, "limit", self.default_limit)
        return min(limit or self.default_limit, self.max_limit)

    def get_offset(self, request: Request) -> int:
        """Return the number of rows to skip. Raises UnknownChoice."""
        return whole_number(request.query_params, "offset", 0)


def data_of(request: Request) -> Mapping[str, Any]:
    """Return the request's fields. Raises ApiError for JSON that is not an object, and for NUL characters."""
    data = request.data
    if not isinstance(data, Mapping):
        raise ApiError(INVALID, "The body is not a JSON object.")
    texts = (
        [text for _, values in data.lists() for text in values]
        if isinstance(data, QueryDict)
        else data.values()
    )
    if any("\0" in text for text in texts if isinstance(text, str)):
        raise ApiError(INVALID, "A field has a NUL character.")
    return data


def parse_boolean(data: Mapping[str, Any], name: str, *, missing: bool = True) -> bool:
    """Return a yes or no. Raises ApiError for anything else."""
    value = str(data.get(name, "")).strip().casefold()
    if value == "":
        return missing
    if value in _NO:
        return False
    if value in _YES:
        return True
    raise malformed(name, f"{name}: “{value}” is neither true nor false.", "Send true or false.")


def list_of(data: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a field that may repeat."""
    values = data.getlist(name) if isinstance(data, QueryDict) else data.get(name, [])
    values = values if isinstance(values, list) else [values]
    return [str(value).strip() for value in values if str(value).strip()]


def malformed(field: str, message: str, hint: str = "") -> ApiError:
    """Return the error for one field that is missing or cannot be read."""
    found = problem(INVALID_FIELD.named(field), message, hint)
    return ApiError(INVALID, message, problems=[found])


def require_valid(form: Form) -> None:
    """Raise ApiError with a problem for every message of the form."""
    if form.is_valid():
        return
    named = [
        (FORM_NAMES.get(field, field), message) for field, all_of in form.errors.items() for message in all_of
    ]
    problems = [problem(INVALID_FIELD.named(name), f"{name}: {message}") for name, message in named]
    raise ApiError(INVALID, "The request is not well formed.", problems=problems)
