"""Read what a child left and says, as a stranger's: nothing here trusts a size, a type, a name or a link."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from evaluation.efficiency.figures import Figures
from evaluation.efficiency.hardware import Hardware
from evaluation.engines import FACTS, Retrieval, describe
from evaluation.errors import ModelFailure
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import (
    ASK_TO_MEASURE,
    FAILURE_NAME,
    RESULT_NAME,
    RUN_NAME,
    SHARD_FOLDER,
    ExecutionJob,
    Progress,
)

STAGES = ("loading", "encoding", "indexing", "searching", "measuring")
_LARGEST_FILE = 1 << 20
_LARGEST_TEXT = 2_000
_LARGEST_NOTE = 120
_LARGEST_MESSAGE = 500
_MOST_ITEMS = 1_000
_DEEPEST = 6
_LARGEST_NUMBER = 2**63
_RUN_FILE = re.compile(r"run[A-Za-z0-9._-]{0,100}\.txt", re.ASCII)
_OF_SHARD = ("number", "documents", "seconds")
_COUNTS = ("documents", "queries", "queries_without_results", "lines", "index_bytes")
_SECONDS = ("build_seconds", "search_seconds", "encoding_seconds")


class InvalidOutcome(Exception):
    """What the child left is not what a child leaves; the text, for the log, says how."""


def is_question(line: bytes) -> bool:
    """Whether the line asks to measure."""
    return line.strip() == ASK_TO_MEASURE.encode()


def read_progress(line: bytes) -> Progress | None:
    """The progress that a line tells; None where it tells none."""
    try:
        told = _parse(line)
        stage, share, note = told["stage"], told["share"], told.get("note", "")
    except (InvalidOutcome, KeyError):
        return None
    if stage not in STAGES or not isinstance(share, int | float) or not isinstance(note, str):
        return None
    return Progress(stage, min(max(float(share), 0.0), 1.0), printable(note, _LARGEST_NOTE))


def read_failure(out: Path) -> ModelFailure | None:
    """Why the model cannot be used, where the child says so in a code that exists."""
    try:
        told = _parse(_read_file(out / FAILURE_NAME))
    except InvalidOutcome:
        return None
    code, message = told.get("code"), told.get("message")
    if not isinstance(code, str) or code not in MODEL_FAILURES or not isinstance(message, str):
        return None
    return ModelFailure(code, printable(message, _LARGEST_MESSAGE))


def read_result(out: Path, job: ExecutionJob) -> dict[str, Any]:
    """The child's `result.json`, checked against the job it was given. Raises InvalidOutcome.

    "retrieve" and "measure": `retrieval` (as `engines.Retrieval`, where `variants` maps labels to names of files in
    `out`), `figures` and `variants` (figures by label) or null, `hardware`. "encode_shard": `shard` with `number`,
    `documents` and `seconds`, and `hardware`.
    """
    result = _parse(_read_file(out / RESULT_NAME))
    hardware = _cleaned(Hardware, result.get("hardware"))
    if job.task == "encode_shard":
        shard = _object(result, "shard")
        _want(shard.get("number") == job.shard, "it is another shard")
        _want(_is_count(shard.get("documents")) and _is_duration(shard.get("seconds")), "shard: numbers")
        _want((out / SHARD_FOLDER).is_dir(), "there is no shard")
        return {"shard": {name: shard[name] for name in _OF_SHARD}, "hardware": hardware}
    retrieval = _object(result, "retrieval")
    _check_retrieval(retrieval, out, job)
    retrieval = {entry.name: retrieval[entry.name] for entry in fields(Retrieval)}
    figures = None if result.get("figures") is None else _cleaned(Figures, result["figures"])
    variants = {label: _cleaned(Figures, data) for label, data in _object(result, "variants").items()}
    return {"retrieval": retrieval, "figures": figures, "variants": variants, "hardware": hardware}


def _cleaned(kind: type[Figures] | type[Hardware], data: object) -> dict[str, Any]:
    try:
        return kind.from_data(data).as_data()
    except (ValueError, TypeError) as error:
        raise InvalidOutcome(str(error)) from error


def _check_retrieval(retrieval: dict[str, Any], out: Path, job: ExecutionJob) -> None:
    for name in _COUNTS:
        _want(_is_count(retrieval.get(name)), f"{name} is no count")
    for name in _SECONDS:
        _want(_is_duration(retrieval.get(name)), f"{name} is no time")
    encoded = retrieval.setdefault("encoded_documents", None)
    _want(encoded is None or _is_count(encoded), "encoded_documents is no count")
    _want(isinstance(retrieval.get("analyser"), str), "the analyser is no text")
    facts = _object(retrieval, "facts")
    _want(set(facts) <= set(FACTS), "a fact is not known")
    _want(all(isinstance(value, str | int | float) for value in facts.values()), "a fact is no value")
    variants = _object(retrieval, "variants")
    names = list(variants.values()) if variants else [RUN_NAME]
    if job.task == "measure":
        names = []
    for name in names:
        _want(isinstance(name, str) and _RUN_FILE.fullmatch(name) is not None, "a run has a strange name")
        _want(is_plain_file(out / name), f"there is no {name}")
    # What was asked for is known better here than there.
    description = describe(job.engine)
    retrieval["engine"], retrieval["parameters"] = description.name, description.complete(job.parameters)


def is_plain_file(path: Path) -> bool:
    """Whether it is a file under this one name: no link of either kind, no folder, no device."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def printable(text: str, most: int) -> str:
    """The text on one line, without control characters, at most so long."""
    return "".join(character if character.isprintable() else " " for character in text[:most]).strip()


def _read_file(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidOutcome(f"{path.name}: {error.strerror}") from error
    try:
        _want(stat.S_ISREG(os.fstat(descriptor).st_mode), f"{path.name} is no file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_LARGEST_FILE + 1)
    finally:
        os.close(descriptor)
    _want(len(content) <= _LARGEST_FILE, f"{path.name} is too large")
    return content


def _parse(content: bytes) -> dict[str, Any]:
    """The JSON object, plain and of bounded size."""
    try:
        value = json.loads(content, parse_constant=_no_constant)
        _check_plain(value, 0)
    except (ValueError, RecursionError) as error:
        raise InvalidOutcome(f"no JSON: {type(error).__name__}") from error
    _want(isinstance(value, dict), "it is no object")
    checked: dict[str, Any] = value
    return checked


def _no_constant(name: str) -> NoReturn:
    raise InvalidOutcome(f"{name} is no number")


def _check_plain(value: object, depth: int) -> None:
    _want(depth <= _DEEPEST, "it is too deep")
    if isinstance(value, dict):
        _want(len(value) <= _MOST_ITEMS, "it has too many entries")
        for key, item in value.items():
            _want(len(key) <= _LARGEST_TEXT and key.isprintable(), "a key is strange")
            _check_plain(item, depth + 1)
    elif isinstance(value, list):
        _want(len(value) <= _MOST_ITEMS, "a list is too long")
        for item in value:
            _check_plain(item, depth + 1)
    elif isinstance(value, str):
        _want(len(value) <= _LARGEST_TEXT and "\0" not in value, "a text is too long")
        value.encode()  # raises for half of a surrogate pair
    elif isinstance(value, int | float):
        _want(math.isfinite(value) and abs(value) < _LARGEST_NUMBER, "a number is too large")


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise InvalidOutcome(f"{name} is no object")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _want(condition: bool, what: str) -> None:
    if not condition:
        raise InvalidOutcome(what)
