"""Descriptions of new systems from run headers, as written by the client's `retrieve` and `rerank`.

A header names the architecture (`name`), the `dimension`, and how others can run the model: `closed_interface: true`,
or `open_weights: true` with the model's `hub_model` and `hub_commit`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.archives import hub
from evaluation.core.problems import InvalidContent, ProblemCode
from evaluation.runs.header import MAX_HEADER_BYTES, read_header
from leaderboard.models import DECLARED_NUMBERS, System, architecture_choices
from leaderboard.systems.records import SystemFields
from submissions.core.errors import Refused
from submissions.intake.files import CheckedFile, IncomingFile
from submissions.intake.recognition import read_start

CLOSED_INTERFACE = ProblemCode(
    "closed_interface",
    "The run's header declares a closed interface, but the system is not marked as using a paid API.",
    "Edit the system to mark it, or submit the run for another system.", "# closed_interface: true",
)  # fmt: skip
_GREATEST_DIMENSION = next(number.greatest for number in DECLARED_NUMBERS if number.name == "dimension")


def architecture_in_headers(files: Iterable[IncomingFile]) -> str:
    """Return the first architecture that a run's header states, or an empty string. Zips are skipped."""
    architectures = dict(architecture_choices())
    methods = (_retrieval_method(_read_metadata(file.path)) for file in files if not file.is_zip)
    return next((str(method["name"]) for method in methods if method.get("name") in architectures), "")


def describe_from_headers(system: System | SystemFields, files: Iterable[CheckedFile]) -> System | SystemFields:
    """Add values from the headers of runs to the description of a new system. Submitted values take precedence.

    Boards rank systems with a closed interface separately. Raises Refused if an existing system is not marked as
    closed although a header says so, because all its other results would then be ranked separately.
    """
    headers = [
        (file.run.name, file.report.statistics.metadata if file.report else _read_metadata(file.run.path))
        for file in files
    ]
    closed_names = [name for name, metadata in headers if _is_closed(metadata)]
    if isinstance(system, System):
        if closed_names and not system.closed_api:
            raise Refused.for_problem(
                CLOSED_INTERFACE,
                f"{closed_names[0]} declares a closed interface, but “{system.name}” is not marked as using a paid "
                "API.",
                CLOSED_INTERFACE.remedy,
            )
        return system
    method = next(filter(None, (_retrieval_method(metadata) for _, metadata in headers)), {})
    is_closed = system.closed_api or bool(closed_names)
    has_open_weights = _is_true(method.get("open_weights")) and not is_closed
    return replace(
        system,
        closed_api=is_closed,
        open_weights=has_open_weights or None if system.open_weights is None else system.open_weights,
        model_url=system.model_url or (_hub_address(method) if has_open_weights else ""),
        dimension=system.dimension or _dimension(method),
    )


def _read_metadata(path: Path) -> Mapping[str, Any]:
    """Return the metadata in a run's header, or an empty mapping if it is unreadable. Validation reports that."""
    try:
        return read_header(read_start(path, MAX_HEADER_BYTES - 1)).metadata
    except (InvalidContent, FileNotFoundError):
        return {}


def _retrieval_method(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first retrieval method of the metadata, or an empty mapping."""
    methods = metadata.get("method")
    steps = methods.get("retrieval") if isinstance(methods, Mapping) else None
    step = steps[0] if isinstance(steps, list) and steps else steps
    return step if isinstance(step, Mapping) else {}


def _hub_address(method: Mapping[str, Any]) -> str:
    """Return the address of the model at its commit on the Hugging Face Hub, or an empty string."""
    name, commit = str(method.get("hub_model", "")), str(method.get("hub_commit", ""))
    is_valid = hub.NAME.fullmatch(name) and hub.COMMIT.fullmatch(commit)
    return f"https://huggingface.co/{name}/tree/{commit}" if is_valid else ""


def _dimension(method: Mapping[str, Any]) -> int | None:
    text = str(method.get("dimension", ""))
    return int(text) if text.isdecimal() and len(text) < 8 and 0 < int(text) <= _GREATEST_DIMENSION else None


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


def _is_closed(value: Any) -> bool:
    """Return whether metadata, or a mapping nested in it, contains `closed_interface: true`."""
    if isinstance(value, list):
        return any(map(_is_closed, value))
    if not isinstance(value, Mapping):
        return False
    return _is_true(value.get("closed_interface")) or any(map(_is_closed, value.values()))
