"""Requests that check or submit runs or models."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from django import forms
from django.forms import ValidationError
from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import NotAuthenticated
from rest_framework.fields import empty

from evaluation.engines import ENGINES, EngineDescription
from leaderboard.api.fields import flag_field, integer_field, text_field
from leaderboard.core.text.json import read_json
from leaderboard.core.text.names import validate_text
from leaderboard.models import System, Team, User
from leaderboard.systems.records import SystemFields, find_system
from submissions.accounts.permissions import get_systems, get_teams, require_user
from submissions.api.requests import (
    ALIASES,
    FORM_NAMES,
    FlagField,
    OptionField,
    RequestSerializer,
    TextField,
    TextsField,
    field_error,
    get_list,
    require_valid,
)
from submissions.core.errors import Refused
from submissions.intake.checkpoints import intake
from submissions.intake.checkpoints.readiness import is_local_request
from submissions.intake.files import IncomingFile, incoming_files, pair_with_datasets
from submissions.intake.forms import ParametersField, SubmissionForm
from submissions.intake.headers import architecture_in_headers
from submissions.intake.runs import split_labels
from submissions.intake.system_form import OptionalBooleanField, SystemForm
from submissions.models import Upload
from submissions.uploads.handler import CHECKPOINT_FIELD, refuse_oversize


@extend_schema_field({"type": "string", "format": "binary"})
class UploadField(serializers.FileField):
    """File in a request, which drf-spectacular would otherwise describe as a URL."""

    def get_value(self, dictionary: Mapping[str, Any]) -> Any:
        return self.context["request"].FILES.getlist(self.field_name)

    def run_validation(self, data: Any = empty) -> Any:
        return data


class UploadsField(TextsField):
    """List of files in a request."""

    child: Any = UploadField()
    get_value = UploadField.get_value


class PromptsField(TextField):
    """JSON object of dataset-specific prompts."""

    def run_validation(self, data: Any = empty) -> Mapping[str, Mapping[str, object]]:
        """Return the prompts by dataset and parameter.

        Raises ApiError if the text is not a JSON object of objects, or a prompt is not text, is too long, or contains
        invalid characters.
        """
        hint = 'Send {"SLUG": {"query_prompt": "…"}}.'
        try:
            values = read_json(super().run_validation(data) or "{}")
        except ValueError as error:
            raise field_error("prompts", f"prompts: not a JSON object: {error}", hint) from None
        if not isinstance(values, Mapping) or not all(isinstance(prompts, Mapping) for prompts in values.values()):
            raise field_error("prompts", "prompts: not an object of objects.", hint)
        for slug, name, prompt in ((slug, *item) for slug, prompts in values.items() for item in prompts.items()):
            location = f"prompts: {name} of {slug}"
            if not isinstance(prompt, str) or len(prompt) > intake.LONGEST_PROMPT:
                message = f"{location} is not text of at most {intake.LONGEST_PROMPT:,} characters."
                raise field_error("prompts", message, hint)
            try:
                validate_text(prompt)
            except ValidationError as error:
                raise field_error("prompts", f"{location}: {error.messages[0]}", hint) from None
        return values


#: Form fields that have no counterpart of this name in requests.
_PAGE_FIELDS = frozenset({"seeds", "name", "training_none"})
_SCHEMA_FIELDS = (
    (forms.IntegerField, serializers.IntegerField),
    (forms.URLField, serializers.URLField),
    ((forms.BooleanField, OptionalBooleanField), serializers.BooleanField),
)


def build_schema_field(field: forms.Field) -> serializers.Field[Any, Any, Any, Any]:
    """Return the DRF field that represents a form field in the API schema."""
    field_class = next(
        (field_class for form_classes, field_class in _SCHEMA_FIELDS if isinstance(field, form_classes)),
        serializers.CharField,
    )
    default_note = " Default: not specified." if isinstance(field, OptionalBooleanField) else ""
    return field_class(required=False, help_text=f"{field.help_text}{default_note}" or None)


#: Fields that validate their own input. The forms of the pages validate all others.
_OWN_FIELDS = (FlagField, OptionField, TextField, TextsField, UploadField)


class _FilesRequest(RequestSerializer):
    """Base of requests with runs or a model."""

    kind = OptionField(("run", "model"), "“{}” cannot be submitted.", "Send kind=run or kind=model.", default="run")
    pooling = OptionField(
        intake.POOLINGS,
        "pooling: unknown method “{}”.",
        f"Send one of {', '.join(intake.POOLINGS)}.",
        required=False,
        help_text="Pooling method of an encoder whose files do not specify one.",
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the API's own fields, and the sent files and finished uploads as `files`.

        Run files are paired with the datasets of the request. Raises ApiError or Refused.
        """
        request = self.context["request"]
        refuse_oversize(request)  # check the size first, because fields of a truncated request are misleading
        parsed_fields = {name: field for name, field in self.fields.items() if isinstance(field, _OWN_FIELDS)}
        values: dict[str, Any] = {
            name: field.run_validation(field.get_value(data)) for name, field in parsed_fields.items()
        }
        kind = Upload.Kind(values["kind"])
        uploaded_files = values[CHECKPOINT_FIELD if kind == Upload.Kind.MODEL else "file"]
        upload_ids = get_list(data, "upload")
        if not request.user.is_authenticated and (kind == Upload.Kind.MODEL or upload_ids):
            raise NotAuthenticated
        files = incoming_files(request.user, uploaded_files, upload_ids, kind)
        if kind == Upload.Kind.RUN:
            files = pair_with_datasets(files, get_list(data, "dataset"))
        return {**values, "files": files}


@extend_schema_serializer(exclude_fields=("pooling", "seed"))
class CheckRequest(_FilesRequest):
    """A file to validate."""

    dataset = TextField(help_text="Slug of the dataset. Default: derived from the file name.")
    file = UploadField(required=False, help_text="Run file: TREC lines, a table, JSON, or answers in JSON Lines.")
    checkpoint = UploadField(required=False, help_text="Checkpoint as a zip or tar.zst archive, with kind=model.")
    upload = TextField(help_text="Id of a resumable upload, instead of a file. The upload remains.")
    engine = TextField(help_text="Engine that will run the checkpoint, with kind=model.")
    seed = TextsField()

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return `files` and `seeds` to check runs, or `checkpoint` to check a model.

        `checkpoint` is a pair of the archive and the engine or None. Raises ApiError, or Refused if no checkpoint was
        sent.
        """
        values = super().to_internal_value(data)
        if values["kind"] == "run":
            return {"files": values["files"], "seeds": split_labels(values["seed"])}
        archive = intake.one_archive(values["files"], values["pooling"])
        if archive is None:
            raise Refused.for_problem(intake.NO_CHECKPOINT, "No checkpoint was sent.", "Send -F checkpoint=@model.zip.")
        engine = values["engine"]
        return {"checkpoint": (archive, intake.find_engine(engine) if engine else None)}


class SubmissionRequest(_FilesRequest):
    """A submission of runs, or of a model that Runboard runs.

    Runs: repeat `dataset` and `file` in matching order, or send a zip with files named `<dataset>.*`. Two to five
    files for one dataset (repeat only `file`, or name files `<dataset>.<seed>.*` in a zip) are seeds of the system;
    their mean and standard deviation are published as one result.

    Models: send `engine`, the datasets, and, if the engine needs one, a model (`checkpoint`, `checkpoint_id`,
    `hub_model`, or `image`).
    """

    system = text_field("Slug or name of your system, a new name, or a JSON object of the fields below.")
    dataset = TextsField(help_text="Slugs of datasets: one per run file, or all datasets that the model runs on.")
    file = UploadsField(help_text="Run files: TREC lines, tables, JSON, or answers in JSON Lines.")
    upload = TextsField(
        help_text="Ids of resumable uploads: runs, which follow those in `file`, or the model. Deleted on 201."
    )
    seed = TextsField(
        help_text="Seed labels in file order (repeat or comma-separate). Default: derived from the file names."
    )
    engine = OptionField(list(ENGINES), required=False, help_text="Engine that runs the model.")
    checkpoint = UploadField(required=False, help_text="Zip or tar.zst archive of the model folder.")
    checkpoint_id = integer_field("Id of a checkpoint that your team uploaded earlier.", required=False)
    hub_model = TextField(help_text="Model on the Hugging Face Hub as `owner/name`, if this site downloads models.")
    hub_commit = TextField(help_text="Commit of the model on the Hub (40 hexadecimal digits).")
    image = TextField(
        help_text="Container image as `REGISTRY/NAME@sha256:DIGEST`, if this site runs and downloads images."
    )
    benchmark = TextField(help_text="Benchmark to run on instead of single datasets: all of its datasets on this site.")
    run = TextsField(help_text="Runs to re-rank or fuse: submission ids, or slugs of systems that this site provides.")
    device = OptionField(
        get_args(intake.Device), "device: unknown device “{}”.", "Send auto, cpu or gpu.", default="auto"
    )
    reusable = FlagField(blank=False, default=False, help_text="Allow others to re-rank and fuse the runs.")
    public = FlagField(default=True)
    team = text_field("Slug of your team that owns a new system. Default: your first team.", required=False)
    anonymous_until = serializers.DateField(
        required=False,
        help_text="Date, at most nine months ahead, until which a new system's team, authors, and links are hidden.",
    )
    run_type = serializers.ChoiceField(
        choices=["automatic", "manual", "closed", "gold"],
        required=False,
        help_text="Required in a round. `closed` (closed book) and `gold` (gold evidence) are not ranked.",
    )
    tag = text_field(
        "Run tag: 1 to 24 letters, digits, dots, hyphens, and underscores; unique among the team's runs in a "
        "round. Default: the tag in the file.",
        required=False,
    )
    priority = integer_field(
        "Priority among the team's runs in the round, 1 is highest. Default: the next free one.",
        required=False,
    )
    architecture = text_field(
        "Architecture, required for a new system unless the header of its run states it.", required=False
    )
    parameters = text_field(
        "JSON object or key=value pairs: engine parameters of a model (spaces in prompts are preserved), or the "
        "parameters that describe the system of runs.",
        required=False,
    )
    prompts = PromptsField(
        help_text="JSON object that maps dataset slugs to `query_prompt` and `document_prompt` (or "
        "`prompt`), if a model's prompts differ from those in `parameters`."
    )
    training_datasets = TextsField(help_text="Slugs or names of training datasets; `none` declares zero-shot.")
    adapted_to = TextsField(
        help_text="Slugs or names of datasets on this site whose corpus the system was trained on without labels."
    )
    closed_api = flag_field("Whether the system uses a paid API.", default=False)
    variant_of = text_field("Slug of the system on this site that this one is a variant of.", required=False)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `accept_submission` for runs, or of `accept_model` for a model.

        Both contain `system` and `options`. Runs also have `files` and `seeds`, and a model has a ModelRequest as
        `request`. Raises ApiError or Refused.
        """
        values, person = super().to_internal_value(data), require_user(self.context["request"])
        if values["kind"] == "run":
            run_arguments = {"files": values["files"], "seeds": split_labels(values["seed"])}
            return {**_system_and_options(data, values, person), **run_arguments}
        engine = intake.find_engine(values["engine"])
        archive = intake.one_archive(values["files"], values["pooling"])
        request = intake.ModelRequest(
            engine=engine.name,
            parameters=_engine_parameters(data, engine),
            prompts=values["prompts"],
            model=intake.chosen_model(person, archive, str(data.get("checkpoint_id") or "").strip(), values),
            datasets=tuple(values["dataset"]),
            benchmark=values["benchmark"],
            runs=tuple(values["run"]),
            device=values["device"],
            local=is_local_request(self.context["request"]),
        )
        return {**_system_and_options(data, values, person, engine), "request": request}


# The remaining fields are declared by the forms.
SubmissionRequest._declared_fields.update(
    {
        name: build_schema_field(field)
        for form_name, field in {**SubmissionForm.base_fields, **SystemForm.base_fields}.items()
        if form_name not in _PAGE_FIELDS
        and (name := FORM_NAMES.get(form_name, form_name)) not in SubmissionRequest._declared_fields
    }
)


def _engine_parameters(data: Mapping[str, Any], engine: EngineDescription) -> Mapping[str, object]:
    """Parse the engine's parameters, keeping all spaces in prompts.

    Raises ApiError if the parameters are malformed or a value is neither a string nor a number.
    """
    prompts = [parameter.name for parameter in intake.prompt_parameters(engine)]
    field = ParametersField(required=False, max_length=5000, verbatim=prompts)
    try:
        values = field.clean(str(data.get("parameters", "")))
    except ValidationError as error:
        raise field_error("parameters", f"parameters: {error.messages[0]}") from None
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            hint = 'Send a string or a number. Write a list as a string, such as "1,0.5".'
            raise field_error(
                "parameters", f"parameters: {name} = {json.dumps(value)} is not a string or number.", hint
            )
    return values


def _system_and_options(
    data: Mapping[str, Any], values: Mapping[str, Any], person: User, engine: EngineDescription | None = None
) -> dict[str, Any]:
    """Return the `system` (an existing one or the description of a new one) and the `options` of a submission.

    `engine` is None for runs. Raises ApiError if a field is invalid, the person is not a member of the team, or the
    request changes the description or anonymity of an existing system.
    """
    teams = list(get_teams(person))
    form_data = {name: str(data.get(name) or "") for name in SubmissionForm.base_fields}
    form_data |= {"public": "yes" if values["public"] else "no", "reusable": values["reusable"]}
    form = SubmissionForm({**form_data, "team": form_data["team"].strip()}, teams=teams)
    if "team" in form.errors:
        team_slugs = ", ".join(team.slug for team in teams)
        raise field_error(
            "team",
            f"You are not a member of a team “{form_data['team'].strip()}”.",
            f"Your teams: {team_slugs}.",
        )
    require_valid(form)
    options = form.options()
    own_teams = [options.team] if options.team else teams
    system = _find_or_describe_system(data, person, own_teams, engine, values["files"])
    if isinstance(system, System) and options.changes_anonymity(system):
        raise field_error(
            "anonymous_until",
            f"“{system.name}” exists already and is not anonymous until {options.anonymous_until}.",
            f"Change the date on /systems/{system.slug}/edit/ and omit the field here.",
        )
    return {"system": system, "options": options}


def _find_or_describe_system(
    data: Mapping[str, Any],
    person: User,
    teams: Sequence[Team],
    engine: EngineDescription | None,
    files: Sequence[IncomingFile],
) -> System | SystemFields:
    """Return the teams' system with this slug or name, or the description of a new system.

    The field `system` contains a slug, a name, or a JSON object with the description. The architecture of a new system
    is that of the engine or of the header of a run by default. Raises ApiError if no system or architecture is named,
    the description is invalid, or it differs from that of the existing system.
    """
    system_text = str(data.get("system", "")).strip()
    if not system_text:
        raise field_error("system", "No system was named.", "Send system= with the slug of your system or a new name.")
    if system_text.startswith("{"):
        try:
            description = {name: _to_form_text(value) for name, value in dict(read_json(system_text)).items()}
        except (ValueError, TypeError) as error:
            raise field_error("system", f"system: not a JSON object: {error}", 'Send {"name": …}.') from None
    else:
        names = [*SystemForm.base_fields, *ALIASES]
        if engine is not None:
            names.remove("parameters")  # these are the engine's parameters
        field_texts = {name: texts for name in names if (texts := get_list(data, name))}
        lists = ("training_datasets", "adapted_to")
        description = {name: ", ".join(texts) if name in lists else texts[-1] for name, texts in field_texts.items()}
        description["name"] = system_text
    description = {ALIASES.get(name, name): text for name, text in description.items()}
    system = find_system(teams, description.get("name", ""))
    if system is not None:
        _refuse_changes(system, description)
        return system
    if not description.get("architecture"):
        description["architecture"] = architecture_in_headers(files) if engine is None else engine.architecture
    if not description["architecture"]:
        system_slugs = ", ".join(get_systems(person).values_list("slug", flat=True)[:20])
        raise field_error(
            "architecture",
            f"You have no system “{description.get('name', '')}”, and a new system needs an architecture.",
            "Send an architecture, such as architecture=dense, or name one of your systems: "
            f"{system_slugs or 'none yet'}.",
        )
    form = SystemForm(description)
    require_valid(form)
    return form.build_system_fields()


def _refuse_changes(system: System, description: Mapping[str, str]) -> None:
    """Raise ApiError if the description of an existing system is invalid or differs from the system's fields.

    Scripts may repeat the same description for every dataset.
    """
    form = SystemForm({"architecture": system.architecture, **description, "name": system.name}, system=system)
    names = [name for name in description if name in form.fields and name != "name"]
    if not names:
        return
    require_valid(form)
    if unequal_fields := form.differing_fields(system, names):
        raise field_error(
            "system",
            f"You have a system “{system.name}” ({system.slug}) already, with a different {', '.join(unequal_fields)}.",
            "Omit these fields to submit for it, or give the new system another name.",
        )


def _to_form_text(value: Any) -> str:
    """Convert a JSON value to the text that a form expects.

    Items of a list are separated by commas; an empty list is “none”.
    """
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, dict):
        return json.dumps(value)
    return "" if value is None else str(value)
