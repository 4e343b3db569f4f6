"""Models as MTEB describes them (ModelMeta), as fields of systems."""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from django.core.exceptions import ValidationError

from leaderboard.importing.reported import tables
from leaderboard.models import Architecture, System
from leaderboard.results.mteb import BASELINES, MODEL_TYPES, TASKS

#: Field of ModelMeta → field of a system with the same value.
_FIELDS = {
    "n_parameters": "parameter_count", "embed_dim": "dimension", "max_tokens": "maximum_length", "license": "licence",
    "open_weights": "open_weights", "reference": "model_url", "public_training_code": "code_url",
    "adapted_from": "backbone", "citation": "bibtex",
}  # fmt: skip
_ARCHITECTURES = {types[0]: kind for kind, types in MODEL_TYPES.items() if types} | {"router": Architecture.OTHER}


class InvalidFile(Exception):
    """A problem with a file, such as `name is 5, but should be text`."""


def system_fields(name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a system from MTEB's ModelMeta, validated and cleaned.

    Raises InvalidFile with all fields of a wrong type, or with other invalid values.
    """
    if problems := [
        f"{name} is {abbreviate(meta[name])}, but should be {description}"
        for name, (is_valid, description) in _TYPES.items()
        if meta.get(name) is not None and not is_valid(meta[name])
    ]:
        raise InvalidFile("; ".join(problems))
    fields = {field: meta[meta_name] for meta_name, field in _FIELDS.items() if meta.get(meta_name) is not None}
    if isinstance(fields.get("dimension"), list):  # Matryoshka: all possible dimensions
        fields["dimension"] = max(fields["dimension"], default=None)
    if isinstance(maximum_length := fields.get("maximum_length"), float):
        fields["maximum_length"] = int(maximum_length) if math.isfinite(maximum_length) else None
    if meta.get("release_date") is not None:
        fields["year"] = date.fromisoformat(meta["release_date"]).year
    if (training_datasets := meta.get("training_datasets")) is not None:
        if not isinstance(training_datasets, dict | list) or not all(
            isinstance(task, str) for task in training_datasets
        ):
            raise InvalidFile(f"training_datasets is {abbreviate(training_datasets)}, but should be names of tasks")
        fields["training_declared"] = True
    if tasks := {*(training_datasets or ()), *_inherited_tasks(meta)}:
        slugs = {task: slug for slug, task in TASKS.items()}
        fields["training_datasets"] = sorted({slugs.get(task, task) for task in tasks})
    # mteb treats models without a type as dense.
    types, framework = meta.get("model_type") or ["dense"], meta.get("framework") or []
    if meta.get("is_cross_encoder") and "model_type" not in meta:
        types = ["cross-encoder"]
    kind = _ARCHITECTURES.get(types[0]) if isinstance(types, list) and isinstance(types[0], str) else None
    if kind is None:
        raise InvalidFile(f"model_type is {abbreviate(types)}, but should be one of {', '.join(_ARCHITECTURES)}")
    is_bm25 = name in BASELINES or ("bm25" in name.lower() and types == ["sparse"])
    fields["architecture"] = Architecture.LEXICAL if is_bm25 else kind
    fields["closed_api"] = "API" in framework
    meta_name = {system_name: name for name, system_name in _FIELDS.items()}
    system = System(name=name, **fields)
    try:
        system.clean_fields(exclude=["slug"])
    except ValidationError as error:
        problems = [f"{meta_name.get(field, field)}: {' '.join(texts)}" for field, texts in error.message_dict.items()]
        raise InvalidFile(" ".join(problems)) from error
    return {field: getattr(system, field) for field in fields}


def _inherited_tasks(meta: Mapping[str, Any]) -> set[str]:
    """Return the training tasks of the models that a model was adapted from, as far as MTEB describes them."""
    parent = tables.models().get(meta.get("adapted_from") or "")
    return {*(parent.get("training_datasets") or ()), *_inherited_tasks(parent)} if parent else set()


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value % 1 == 0


def _is_date(value: Any) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", value) and date.fromisoformat(value))
    except (TypeError, ValueError):
        return False


#: Field of ModelMeta → validation function, and description of valid values. `max_tokens` may be infinite.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_parameters": (_is_whole, "a whole number"),
    "embed_dim": (
        lambda value: all(map(_is_whole, value if isinstance(value, list) else [value])),
        "a whole number, or a list of them",
    ),
    "max_tokens": (
        lambda value: _is_whole(value) or (isinstance(value, float) and not math.isfinite(value)),
        "a whole number",
    ),
    "open_weights": (lambda value: isinstance(value, bool), "true or false"),
    "framework": (lambda value: isinstance(value, list), "a list of names"),
    "release_date": (_is_date, "a date such as 2021-08-30"),
    **dict.fromkeys(
        ("license", "reference", "public_training_code", "adapted_from", "citation"),
        (lambda value: isinstance(value, str), "text"),
    ),
}


def abbreviate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
