"""What is submitted or checked: runs, or a model that is run here. These serializers read it, and are its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from django import forms
from django.forms import ValidationError
from django.http import QueryDict
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import ProblemCode
from evaluation.engines import ENGINES, EngineDescription
from leaderboard.core.text.json import read_json
from leaderboard.core.text.names import validate_text
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import User
from submissions.accounts.permissions import checkpoints_of, signed_in
from submissions.api.requests import (
    ALIASES,
    RequestSerializer,
    list_of,
    malformed,
    read_submission_fields,
    system_and_owner,
)
from submissions.checkpoints.hub import HubModel
from submissions.checkpoints.service import CheckpointArchive
from submissions.core.errors import Refused
from submissions.intake.checkpoints import intake
from submissions.intake.checkpoints.readiness import is_local_request
from submissions.intake.files import IncomingFile, incoming_file, incoming_upload, pair_with_datasets
from submissions.intake.forms import ParametersField, SubmissionForm
from submissions.intake.seed_labels import split_labels
from submissions.intake.system_form import OptionalBooleanField, SystemForm
from submissions.models import Upload
from submissions.uploads.handler import CHECKPOINT_FIELD
from submissions.uploads.request_size import refuse_oversize

ONE_FILE = ProblemCode("one_file", "Several files were sent to be checked.", "The API checks one file at a "
    "time.")  # fmt: skip
UNKNOWN_CHECKPOINT = ProblemCode("unknown_checkpoint", "Your team has sent no such checkpoint.", "The message lists "
    "those that it has.")  # fmt: skip


@extend_schema_field({"type": "string", "format": "binary"})
class UploadField(serializers.FileField):
    """A file that is sent; the generator would call it an address, which it is in answers."""


KINDS = ("run", "model")
#: Fields of the forms that requests have under another name, or not at all.
_OF_MODELS = ("parameters", "prompts")
_OF_PAGES = frozenset({"system", "seeds", "name", "training_none"})
_MADE = (
    (forms.IntegerField, serializers.IntegerField),
    (forms.URLField, serializers.URLField),
    ((forms.BooleanField, OptionalBooleanField), serializers.BooleanField),
)


def field_of(field: forms.Field) -> serializers.Field[Any, Any, Any, Any]:
    """A form's field as the schema has it."""
    made = next((made for known, made in _MADE if isinstance(field, known)), serializers.CharField)
    told = (
        f"{field.help_text} Left out: not said."
        if isinstance(field, OptionalBooleanField)
        else field.help_text
    )
    return made(required=False, help_text=told or None)


class CheckRequest(RequestSerializer):
    """A file to check."""

    kind = serializers.ChoiceField(choices=KINDS, default="run")
    dataset = serializers.CharField(
        required=False, help_text="Slug; may be left out where the file is named after it."
    )
    file = UploadField(required=False, help_text="A run.")
    checkpoint = UploadField(required=False, help_text="Of kind=model: a zip or tar.zst.")
    upload = serializers.CharField(
        required=False, help_text="Instead of either: id of an upload that came in pieces. It stays."
    )
    engine = serializers.CharField(required=False, help_text="Of kind=model: the engine that is to run it.")

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The kind, and what is to be checked of it. Raises ApiError or Refused."""
        request: Request = self.context["request"]
        refuse_oversize(request)  # first: what a request that was cut off seems to say is misleading
        person, kind = signed_in(request), kind_of(data)
        if kind == "model":
            return {"kind": kind, "checkpoint": checkpoint_to_check(request, data, person)}
        seeds = split_labels(list_of(data, "seed"))
        return {"kind": kind, "files": files_of(request, data, person), "seeds": seeds}


class SubmissionRequest(RequestSerializer):
    """A submission of runs, or of a model that is run here.

    Of runs: `dataset` and `file` may repeat, and pair in order; a zip names its files `<dataset>.*`. Several files for
    one dataset (two to five; one `dataset` is enough then, or `<dataset>.<seed>.*` in a zip) are seeds of the system,
    and one result: their mean and deviation. Of a model:
    `engine`, the model (`checkpoint`, `checkpoint_id` or `hub_model`) where the engine needs one, and the datasets.
    """

    kind = serializers.ChoiceField(choices=KINDS, default="run")
    system = serializers.CharField(
        help_text="Slug or name of yours, a new name, or a JSON object of the fields below."
    )
    dataset = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Slugs: of runs one for each file, of a model those that it is run on.",
    )
    file = serializers.ListField(child=UploadField(), required=False, help_text="Runs.")
    upload = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Ids of uploads that came in pieces: runs, after those in `file`, or the model. Used up on 201.",
    )
    seed = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Labels of seeds in the order of their files; may be one list with commas. Else file names tell.",
    )
    engine = serializers.ChoiceField(choices=list(ENGINES), required=False, help_text="What runs the model.")
    checkpoint = UploadField(required=False, help_text="The model: a zip or tar.zst of its folder.")
    pooling = serializers.ChoiceField(
        choices=intake.POOLINGS, required=False, help_text="Of a plain encoder whose files do not say it."
    )
    checkpoint_id = serializers.IntegerField(required=False, help_text="A model that your team sent before.")
    hub_model = serializers.CharField(
        required=False, help_text="owner/name on the hub, where the site fetches models."
    )
    hub_commit = serializers.CharField(required=False, help_text="Its commit, 40 hexadecimal digits.")
    benchmark = serializers.CharField(required=False, help_text="Instead of datasets: all that are here.")
    run = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Runs to re-rank or fuse: ids of submissions, or slugs of the site's own systems.",
    )
    device = serializers.ChoiceField(choices=get_args(intake.Device), default="auto")
    reusable = serializers.BooleanField(default=False, help_text="Others may re-rank and fuse its runs.")
    public = serializers.BooleanField(default=True)
    team = serializers.CharField(
        required=False, help_text="Slug of the team of yours that a new system is of; left out: your first."
    )
    anonymous_until = serializers.DateField(
        required=False,
        help_text="Until that day, nine months away at most, a new system's team, authors and links are kept back.",
    )
    run_type = serializers.ChoiceField(
        choices=["automatic", "manual"], required=False, help_text="Needed in a round."
    )
    tag = serializers.CharField(
        required=False,
        help_text="Run tag: 1 to 24 letters, digits, dots, hyphens and underscores. In a round unique within the "
        "team's runs; left out, the one in the file.",
    )
    priority = serializers.IntegerField(
        required=False,
        help_text="Of the team's runs in the round, 1 first; left out, the next that is free.",
    )
    architecture = serializers.CharField(required=False, help_text="Needed for a new system.")
    parameters = serializers.CharField(
        required=False,
        help_text="JSON object or key=value pairs: of a model its engine's, prompts to the last blank; of runs what "
        "the system says of itself.",
    )
    prompts = serializers.CharField(
        required=False,
        help_text="Of a model, JSON object: slug of a dataset → its own query_prompt, document_prompt (or prompt), "
        "where they are not those of `parameters`.",
    )
    training_datasets = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Slugs or names; `none` declares zero-shot."
    )
    adapted_to = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Slugs or names of datasets here whose corpus it saw, without labels.",
    )
    closed_api = serializers.BooleanField(default=False, help_text="Runs behind somebody's paid API.")
    variant_of = serializers.CharField(required=False, help_text="Slug of a system here.")

    def get_fields(self) -> dict[str, Any]:
        """These, and what the forms alone declare."""
        names = {form_name: name for name, form_name in ALIASES.items() if name != "license"}
        declared = {**SubmissionForm.base_fields, **SystemForm.base_fields}
        found = {names.get(name, name): field for name, field in declared.items() if name not in _OF_PAGES}
        own = super().get_fields()
        return {**own, **{name: field_of(field) for name, field in found.items() if name not in own}}

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The kind, and what `accept_submission` or `accept_model` takes. Raises ApiError or Refused."""
        request: Request = self.context["request"]
        refuse_oversize(request)  # first, as above
        person, kind = signed_in(request), kind_of(data)
        if kind == "model":
            return {"kind": kind, "given": model_of(request, data, person)}
        # Seeds may repeat, and one field may hold several, separated by commas.
        brought = {"files": files_of(request, data, person), "seeds": split_labels(list_of(data, "seed"))}
        return {
            "kind": kind,
            "given": {**system_and_owner(data, person), **brought, **read_submission_fields(data)},
        }


def files_of(request: Request, data: Mapping[str, Any], person: User) -> list[IncomingFile]:
    """The files that came, then the person's uploads that are named, with their datasets.

    Raises Refused where they do not pair, or an upload is not there.
    """
    files = [incoming_file(upload) for upload in request.FILES.getlist("file")]
    named = [incoming_upload(person, each, Upload.Kind.RUN) for each in list_of(data, "upload")]
    return pair_with_datasets([*files, *named], list_of(data, "dataset"))


def kind_of(data: Mapping[str, Any]) -> str:
    """What is brought, "run" or "model"; missing is a run. Raises ApiError for anything else."""
    kind = str(data.get("kind") or "run")
    if kind not in KINDS:
        raise malformed("kind", f"“{kind}” cannot be submitted.", "Send kind=run or kind=model.")
    return kind


def model_of(request: Request, data: Mapping[str, Any], person: User) -> dict[str, Any]:
    """What `accept_model` takes. Raises ApiError for a malformed request."""
    engine = intake.engine_of(_text(data, "engine"))
    device = _text(data, "device") or "auto"
    if device not in get_args(intake.Device):
        raise malformed("device", f"device: “{device}” is not possible.", "Send auto, cpu or gpu.")
    wanted = intake.ModelRequest(
        engine=engine.name,
        parameters=_parameters(data, engine),
        prompts=_prompts(data),
        model=_model(request, data, person),
        datasets=tuple(list_of(data, "dataset")),
        benchmark=_text(data, "benchmark"),
        runs=tuple(list_of(data, "run")),
        device=device,  # type: ignore[arg-type]  # one of the literals, as just checked
    )
    system = system_and_owner(
        data, person, described=_without_parameters(data), architecture=engine.architecture
    )
    return {**system, "request": wanted, "local": is_local_request(request), **read_submission_fields(data)}


def checkpoint_to_check(
    request: Request, data: Mapping[str, Any], person: User
) -> tuple[CheckpointArchive, tuple[CheckpointKind, ...]]:
    """The archive, and the kinds that the named engine, where one is named, would run. Raises Refused."""
    archive = _archive(request, data, person)
    if archive is None:
        raise Refused.of(intake.NO_CHECKPOINT, "No checkpoint was sent.", "Send -F checkpoint=@model.zip.")
    engine = _text(data, "engine")
    return archive, intake.kinds_of(intake.engine_of(engine)) if engine else ()


def _archive(request: Request, data: Mapping[str, Any], person: User) -> CheckpointArchive | None:
    """The archive that came, or the upload that is named. Raises Refused."""
    files = [incoming_file(upload) for upload in request.FILES.getlist(CHECKPOINT_FIELD)]
    files += [incoming_upload(person, each, Upload.Kind.MODEL) for each in list_of(data, "upload")]
    if len(files) > 1:
        raise Refused.of(ONE_FILE, "Several checkpoints were sent.", "Send one archive for one submission.")
    return intake.archive_in(files[0], _pooling(data)) if files else None


def _pooling(data: Mapping[str, Any]) -> str:
    """How a plain encoder's tokens become one output, where the request says it. Raises ApiError."""
    asked = _text(data, "pooling")
    if asked and asked not in intake.POOLINGS:
        raise malformed(
            "pooling", f"pooling: “{asked}” is not known.", f"Send one of {', '.join(intake.POOLINGS)}."
        )
    return asked


def _model(request: Request, data: Mapping[str, Any], person: User) -> intake.Model | None:
    """The one model that is meant. Raises ApiError where several are, Refused where it is not the team's."""
    archive, number, hub = (
        _archive(request, data, person),
        _text(data, "checkpoint_id"),
        _text(data, "hub_model"),
    )
    if sum(map(bool, (archive, number, hub))) > 1:
        raise malformed(
            "checkpoint",
            "More than one model was named.",
            "Send one: checkpoint, upload, checkpoint_id or hub_model.",
        )
    if hub:
        return HubModel(hub, _text(data, "hub_commit"))
    if not number:
        return archive
    found = checkpoints_of(person).filter(pk=parse_number(number) or 0).first()
    if found is None:
        mine = ", ".join(f"{row.pk} ({row.file_name})" for row in checkpoints_of(person)[:20])
        raise Refused.of(
            UNKNOWN_CHECKPOINT,
            f"Your team has no checkpoint {number[:40]}.",
            f"It has: {mine or 'none yet'}.",
        )
    return found


def _parameters(data: Mapping[str, Any], engine: EngineDescription) -> Mapping[str, object]:
    """The engine's parameters as they were given, prompts to the last blank. Raises ApiError."""
    prompts = [parameter.name for parameter in engine.parameters if parameter.keeps_blanks]
    given = data.get("parameters", "")
    try:
        values = (
            given
            if isinstance(given, Mapping)
            else ParametersField(required=False, max_length=5000, verbatim=prompts).clean(str(given))
        )
    except ValidationError as error:
        raise malformed("parameters", f"parameters: {error.messages[0]}") from None
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            hint = 'Send a text or a number; a list as a text, such as "1,0.5".'
            raise malformed("parameters", f"parameters: {name} = {json.dumps(value)} is not one value.", hint)
    return values


def _prompts(data: Mapping[str, Any]) -> Mapping[str, Mapping[str, object]]:
    """The prompts of single datasets as they were given. Raises ApiError."""
    given = data.get("prompts") or {}
    hint = 'Send {"SLUG": {"query_prompt": "…"}}.'
    try:
        values = given if isinstance(given, Mapping) else read_json(str(given))
    except ValueError as error:
        raise malformed("prompts", f"prompts: not a JSON object: {error}", hint) from None
    if not isinstance(values, Mapping) or not all(isinstance(one, Mapping) for one in values.values()):
        raise malformed("prompts", "prompts: not an object of objects.", hint)
    for slug, prompts in values.items():
        for name, prompt in prompts.items():
            if not isinstance(prompt, str) or len(prompt) > intake.LONGEST_PROMPT:
                raise malformed(
                    "prompts",
                    f"prompts: {name} of {slug} is no text of at most {intake.LONGEST_PROMPT:,} characters.",
                    hint,
                )
            try:
                validate_text(prompt)
            except ValidationError as error:
                raise malformed("prompts", f"prompts: {name} of {slug}: {error.messages[0]}", hint) from None
    return values


def _without_parameters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields without those that are the engine's, where a system has fields of the same name."""
    if not isinstance(data, QueryDict):
        return {name: value for name, value in data.items() if name not in _OF_MODELS}
    rest = QueryDict(mutable=True)
    for name, values in data.lists():
        if name not in (*_OF_MODELS, CHECKPOINT_FIELD):
            rest.setlist(name, values)
    return rest


def _text(data: Mapping[str, Any], name: str) -> str:
    return str(data.get(name) or "").strip()
