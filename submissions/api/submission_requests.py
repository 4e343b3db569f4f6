"""Requests that submit or check runs, or a model that is run here."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from django import forms
from django.forms import ValidationError
from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.fields import empty

from evaluation.engines import ENGINES, EngineDescription
from leaderboard.api.fields import flag_field, integer_field, text_field
from leaderboard.core.text.json import read_json
from leaderboard.core.text.names import validate_text
from leaderboard.models import System, Team, User
from leaderboard.systems.records import SystemFields, find_system
from submissions.accounts.permissions import signed_in, systems_of, teams_of
from submissions.api.requests import (
    ALIASES,
    FORM_NAMES,
    FlagField,
    OptionField,
    RequestSerializer,
    TextField,
    TextsField,
    list_of,
    malformed,
    require_valid,
)
from submissions.checkpoints.hub import HubModel
from submissions.core.errors import Refused
from submissions.intake.checkpoints import intake
from submissions.intake.checkpoints.readiness import is_local_request
from submissions.intake.files import incoming_files, pair_with_datasets
from submissions.intake.forms import ParametersField, SubmissionForm
from submissions.intake.runs import split_labels
from submissions.intake.system_form import COLUMNS, OptionalBooleanField, SystemForm
from submissions.models import Upload
from submissions.uploads.handler import CHECKPOINT_FIELD, refuse_oversize


@extend_schema_field({"type": "string", "format": "binary"})
class UploadField(serializers.FileField):
    """A file that is sent; the generator would call it an address, which it is in answers."""

    def get_value(self, dictionary: Mapping[str, Any]) -> Any:
        """Return all files of the name."""
        return self.context["request"].FILES.getlist(self.field_name)

    def run_validation(self, data: Any = empty) -> Any:
        """Return the files."""
        return data


class UploadsField(TextsField):
    """Files that are sent."""

    child: Any = UploadField()
    get_value = UploadField.get_value


class PromptsField(TextField):
    """A JSON object of the prompts of single datasets."""

    def run_validation(self, data: Any = empty) -> Mapping[str, Mapping[str, object]]:
        """Return the prompts by dataset and parameter. Raises ApiError."""
        hint = 'Send {"SLUG": {"query_prompt": "…"}}.'
        try:
            values = read_json(super().run_validation(data) or "{}")
        except ValueError as error:
            raise malformed("prompts", f"prompts: not a JSON object: {error}", hint) from None
        if not isinstance(values, Mapping) or not all(isinstance(one, Mapping) for one in values.values()):
            raise malformed("prompts", "prompts: not an object of objects.", hint)
        for slug, name, prompt in ((slug, *each) for slug, one in values.items() for each in one.items()):
            wrong = f"prompts: {name} of {slug}"
            if not isinstance(prompt, str) or len(prompt) > intake.LONGEST_PROMPT:
                message = f"{wrong} is no text of at most {intake.LONGEST_PROMPT:,} characters."
                raise malformed("prompts", message, hint)
            try:
                validate_text(prompt)
            except ValidationError as error:
                raise malformed("prompts", f"{wrong}: {error.messages[0]}", hint) from None
        return values


#: Fields of the forms that requests have under another name, or not at all.
_OF_PAGES = frozenset({"system", "seeds", "name", "training_none"})
_MADE = (
    (forms.IntegerField, serializers.IntegerField),
    (forms.URLField, serializers.URLField),
    ((forms.BooleanField, OptionalBooleanField), serializers.BooleanField),
)


def field_of(field: forms.Field) -> serializers.Field[Any, Any, Any, Any]:
    """Return a form's field as the schema has it."""
    made = next((made for known, made in _MADE if isinstance(field, known)), serializers.CharField)
    unsaid = " Left out: not said." if isinstance(field, OptionalBooleanField) else ""
    return made(required=False, help_text=f"{field.help_text}{unsaid}" or None)


#: Fields of requests that are validated as they are read. All others are validated by the pages' forms.
_READ = (FlagField, OptionField, TextField, TextsField, UploadField)


class _FilesRequest(RequestSerializer):
    """A request with runs or a model."""

    kind = OptionField(
        ("run", "model"), "“{}” cannot be submitted.", "Send kind=run or kind=model.", default="run"
    )
    pooling = OptionField(
        intake.POOLINGS,
        "pooling: “{}” is not known.",
        f"Send one of {', '.join(intake.POOLINGS)}.",
        required=False,
        help_text="Of a plain encoder whose files do not say it.",
    )

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields, and the files with the uploads. Raises ApiError or Refused."""
        request = self.context["request"]
        refuse_oversize(request)  # first: what a request that was cut off seems to say is misleading
        person = signed_in(request)
        read = {name: field for name, field in self.fields.items() if isinstance(field, _READ)}
        values: dict[str, Any] = {
            name: field.run_validation(field.get_value(data)) for name, field in read.items()
        }
        kind = Upload.Kind(values["kind"])
        sent = values[CHECKPOINT_FIELD if kind == Upload.Kind.MODEL else "file"]
        files = incoming_files(person, sent, list_of(data, "upload"), kind)
        if kind == Upload.Kind.RUN:
            files = pair_with_datasets(files, list_of(data, "dataset"))
        return {**values, "files": files}


@extend_schema_serializer(exclude_fields=("pooling", "seed"))
class CheckRequest(_FilesRequest):
    """A file to check."""

    dataset = TextField(help_text="Slug; may be left out where the file is named after it.")
    file = UploadField(required=False, help_text="A run.")
    checkpoint = UploadField(required=False, help_text="Of kind=model: a zip or tar.zst.")
    upload = TextField(help_text="Instead of either: id of an upload that came in pieces. It stays.")
    engine = TextField(help_text="Of kind=model: the engine that is to run it.")
    seed = TextsField()

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return `files` and `seeds` of runs, else the `checkpoint` with the kinds that its engine would run."""
        values = super().to_internal_value(data)
        if values["kind"] == "run":
            return {"files": values["files"], "seeds": split_labels(values["seed"])}
        archive = intake.one_archive(values["files"], values["pooling"])
        if archive is None:
            raise Refused.of(
                intake.NO_CHECKPOINT, "No checkpoint was sent.", "Send -F checkpoint=@model.zip."
            )
        engine = values["engine"]
        return {"checkpoint": (archive, intake.kinds_of(intake.engine_of(engine)) if engine else ())}


class SubmissionRequest(_FilesRequest):
    """A submission of runs, or of a model that is run here.

    Of runs: `dataset` and `file` may repeat, and pair in order; a zip names its files `<dataset>.*`. Several files for
    one dataset (two to five; one `dataset` is enough then, or `<dataset>.<seed>.*` in a zip) are seeds of the system,
    and one result: their mean and deviation. Of a model:
    `engine`, the model (`checkpoint`, `checkpoint_id` or `hub_model`) where the engine needs one, and the datasets.
    """

    system = text_field("Slug or name of yours, a new name, or a JSON object of the fields below.")
    dataset = TextsField(help_text="Slugs: of runs one for each file, of a model those that it is run on.")
    file = UploadsField(help_text="Runs.")
    upload = TextsField(
        help_text="Ids of uploads that came in pieces: runs, after those in `file`, or the model. Used up on 201."
    )
    seed = TextsField(
        help_text="Labels of seeds in the order of their files; may be one list with commas. Else file names tell."
    )
    engine = OptionField(list(ENGINES), required=False, help_text="What runs the model.")
    checkpoint = UploadField(required=False, help_text="The model: a zip or tar.zst of its folder.")
    checkpoint_id = integer_field("A model that your team sent before.", required=False)
    hub_model = TextField(help_text="owner/name on the hub, where the site fetches models.")
    hub_commit = TextField(help_text="Its commit, 40 hexadecimal digits.")
    benchmark = TextField(help_text="Instead of datasets: all that are here.")
    run = TextsField(
        help_text="Runs to re-rank or fuse: ids of submissions, or slugs of the site's own systems."
    )
    device = OptionField(
        get_args(intake.Device), "device: “{}” is not possible.", "Send auto, cpu or gpu.", default="auto"
    )
    reusable = FlagField(blank=False, default=False, help_text="Others may re-rank and fuse its runs.")
    public = FlagField(default=True)
    team = text_field(
        "Slug of the team of yours that a new system is of; left out: your first.", required=False
    )
    anonymous_until = serializers.DateField(
        required=False,
        help_text="Until that day, nine months away at most, a new system's team, authors and links are kept back.",
    )
    run_type = serializers.ChoiceField(
        choices=["automatic", "manual"], required=False, help_text="Needed in a round."
    )
    tag = text_field(
        "Run tag: 1 to 24 letters, digits, dots, hyphens and underscores. In a round unique within the "
        "team's runs; left out, the one in the file.",
        required=False,
    )
    priority = integer_field(
        "Of the team's runs in the round, 1 first; left out, the next that is free.", required=False
    )
    architecture = text_field("Needed for a new system.", required=False)
    parameters = text_field(
        "JSON object or key=value pairs: of a model its engine's, prompts to the last blank; of runs what "
        "the system says of itself.",
        required=False,
    )
    prompts = PromptsField(
        help_text="Of a model, JSON object: slug of a dataset → its own query_prompt, document_prompt (or prompt), "
        "where they are not those of `parameters`."
    )
    training_datasets = TextsField(help_text="Slugs or names; `none` declares zero-shot.")
    adapted_to = TextsField(help_text="Slugs or names of datasets here whose corpus it saw, without labels.")
    closed_api = flag_field("Runs behind somebody's paid API.", default=False)
    variant_of = text_field("Slug of a system here.", required=False)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `accept_submission`, or with a `request` those of `accept_model`."""
        values, person = super().to_internal_value(data), signed_in(self.context["request"])
        if values["kind"] == "run":
            brought = {"files": values["files"], "seeds": split_labels(values["seed"])}
            return {**_system_and_options(data, values, person), **brought}
        engine = intake.engine_of(values["engine"])
        hub = HubModel(values["hub_model"], values["hub_commit"]) if values["hub_model"] else None
        archive = intake.one_archive(values["files"], values["pooling"])
        request = intake.ModelRequest(
            engine=engine.name,
            parameters=_engine_parameters(data, engine),
            prompts=values["prompts"],
            model=intake.chosen_model(person, archive, str(data.get("checkpoint_id") or "").strip(), hub),
            datasets=tuple(values["dataset"]),
            benchmark=values["benchmark"],
            runs=tuple(values["run"]),
            device=values["device"],
            local=is_local_request(self.context["request"]),
        )
        return {**_system_and_options(data, values, person, engine), "request": request}


# The forms alone declare the others.
SubmissionRequest._declared_fields.update(
    {
        name: field_of(field)
        for form_name, field in {**SubmissionForm.base_fields, **SystemForm.base_fields}.items()
        if form_name not in _OF_PAGES
        and (name := FORM_NAMES.get(form_name, form_name)) not in SubmissionRequest._declared_fields
    }
)


def _engine_parameters(data: Mapping[str, Any], engine: EngineDescription) -> Mapping[str, object]:
    """Return the engine's parameters as they were sent, prompts to the last blank. Raises ApiError."""
    prompts = [parameter.name for parameter in intake.prompt_parameters(engine)]
    field = ParametersField(required=False, max_length=5000, verbatim=prompts)
    try:
        values = field.clean(str(data.get("parameters", "")))
    except ValidationError as error:
        raise malformed("parameters", f"parameters: {error.messages[0]}") from None
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            hint = 'Send a text or a number; a list as a text, such as "1,0.5".'
            raise malformed("parameters", f"parameters: {name} = {json.dumps(value)} is not one value.", hint)
    return values


def _system_and_options(
    data: Mapping[str, Any], values: Mapping[str, Any], person: User, engine: EngineDescription | None = None
) -> dict[str, Any]:
    """Return the `system` and the `options` of a submission of runs, or of a model for the engine.

    The description of an existing system may be repeated; its page changes it. Raises ApiError.
    """
    mine = list(teams_of(person))
    sent = {name: str(data.get(name) or "") for name in SubmissionForm.base_fields if name != "system"}
    sent |= {"public": "yes" if values["public"] else "no", "reusable": values["reusable"]}
    form = SubmissionForm({**sent, "team": sent["team"].strip()}, systems=[], teams=mine)
    if "team" in form.errors:
        known = ", ".join(team.slug for team in mine)
        raise malformed(
            "team", f"You do not belong to a team “{sent['team'].strip()}”.", f"Your teams: {known}."
        )
    require_valid(form)
    options = form.options()
    system = _system(data, person, [options.team] if options.team else mine, engine)
    until = options.anonymous_until
    if (
        isinstance(system, System)
        and until
        and (not system.anonymous_until or system.anonymous_until.date() != until)
    ):
        raise malformed(
            "anonymous_until",
            f"“{system.name}” is there already, and not anonymous until {until}.",
            f"Change that on /systems/{system.slug}/edit/, and leave the field out here.",
        )
    return {"system": system, "options": options}


def _system(
    data: Mapping[str, Any], person: User, teams: Sequence[Team], engine: EngineDescription | None
) -> System | SystemFields:
    """Return the system of these teams with the slug or name that was sent, or the description of a new one."""
    given = str(data.get("system", "")).strip()
    if not given:
        raise malformed("system", "No system was named.", "Send system=<slug of yours> or a new name.")
    if given.startswith("{"):
        try:
            described = {name: _text(value) for name, value in dict(read_json(given)).items()}
        except (ValueError, TypeError) as error:
            raise malformed("system", f"system: not a JSON object: {error}", 'Send {"name": …}.') from None
    else:
        names = [*SystemForm.base_fields, *ALIASES]
        if engine is not None:
            names.remove("parameters")  # they are the engine's
        sent = {name: texts for name in names if (texts := list_of(data, name))}
        lists = ("training_datasets", "adapted_to")
        described = {name: ", ".join(texts) if name in lists else texts[-1] for name, texts in sent.items()}
        described["name"] = given
    described = {ALIASES.get(name, name): text for name, text in described.items()}
    system = find_system(teams, described.get("name", ""))
    if system is not None:
        _refuse_changes(system, described)
        return system
    if engine is not None:
        described = {"architecture": engine.architecture, **described}
    if not described.get("architecture"):
        known = ", ".join(systems_of(person).values_list("slug", flat=True)[:20])
        raise malformed(
            "architecture",
            f"You have no system “{described.get('name', '')}”, and a new one needs its architecture.",
            f"Send architecture=dense (or another); your systems: {known or 'none yet'}.",
        )
    form = SystemForm(described)
    require_valid(form)
    return form.fields_of_system()


def _refuse_changes(system: System, described: Mapping[str, str]) -> None:
    """Raise ApiError where the description differs: scripts may send the same one for every dataset."""
    form = SystemForm({"architecture": system.architecture, **described, "name": system.name}, system=system)
    given = [name for name in described if name in form.fields and name != "name"]
    if not given:
        return
    require_valid(form)
    fields = form.fields_of_system()
    columns = {name: COLUMNS.get(name, name) for name in given}
    changed = [name for name, column in columns.items() if getattr(fields, column) != getattr(system, column)]
    if changed:
        raise malformed(
            "system",
            f"You have a system “{system.name}” ({system.slug}) already, with another {', '.join(changed)}.",
            "Leave these fields out to submit for it, or give the new system another name.",
        )


def _text(value: Any) -> str:
    """Return a value of a JSON object as a form has it."""
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or "none"
    if isinstance(value, dict):
        return json.dumps(value)
    return "" if value is None else str(value)
