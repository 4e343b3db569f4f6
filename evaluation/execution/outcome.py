"""Read what a child left and says, as a stranger's: nothing here trusts a size, a type, a name or a link."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from evaluation.checkpoints.codes import CODES
from evaluation.checkpoints.findings import quote
from evaluation.collections.beir import read_queries
from evaluation.core.errors import ModelFailure
from evaluation.core.files import open_regular
from evaluation.core.problems import Problem
from evaluation.efficiency.effort import plan_efforts
from evaluation.efficiency.hardware import describe as describe_hardware
from evaluation.efficiency.measurements import EfficiencyFigures
from evaluation.engines import Retrieval, describe
from evaluation.engines.facts import FACTS, FactValue
from evaluation.engines.run_writing import variant_paths
from evaluation.execution.costs import JobFacts, check_clock, uses_its_time, validate_figures
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import (
    ASK_TO_MEASURE,
    FAILURE_NAME,
    INDEX_FOLDER,
    MEASURED,
    RESULT_NAME,
    RUN_NAME,
    SHARD_DONE,
    SHARD_FOLDER,
    ExecutionJob,
    Progress,
)

STAGES = ("loading", "encoding", "indexing", "searching", "measuring")
_LARGEST_FILE = 1 << 20
_LARGEST_TEXT = 2_000
#: Digits of a share that are kept: no bar shows more.
_SHARE_DECIMALS = 2
#: Significant digits that are kept of times, rates and sizes: no page shows more.
_DIGITS = 4
#: Numbers of a message about parameters that are kept.
_NUMBER = re.compile(r"(?<![\w.])[0-9]{1,7}(?![\w.])", re.ASCII)
_MOST_NUMBERS = 3
_MOST_ITEMS = 1_000
_DEEPEST = 6
_LARGEST_NUMBER = 2**63
_OF_SHARD = ("number", "documents", "seconds")
_OF_INDEX = ("seconds", "memory")
_COUNTS = ("documents", "queries", "queries_without_results", "lines", "index_bytes")
_SECONDS = ("build_seconds", "search_seconds", "encoding_seconds")


class InvalidOutcome(Exception):
    """What the child left is not what a child leaves; the text, for the log, says how."""


def is_question(line: bytes) -> bool:
    """Whether the line asks to measure."""
    return line.strip() == ASK_TO_MEASURE.encode()


def tells_measured(line: bytes) -> bool:
    """Whether the line says that nothing is timed any more."""
    return line.strip() == MEASURED.encode()


def tells_shard(line: bytes) -> bool:
    """Whether the line says that a shard is there."""
    return line.strip() == SHARD_DONE.encode()


def read_progress(line: bytes, before: Progress | None = None) -> Progress | None:
    """The progress that a line tells; None where it tells none, or leads back behind the one `before`.

    The submitter watches it, and the child may have read hidden queries. It can only go forward, by hundredths through
    five stages, so all of it carries less than 500 signs, whatever the child writes.
    """
    try:
        told = _parse(line)
        stage, share = told["stage"], told["share"]
    except (InvalidOutcome, KeyError):
        return None
    if stage not in STAGES or not isinstance(share, int | float):
        return None
    progress = Progress(stage, round(min(max(float(share), 0.0), 1.0), _SHARE_DECIMALS))
    return progress if before is None or _place(before) <= _place(progress) else None


def _place(progress: Progress) -> tuple[int, float]:
    """How far a progress is. What is not a child's stage, as waiting, comes before all."""
    return (STAGES.index(progress.stage) if progress.stage in STAGES else -1, progress.share)


def read_failure(out: Path, job: ExecutionJob) -> ModelFailure | None:
    """Why the model cannot be used, where the child says so in a code that exists.

    The code's own meaning is the message. The child read private queries and may write anything: of its words only
    names of the engine's parameters are kept, where these do not fit, and a few numbers beside them.
    """
    try:
        told = _parse(_read_file(out / FAILURE_NAME))
    except InvalidOutcome:
        return None
    code, message = told.get("code"), told.get("message")
    if not isinstance(code, str) or code not in MODEL_FAILURES or not isinstance(message, str):
        return None
    found = _parameters_in(message, job) if code == "invalid_parameter" else ""
    return ModelFailure(code, found or MODEL_FAILURES[code].meaning)


def _parameters_in(message: str, job: ExecutionJob) -> str:
    """The engine's parameters that a message names, with its first numbers: "dimension (900, 384)"."""
    words = set(re.findall(r"\w+", message))
    names = ", ".join(each.name for each in describe(job.engine).parameters if each.name in words)
    numbers = ", ".join(_NUMBER.findall(message)[:_MOST_NUMBERS])
    return f"{names} ({numbers})" if names and numbers else names


def read_result(out: Path, job: ExecutionJob, seconds: float) -> dict[str, Any]:
    """The child's `result.json`, checked against the job it was given and the `seconds` it ran. Raises InvalidOutcome.

    "retrieve" and "measure": `retrieval` (as `engines.Retrieval`, where `variants` maps labels to names of files in
    `out`), `figures` and `variants` (figures by label) or null, `hardware`. "encode_shards": `shard` with `number`,
    `documents` and `seconds`, and `hardware`, which is that of this process: the child runs beside it. "check":
    `problems`, a list of Problem. "index": `index` with `seconds` and `memory` in bytes.
    """
    result = _parse(_read_file(out / RESULT_NAME))
    if job.task == "check":
        return {"problems": _checked_problems(result.get("problems"))}
    hardware = describe_hardware(job.threads, job.device).as_data()
    if job.task == "encode_shards":
        shard = _object(result, "shard")
        _require(shard.get("number") == job.shard, "it is another shard")
        _require(_is_count(shard.get("documents")) and _is_duration(shard.get("seconds")), "shard: numbers")
        _require(job.shard_documents in (None, shard["documents"]), "it is of other documents")
        _require(shard["seconds"] <= seconds, "it took longer than the child ran")
        _require((out / SHARD_FOLDER).is_dir(), "there is no shard")
        return {"shard": {name: shard[name] for name in _OF_SHARD}, "hardware": hardware}
    if job.task == "index":
        index = _object(result, "index")
        _require(all(_is_duration(index.get(name)) for name in _OF_INDEX), "index: numbers")
        _require((out / INDEX_FOLDER).is_dir(), "there is no index")
        return {"index": {name: index[name] for name in _OF_INDEX}, "hardware": hardware}
    assert job.queries is not None
    known = JobFacts(job, sum(1 for _ in read_queries(job.queries)), seconds)
    retrieval = _checked_retrieval(_object(result, "retrieval"), out, known)
    try:
        figures, variants = _measured(result, known, retrieval)
    except (ValueError, TypeError) as error:
        raise InvalidOutcome(str(error)) from error
    told = {entry.name: getattr(retrieval, entry.name) for entry in fields(Retrieval)}
    told["variants"] = {label: path.name for label, path in retrieval.variants.items()}
    told |= _coarse({name: told[name] for name in (*_SECONDS, "index_bytes")})
    told["variant_index_bytes"] = {
        label: _coarse({"index_bytes": size})["index_bytes"]
        for label, size in retrieval.variant_index_bytes.items()
    }
    return {"retrieval": told, "figures": figures, "variants": variants, "hardware": hardware}


def _checked_problems(told: object) -> list[Problem]:
    """What the library says of a checkpoint, in its words, for such a child has read nothing that is hidden."""
    _require(isinstance(told, list), "problems is no list")
    problems = []
    for each in told if isinstance(told, list) else ():
        _require(
            isinstance(each, dict) and each.get("code") in CODES, "a problem has a code that does not exist"
        )
        severity, message = each.get("severity"), each.get("message")
        _require(severity in ("error", "warning") and isinstance(message, str), "a problem says nothing")
        problems.append(Problem(severity, each["code"], 1, quote(message, 400), CODES[each["code"]]))
    return problems


def _measured(
    result: Mapping[str, Any], known: JobFacts, retrieval: Retrieval
) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]]]:
    """The figures of the whole, and by variant where there are some; none of too few searches. Raises ValueError."""
    labels, told = tuple(retrieval.variants), _object(result, "variants")
    if result.get("figures") is None:
        _require(not told, "variants were measured, and the whole was not")
        check_clock([], known, retrieval)
        return None, {}
    _require(set(told) == set(labels), "other variants were measured")
    given = [told[label] for label in labels] or [result["figures"]]
    efforts = plan_efforts(len(given))
    figures = [
        validate_figures(EfficiencyFigures.from_data(one), known, retrieval.of_variant(label), effort)
        for label, one, effort in zip(labels or ("",), given, efforts, strict=True)
    ]
    check_clock(figures, known, retrieval)
    told_of = zip(figures, efforts, strict=True)
    if not all(uses_its_time(one, known, retrieval, effort, len(given)) for one, effort in told_of):
        return None, {}
    data = [_coarse(one.as_data()) for one in figures]
    return data[-1], dict(zip(labels, data, strict=False))


def _coarse(value: Any) -> Any:
    """The value with every float, and every number of bytes, to four significant digits, in dictionaries too."""
    if isinstance(value, dict):
        return {
            name: int(_coarse(float(item))) if name.endswith("_bytes") and item is not None else _coarse(item)
            for name, item in value.items()
        }
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _checked_retrieval(retrieval: dict[str, Any], out: Path, known: JobFacts) -> Retrieval:
    for name in _COUNTS:
        _require(_is_count(retrieval.get(name)), f"{name} is no count")
    for name in _SECONDS:
        _require(_is_duration(retrieval.get(name)), f"{name} is no time")
    encoded = retrieval.get("encoded_documents")
    _require(encoded is None or _is_count(encoded), "encoded_documents is no count")
    _require(encoded is None or encoded <= retrieval["documents"], "more was encoded than there is")
    _require(retrieval["queries"] == known.queries, "it has other queries")
    # What was asked for is known better here than there.
    job, description = known.job, describe(known.job.engine)
    whole = job.documents in (None, retrieval["documents"]) or not description.reads_corpus
    _require(whole, "it is of other documents")
    parameters = description.complete(job.parameters)
    variants = variant_paths(description.variants(parameters), out / RUN_NAME)
    told = _object(retrieval, "variants")
    _require(told == {label: path.name for label, path in variants.items()}, "it has other variants")
    for path in () if job.task == "measure" else variants.values() or [out / RUN_NAME]:
        _require(is_plain_file(path), f"there is no {path.name}")
    return Retrieval(
        engine=description.name,
        parameters=parameters,
        analyser="",  # the child's own words, which nobody needs
        facts=_checked_facts(_object(retrieval, "facts"), parameters),
        variants=variants,
        variant_facts=_checked_variant_facts(retrieval, variants, parameters),
        variant_index_bytes=_checked_index_bytes(retrieval, variants),
        encoded_documents=encoded,
        **{name: retrieval[name] for name in (*_COUNTS, *_SECONDS)}
        | {"build_seconds": retrieval["build_seconds"] + job.index_seconds},
    )


def _checked_variant_facts(
    retrieval: Mapping[str, Any], labels: Collection[str], parameters: Mapping[str, Any]
) -> dict[str, dict[str, FactValue]]:
    told = _object(retrieval, "variant_facts")
    _require(set(told) == set(labels), "it has facts of other variants")
    return {label: _checked_facts(_object(told, label), parameters) for label in labels}


def _checked_index_bytes(retrieval: Mapping[str, Any], labels: Collection[str]) -> dict[str, int]:
    told = _object(retrieval, "variant_index_bytes")
    _require(set(told) == set(labels), "it has indexes of other variants")
    _require(all(map(_is_count, told.values())), "the bytes of a variant's index are no count")
    return told


def _checked_facts(told: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, FactValue]:
    """The facts, each a number within its bounds, to as many decimals as are shown, or one of its words."""
    _require(set(told) <= set(FACTS), "a fact is not known")
    try:
        facts = {name: FACTS[name].checked(value) for name, value in told.items()}
    except ValueError as error:
        raise InvalidOutcome(str(error)) from error
    for name, value in facts.items():
        chosen = parameters.get(name)
        _require(chosen not in FACTS[name].words or value == chosen, f"{name} is not what was asked for")
    return facts


def is_plain_file(path: Path) -> bool:
    """Whether it is a file under this one name: no link of either kind, no folder, no device."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _read_file(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidOutcome(f"{path.name}: {error.strerror}") from error
    _require(len(content) <= _LARGEST_FILE, f"{path.name} is too large")
    return content


def _parse(content: bytes) -> dict[str, Any]:
    """The JSON object, plain and of bounded size."""
    try:
        value = json.loads(content, parse_constant=_no_constant)
        _check_plain(value, 0)
    except (ValueError, RecursionError) as error:
        raise InvalidOutcome(f"no JSON: {type(error).__name__}") from error
    _require(isinstance(value, dict), "it is no object")
    checked: dict[str, Any] = value
    return checked


def _no_constant(name: str) -> NoReturn:
    raise InvalidOutcome(f"{name} is no number")


def _check_plain(value: object, depth: int) -> None:
    _require(depth <= _DEEPEST, "it is too deep")
    if isinstance(value, dict):
        _require(len(value) <= _MOST_ITEMS, "it has too many entries")
        for key, item in value.items():
            _require(len(key) <= _LARGEST_TEXT and key.isprintable(), "a key is strange")
            _check_plain(item, depth + 1)
    elif isinstance(value, list):
        _require(len(value) <= _MOST_ITEMS, "a list is too long")
        for item in value:
            _check_plain(item, depth + 1)
    elif isinstance(value, str):
        _require(len(value) <= _LARGEST_TEXT and "\0" not in value, "a text is too long")
        value.encode()  # raises for half of a surrogate pair
    elif isinstance(value, int | float):
        _require(abs(value) < _LARGEST_NUMBER, "a number is too large")  # false for NaN, too


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise InvalidOutcome(f"{name} is no object")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InvalidOutcome(what)
