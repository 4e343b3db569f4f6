"""What calls take: serializers that are its schema and read what was sent, in the domain's words.

What systems and submissions say is declared once, in the pages' forms: they check it here too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from django.forms import Form
from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from leaderboard.boards.state import whole_number
from leaderboard.core.http.api_errors import INVALID, INVALID_FIELD, ApiError, problem
from leaderboard.core.text.json import read_json
from leaderboard.models import System, Team, User
from leaderboard.systems.records import SystemFields, find_system
from submissions.accounts.permissions import systems_of, teams_of
from submissions.intake.forms import SubmissionForm, WithdrawalForm
from submissions.intake.system_form import COLUMNS, SystemForm

#: What fields of a system are called in requests, where forms call them otherwise.
ALIASES = {"paper": "paper_url", "code": "code_url", "model": "model_url", "license": "licence"}
_NO = frozenset({"no", "false", "0", "off", "private"})
_YES = frozenset({"yes", "true", "1", "on", "public"})


class FlagField(serializers.BooleanField):
    """Yes or no, in any of the usual words; a name with nothing behind it means `blank`."""

    def __init__(self, *, blank: bool = True, **options: Any) -> None:
        self.blank = blank
        super().__init__(**options)

    def get_value(self, dictionary: Mapping[str, Any]) -> Any:
        """What was sent: a form, too, may leave it out."""
        return dictionary.get(str(self.field_name), empty)

    def run_validation(self, data: Any = empty) -> bool:
        """The value. Raises ApiError."""
        name = str(self.field_name)
        if data is empty:
            raise ApiError(INVALID, f"Send {name}=true or {name}=false.")
        return parse_boolean({name: data}, name, missing=self.blank)


class WholeNumberField(serializers.IntegerField):
    """A whole number from 1 on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, **options)

    def run_validation(self, data: Any = empty) -> int:
        """The value. Raises ApiError."""
        text = "" if data is empty else str(data).strip()
        if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
            name = str(self.field_name)
            raise malformed(name, f"{name}: “{text[:40]}” is no whole number from 1 on.", f"Send {name}=1.")
        return int(text[:9])


class RequestSerializer(serializers.Serializer[Any]):
    """What a call takes."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        """What was sent. Raises ApiError for what is missing or cannot be read."""
        return dict(cls(context={"request": request}).to_internal_value(data_of(request)))


class WithdrawRequest(RequestSerializer):
    """Why a submission is withdrawn."""

    reason = serializers.CharField(max_length=300)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """As the page reads it. Raises ApiError."""
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


#: Query parameters of paginated calls.
PAGE_PARAMETERS = [
    OpenApiParameter("limit", int, description="Number of rows. Default: 50, at most 200."),
    OpenApiParameter("offset", int, description="Number of newest rows to skip."),
]


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
    """The request's fields. Raises ApiError for a JSON body that is not an object, and for NUL characters."""
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


def read_submission_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to this one submission, of whatever kind. Raises ApiError."""
    form = SubmissionForm(
        {
            "configuration": data.get("configuration", ""),
            "note": data.get("note", ""),
            "public": "yes" if parse_boolean(data, "public") else "no",
            "reusable": parse_boolean(data, "reusable", missing=False),
            **{name: data.get(name, "") for name in ("run_type", "tag", "priority")},
        },
        systems=[],
    )
    require_valid(form)
    kept = {name: form.cleaned_data[name] for name in ("configuration", "public", "reusable", "note")}
    return {**kept, "round_entry": form.round_entry()}


def system_and_owner(
    data: Mapping[str, Any],
    person: User,
    *,
    described: Mapping[str, Any] | None = None,
    architecture: str = "",
) -> dict[str, Any]:
    """The system; of a new one whose it is too, and until when nobody learns that. Raises ApiError.

    For a system that there is, the same may be repeated; its page changes it. `described` are the fields that are the
    system's where not all of `data` are.
    """
    mine = list(teams_of(person))
    said = {"team": str(data.get("team") or "").strip(), "anonymous_until": data.get("anonymous_until") or ""}
    form = SubmissionForm(said, systems=[], teams=mine)
    if "team" in form.errors:
        known = ", ".join(team.slug for team in mine)
        raise malformed("team", f"You do not belong to a team “{said['team']}”.", f"Your teams: {known}.")
    require_valid(form)
    team, until = form.cleaned_data["team"], form.cleaned_data["anonymous_until"]
    system = system_of(
        data if described is None else described, person, architecture, [team] if team else mine
    )
    if not isinstance(system, System):
        return {"system": system, "team": team or next(iter(mine), None), "anonymous_until": until}
    if until is not None and (system.anonymous_until is None or system.anonymous_until.date() != until):
        raise malformed(
            "anonymous_until",
            f"“{system.name}” is there already, and not anonymous until {until}.",
            f"Change that on /systems/{system.slug}/edit/, and leave the field out here.",
        )
    return {"system": system}


def system_of(
    data: Mapping[str, Any], person: User, architecture: str, teams: Collection[Team]
) -> System | SystemFields:
    """One of the person's systems by slug or name, or what a new one says of itself. Raises ApiError.

    `architecture` is that of a new one that does not say its own. Only systems of these `teams` are meant.
    """
    given = str(data.get("system", "")).strip()
    if not given:
        raise malformed("system", "No system was named.", "Send system=<slug of yours> or a new name.")
    described = _object(given) if given.startswith("{") else {**_flat(data), "name": given}
    described = {ALIASES.get(name, name): value for name, value in described.items()}
    mine = find_system(teams, str(described.get("name", "")))
    if mine is None:
        return _new_system({**({"architecture": architecture} if architecture else {}), **described}, person)
    _require_same(mine, described)
    return mine


def parse_boolean(data: Mapping[str, Any], name: str, *, missing: bool = True) -> bool:
    """A yes or no. Raises ApiError for anything else."""
    value = str(data.get(name, "")).strip().casefold()
    if value == "":
        return missing
    if value in _NO:
        return False
    if value in _YES:
        return True
    raise malformed(name, f"{name}: “{value}” is neither true nor false.", "Send true or false.")


def _new_system(described: Mapping[str, Any], person: User) -> SystemFields:
    form = SystemForm({name: _text(value) for name, value in described.items()})
    if not described.get("architecture"):
        known = ", ".join(systems_of(person).values_list("slug", flat=True)[:20])
        raise malformed(
            "architecture",
            f"You have no system “{described.get('name', '')}”, and a new one needs its architecture.",
            f"Send architecture=dense (or another); your systems: {known or 'none yet'}.",
        )
    require_valid(form)
    return form.fields_of_system()


def _require_same(mine: System, described: Mapping[str, Any]) -> None:
    """A request that repeats what is known goes through, so that scripts can send the same for every dataset."""
    said = {
        "architecture": mine.architecture,
        **{name: _text(value) for name, value in described.items()},
        "name": mine.name,
    }
    form = SystemForm(said, system=mine)
    given = [name for name in described if name in form.fields and name != "name"]
    if not given:
        return
    require_valid(form)
    fields = form.fields_of_system()
    columns = {name: COLUMNS.get(name, name) for name in given}
    changed = [name for name, column in columns.items() if getattr(fields, column) != getattr(mine, column)]
    if changed:
        raise malformed(
            "system",
            f"You have a system “{mine.name}” ({mine.slug}) already, with another {', '.join(changed)}.",
            "Leave these fields out to submit for it, or give the new system another name.",
        )


def _text(value: Any) -> str:
    """A value from a JSON object as a form field has it."""
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or "none"
    if isinstance(value, dict):
        return json.dumps(value)
    return "" if value is None else str(value)


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """The system's fields among the request's own."""
    known = [*SystemForm.base_fields, *ALIASES]
    found = {name: data.get(name) for name in known if data.get(name) not in (None, "")}
    for field in ("training_datasets", "adapted_to"):
        if names := list_of(data, field):
            found[field] = ", ".join(names)
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        return dict(read_json(text))
    except (ValueError, TypeError) as error:
        raise malformed("system", f"system: not a JSON object: {error}", 'Send {"name": …}.') from None


def list_of(data: Mapping[str, Any], name: str) -> list[str]:
    """The values of a field that may repeat."""
    values = data.getlist(name) if isinstance(data, QueryDict) else data.get(name, [])
    values = values if isinstance(values, list) else [values]
    return [str(value).strip() for value in values if str(value).strip()]


def malformed(field: str, message: str, hint: str = "") -> ApiError:
    """The error for one field that is missing or cannot be read."""
    found = problem(INVALID_FIELD.named(field), message, hint)
    return ApiError(INVALID, message, problems=[found])


def require_valid(form: Form) -> None:
    """Raises ApiError with a problem for every message of the form."""
    if form.is_valid():
        return
    back = {form_name: name for name, form_name in ALIASES.items() if name != "license"}
    found = [
        problem(INVALID_FIELD.named(back.get(field, field)), f"{back.get(field, field)}: {message}")
        for field, errors in form.errors.items()
        for message in errors
    ]
    raise ApiError(INVALID, "The request is not well formed.", problems=found)
