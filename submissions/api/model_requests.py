"""What an API request about a model means, in the domain's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from django.forms import ValidationError
from django.http import QueryDict
from rest_framework.request import Request

from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import ProblemCode
from evaluation.engines import EngineDescription
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import User
from submissions.accounts.permissions import checkpoints_of
from submissions.api.requests import ONE_FILE, about, data_of, list_of, malformed, system_and_owner
from submissions.checkpoints.hub import HubModel
from submissions.checkpoints.service import Source
from submissions.core.errors import Refused
from submissions.intake.files import incoming, incoming_upload
from submissions.intake.forms import ParametersField
from submissions.intake.models.intake import (
    NO_CHECKPOINT,
    POOLINGS,
    Device,
    Model,
    ModelRequest,
    archive_in,
    engine_of,
    kinds_of,
)
from submissions.intake.models.readiness import is_local
from submissions.models import Upload
from submissions.uploads.handler import CHECKPOINT_FIELD
from submissions.uploads.request_size import refuse_oversize

UNKNOWN_CHECKPOINT = ProblemCode(
    "unknown_checkpoint", "Your team has sent no such checkpoint.", "The message lists those that it has."
)  # fmt: skip


def model_of(request: Request, person: User) -> dict[str, Any]:
    """What `accept_model` takes. Raises ApiError for a malformed request, Refused for an oversized one."""
    refuse_oversize(request)
    data = data_of(request)
    engine = engine_of(_text(data, "engine"))
    device = _text(data, "device") or "auto"
    if device not in get_args(Device):
        raise malformed("device", f"device: “{device}” is not possible.", "Send auto, cpu or gpu.")
    wanted = ModelRequest(
        engine=engine.name,
        parameters=_parameters(data, engine),
        model=_model(request, data, person),
        datasets=tuple(list_of(data, "dataset")),
        benchmark=_text(data, "benchmark"),
        runs=tuple(list_of(data, "run")),
        device=device,  # type: ignore[arg-type]  # one of the literals, as just checked
    )
    system = system_and_owner(
        data, person, described=_without_parameters(data), architecture=engine.architecture
    )
    return {**system, "request": wanted, "local": is_local(request), **about(data)}


def checkpoint_to_check(request: Request, person: User) -> tuple[Source, tuple[CheckpointKind, ...]]:
    """The archive, and the kinds that the named engine, where one is named, would run. Raises Refused."""
    refuse_oversize(request)
    archive = _archive(request, person)
    if archive is None:
        raise Refused.of(NO_CHECKPOINT, "No checkpoint was sent.", "Send -F checkpoint=@model.zip.")
    engine = _text(data_of(request), "engine")
    return archive, kinds_of(engine_of(engine)) if engine else ()


def _archive(request: Request, person: User) -> Source | None:
    """The archive that came, or the upload that is named. Raises Refused."""
    data = data_of(request)
    files = [incoming(upload) for upload in request.FILES.getlist(CHECKPOINT_FIELD)]
    files += [incoming_upload(person, each, Upload.Kind.MODEL) for each in list_of(data, "upload")]
    if len(files) > 1:
        raise Refused.of(ONE_FILE, "Several checkpoints were sent.", "Send one archive for one submission.")
    return archive_in(files[0], _pooling(data)) if files else None


def _pooling(data: Mapping[str, Any]) -> str:
    """How a plain encoder's tokens become one output, where the request says it. Raises ApiError."""
    asked = _text(data, "pooling")
    if asked and asked not in POOLINGS:
        raise malformed("pooling", f"pooling: “{asked}” is not known.", f"Send one of {', '.join(POOLINGS)}.")
    return asked


def _model(request: Request, data: Mapping[str, Any], person: User) -> Model | None:
    """The one model that is meant. Raises ApiError where several are, Refused where it is not the team's."""
    archive, number, hub = _archive(request, person), _text(data, "checkpoint_id"), _text(data, "hub_model")
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


def _without_parameters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields without those that are the engine's, where a system has fields of the same name."""
    if not isinstance(data, QueryDict):
        return {name: value for name, value in data.items() if name != "parameters"}
    rest = QueryDict(mutable=True)
    for name, values in data.lists():
        if name not in ("parameters", CHECKPOINT_FIELD):
            rest.setlist(name, values)
    return rest


def _text(data: Mapping[str, Any], name: str) -> str:
    return str(data.get(name) or "").strip()
