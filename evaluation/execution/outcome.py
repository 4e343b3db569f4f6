"""Validation of a child's files and output, without trust in any size, type, name, or link.

Reported times of a child cannot be verified, but they are bounded: it cannot have worked longer than its run time,
searched faster than a function call, or used other counts than the protocol.
"""

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.checkpoints.files import NotJson, parse_json, read_file
from evaluation.checkpoints.findings import CODES, quote
from evaluation.collections.beir import read_queries
from evaluation.core.problems import ModelFailure, Problem
from evaluation.efficiency.hardware import describe as describe_hardware
from evaluation.efficiency.measurements import (
    BATCH,
    MIN_QUERIES,
    EfficiencyFigures,
    Effort,
    measuring_seconds,
    plan_efforts,
)
from evaluation.efficiency.meters import THREADS
from evaluation.efficiency.protocol import DEPTH, PROTOCOL, count_parameters, encoding_rate, job_seconds
from evaluation.engines import Retrieval, describe
from evaluation.engines.facts import FACTS, FactValue
from evaluation.engines.run_writing import variant_paths
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import (
    FAILURE_NAME,
    INDEX_FOLDER,
    RESULT_NAME,
    RUN_NAME,
    SHARD_FOLDER,
    ExecutionJob,
    Progress,
)

STAGES = ("loading", "encoding", "indexing", "searching", "measuring")
_LARGEST_FILE = 1 << 20
_LONGEST_TEXT = 2_000
MAX_PROBLEMS = 1_000
_MAX_NESTING = 7
#: Decimals of shares, and significant digits of times, rates, and sizes. Pages do not show more.
_SHARE_DECIMALS, _DIGITS = 2, 4
#: Pattern of numbers in messages about parameters, and their maximum count.
_NUMBER = re.compile(r"(?<![\w.])[0-9]{1,7}(?![\w.])", re.ASCII)
_MAX_NUMBERS = 3
_COUNTS = ("documents", "queries", "queries_without_results", "lines", "index_bytes")
_SECONDS = ("build_seconds", "search_seconds", "encoding_seconds")
#: Values of `EnergyMeter.source`.
_ENERGY_SOURCES = ("", "CPU", "GPU", "CPU and GPU")
#: Minimum milliseconds of a search, the time of a function call.
_FASTEST_MS = 0.0005
#: Maximum speedup of batches. A batch is at least as slow as one search, up to variations of clocks and caches.
_MAX_GAIN = 10 * BATCH
#: Maximum watts of a machine, and maximum error of its counters in joules.
_MAX_WATTS, _COUNTER_STEP = 20_000.0, 1.0
_ROUNDING = 1.01
#: Minimum share of the budget that searches must use if fewer are timed than required.
_MIN_BUDGET_SHARE = 0.1
#: Maximum plausible memory in bytes.
_TOO_MUCH_MEMORY = 2**46
_TOO_LARGE = 2**63


class InvalidOutcome(Exception):
    """A child's files or output violate the contract. The message is for the log."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The parent's own information on a child: the job, the number of queries, and the seconds that it ran."""

    job: ExecutionJob
    queries: int
    seconds: float


def read_progress(line: bytes, previous: Progress | None = None) -> Progress | None:
    """Parse a line of progress. Returns None for other lines and if progress is behind `previous`.

    Submitters see progress, and the child may have read hidden queries. Since progress can only advance, by
    hundredths through five stages, a child can reveal at most 500 values.
    """
    try:
        message = parse_json(line)
        stage, share = message["stage"], message["share"]
    except (NotJson, KeyError, TypeError, IndexError):
        return None
    if stage not in STAGES or not isinstance(share, int | float):
        return None
    progress = Progress(stage, round(min(max(float(share), 0.0), 1.0), _SHARE_DECIMALS))
    return progress if previous is None or _sort_key(previous) <= _sort_key(progress) else None


def _sort_key(progress: Progress) -> tuple[int, float]:
    """Return a sort key of progress. Stages of the parent, such as waiting, come first."""
    return (STAGES.index(progress.stage) if progress.stage in STAGES else -1, progress.share)


def read_failure(folder: Path, job: ExecutionJob) -> ModelFailure | None:
    """Return the failure that the child reported, if its code exists.

    The child has read private queries and may write anything, so its message is replaced by the code's meaning. For
    invalid parameters, the message consists of names of the engine's parameters and a few numbers.
    """
    try:
        report = _read_object(folder / FAILURE_NAME)
    except InvalidOutcome:
        return None
    code, message = report.get("code"), report.get("message")
    if not isinstance(code, str) or code not in MODEL_FAILURES or not isinstance(message, str):
        return None
    words = set(re.findall(r"\w+", message)) if code == "invalid_parameter" else set()
    names = ", ".join(parameter.name for parameter in describe(job.engine).parameters if parameter.name in words)
    numbers = ", ".join(_NUMBER.findall(message)[:_MAX_NUMBERS])
    parameter_message = f"{names} ({numbers})" if names and numbers else names
    return ModelFailure(code, parameter_message or MODEL_FAILURES[code].meaning)


def read_result(folder: Path, job: ExecutionJob, seconds: float) -> dict[str, Any]:
    """Return the child's `result.json`, validated against its job and the seconds that it ran. Raises InvalidOutcome.

    The content depends on the task:

    - "retrieve" and "measure": `retrieval` (as `engines.Retrieval`, where `variants` maps labels to names of files in
      `folder`), `figures` and `variants` (figures by label) or null, and `hardware`;
    - "encode_shards": `shard` with `number`, `documents`, and `seconds`, and `hardware` of this process, which runs on
      the same machine;
    - "check": `problems`, a list of Problem;
    - "index": `index` with `seconds` and `memory` in bytes.
    """
    result = _read_object(folder / RESULT_NAME)
    if job.task == "check":
        return {"problems": _validate_problems(result.get("problems"))}
    hardware = describe_hardware(job.threads, job.device).as_data()
    if job.task == "encode_shards":
        shard = _get_object(result, "shard")
        _require(shard.get("number") == job.shard, "the shard has another number")
        _require(
            _is_count(shard.get("documents")) and _is_duration(shard.get("seconds")),
            "the numbers of the shard are invalid",
        )
        _require(job.shard_documents in (None, shard["documents"]), "the shard has another number of documents")
        _require(shard["seconds"] <= seconds, "the shard took longer than the child ran")
        _require((folder / SHARD_FOLDER).is_dir(), "there is no shard")
        values = {name: shard[name] for name in ("number", "documents", "seconds")}
        return {"shard": values, "hardware": hardware}
    if job.task == "index":
        index = _get_object(result, "index")
        values = {name: index.get(name) for name in ("seconds", "memory")}
        _require(all(map(_is_duration, values.values())), "the numbers of the index are invalid")
        _require((folder / INDEX_FOLDER).is_dir(), "there is no index")
        return {"index": values, "hardware": hardware}
    assert job.queries is not None
    facts = JobFacts(job, sum(1 for _ in read_queries(job.queries)), seconds)
    retrieval = _validate_retrieval(_get_object(result, "retrieval"), folder, facts)
    try:
        figures, variants = _validate_measurements(result, facts, retrieval)
    except (ValueError, TypeError) as error:
        raise InvalidOutcome(str(error)) from error
    values = retrieval.as_data()
    values |= _round_values({name: values[name] for name in (*_SECONDS, "index_bytes")})
    sizes = retrieval.variant_index_bytes.items()
    values["variant_index_bytes"] = {label: int(_round_values(float(size))) for label, size in sizes}
    return {"retrieval": values, "figures": figures, "variants": variants, "hardware": hardware}


def _validate_problems(entries: object) -> list[Problem]:
    """Return the problems of a checkpoint with the library's messages. Raises InvalidOutcome.

    Messages are shown as they are, because the child has not read hidden data.
    """
    if not isinstance(entries, list):
        raise InvalidOutcome("problems is not a list")
    _require(len(entries) <= MAX_PROBLEMS, "there are too many problems")
    problems = []
    for entry in entries:
        _require(isinstance(entry, dict) and entry.get("code") in CODES, "a problem has an unknown code")
        severity, message = entry.get("severity"), entry.get("message")
        _require(
            severity in ("error", "warning") and isinstance(message, str),
            "a problem has no severity or message",
        )
        problems.append(Problem(severity, entry["code"], 1, quote(message, 400), CODES[entry["code"]]))
    return problems


def _validate_retrieval(values: dict[str, Any], folder: Path, job_facts: JobFacts) -> Retrieval:
    """Return the child's statistics, validated against the job and the files in `folder`. Raises InvalidOutcome.

    Engine and parameters are taken from the job, and the time for building its prebuilt index is added.
    """
    for name in _COUNTS:
        _require(_is_count(values.get(name)), f"{name} is not a count")
    for name in _SECONDS:
        _require(_is_duration(values.get(name)), f"{name} is not a duration")
    _require(len(str(values.get("analyser"))) <= _LONGEST_TEXT, "a text is too long")
    encoded_documents = values.get("encoded_documents")
    _require(encoded_documents is None or _is_count(encoded_documents), "encoded_documents is not a count")
    _require(
        encoded_documents is None or encoded_documents <= values["documents"],
        "more documents were encoded than the corpus has",
    )
    _require(values["queries"] == job_facts.queries, "the number of queries is wrong")
    # Values of the request come from the parent, not from the child.
    job, description = job_facts.job, describe(job_facts.job.engine)
    is_complete = job.documents in (None, values["documents"]) or not description.reads_corpus
    _require(is_complete, "the number of documents is wrong")
    parameters = description.complete(job.parameters)
    variants = variant_paths(description.variants(parameters), folder / RUN_NAME)
    names = {label: path.name for label, path in variants.items()}
    _require(_get_object(values, "variants") == names, "the result has other variants")
    for path in () if job.task == "measure" else variants.values() or [folder / RUN_NAME]:
        _require(is_plain_file(path), f"there is no {path.name}")
    facts, sizes = _get_object(values, "variant_facts"), _get_object(values, "variant_index_bytes")
    _require(facts.keys() == variants.keys(), "variant_facts has other variants")
    _require(sizes.keys() == variants.keys(), "variant_index_bytes has other variants")
    _require(all(map(_is_count, sizes.values())), "the size of a variant's index is not a count")
    numbers = {name: values[name] for name in (*_COUNTS, *_SECONDS)}
    return Retrieval(
        engine=description.name,
        parameters=parameters,
        analyser="",  # the child's text is not needed
        facts=_validate_facts(_get_object(values, "facts"), parameters),
        variants=variants,
        variant_facts={label: _validate_facts(_get_object(facts, label), parameters) for label in variants},
        variant_index_bytes=sizes,
        encoded_documents=encoded_documents,
        **numbers | {"build_seconds": values["build_seconds"] + job.index_seconds},
    )


def _validate_facts(values: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, FactValue]:
    """Return the facts, validated and rounded to the displayed decimals. Raises InvalidOutcome."""
    _require(set(values) <= set(FACTS), "a fact is unknown")
    try:
        facts = {name: FACTS[name].validate(value) for name, value in values.items()}
    except ValueError as error:
        raise InvalidOutcome(str(error)) from error
    for name, value in facts.items():
        setting = parameters.get(name)
        _require(setting not in FACTS[name].words or value == setting, f"{name} differs from the parameter")
    return facts


def _validate_measurements(
    result: Mapping[str, Any], facts: JobFacts, retrieval: Retrieval
) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]]]:
    """Return the main figures and the figures by variant, or none if too few searches were timed.

    Raises ValueError or InvalidOutcome for invalid figures.
    """
    labels, variants = tuple(retrieval.variants), _get_object(result, "variants")
    if result.get("figures") is None:
        _require(not variants, "variants were measured without the main result")
        _check_clock([], facts, retrieval)
        return None, {}
    _require(set(variants) == set(labels), "other variants were measured")
    data_by_result = [variants[label] for label in labels] or [result["figures"]]
    efforts = plan_efforts(len(data_by_result), brief=facts.job.brief)
    figures = [
        _validate_figures(EfficiencyFigures.from_data(item), facts, retrieval.for_variant(label), effort)
        for label, item, effort in zip(labels or ("",), data_by_result, efforts, strict=True)
    ]
    _check_clock(figures, facts, retrieval)
    seconds = measuring_seconds(replace(retrieval, build_seconds=retrieval.build_seconds - facts.job.index_seconds))
    for item, effort in zip(figures, efforts, strict=True):
        # A fast system has no reason to time fewer searches, and could select favorable queries.
        is_complete = item.queries == min(facts.queries, effort.queries) and item.searches >= effort.searches
        seconds_spent = item.searches * item.latency_ms.mean / 1000
        if not is_complete and seconds_spent < _MIN_BUDGET_SHARE * seconds / len(data_by_result):
            return None, {}
    rounded_data = [_round_values(item.as_data()) for item in figures]
    return rounded_data[-1], dict(zip(labels, rounded_data, strict=False))


def _round_values(value: Any) -> Any:
    """Return a value with all floats and numbers of bytes rounded to four significant digits, including nested ones."""
    if isinstance(value, dict):
        return {
            name: int(_round_values(float(element)))
            if name.endswith("_bytes") and element is not None
            else _round_values(element)
            for name, element in value.items()
        }
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _validate_figures(
    figures: EfficiencyFigures, facts: JobFacts, retrieval: Retrieval, effort: Effort
) -> EfficiencyFigures:
    """Return the validated figures, with build time, size, and parameters from the retrieval and the checkpoint.

    Raises InvalidOutcome.
    """
    _check_counts(figures, facts.queries, effort)
    declared_values = {
        "protocol": PROTOCOL,
        "depth": DEPTH,
        "threads": THREADS,
        "device": facts.job.device,
        "documents": retrieval.documents,
    }
    for name, value in declared_values.items():
        reported_value = getattr(figures, name)
        _require(reported_value == value, f"{name} is {reported_value!r:.40} instead of {value!r}")
    _check_times(figures)
    memory, gpu_memory = figures.peak_memory_bytes, figures.peak_gpu_memory_bytes
    _require(max(memory or 0, gpu_memory or 0) <= _TOO_MUCH_MEMORY, "the reported memory is implausibly large")
    is_consistent = memory != 0 and (figures.device != "cpu" or gpu_memory is None)
    _require(is_consistent, "the reported memory does not fit the device")
    joules, source = figures.energy_joules_per_query, figures.energy_source
    _require(source in _ENERGY_SOURCES and (joules is None) == (source == ""), "the energy has no valid source")
    highest_energy = _MAX_WATTS * figures.latency_ms.mean / 1000 + _COUNTER_STEP
    _require(joules is None or joules <= highest_energy, "the reported power is implausibly large")
    return replace(
        figures,
        build_seconds=retrieval.build_seconds if retrieval.built_whole else None,
        documents_per_second=encoding_rate(retrieval),
        index_bytes=retrieval.index_bytes,
        job_seconds=job_seconds(retrieval),
        parameters=count_parameters(facts.job.checkpoint),
        peak_memory_bytes=max(memory or 0, facts.job.index_memory) or None,
        stored_runs=0,  # the parent adds the number of stored runs
    )


def _check_clock(figures: Sequence[EfficiencyFigures], facts: JobFacts, retrieval: Retrieval) -> None:
    """Reject times for building, searching, and timed searches that exceed the child's run time.

    The last figures belong to the main result. Searches of an earlier child do not count.
    """
    total = retrieval.build_seconds - facts.job.index_seconds
    total += 0.0 if facts.job.resumes else retrieval.search_seconds
    for item in figures:
        total += item.searches * item.latency_ms.mean / 1000
        if item.queries_per_second:
            total += item.batched / item.queries_per_second
    _require(total <= facts.seconds, f"{total:.3g} s were reported, but the child ran for {facts.seconds:.3g} s")
    limit = _ROUNDING * retrieval.build_seconds
    _require(retrieval.encoding_seconds <= limit, "encoding took longer than building, which includes it")


def _check_counts(figures: EfficiencyFigures, queries: int, effort: Effort) -> None:
    """Reject numbers of queries, rounds, and searches that are inconsistent or exceed the effort.

    Slow systems may time fewer queries than the effort requires.
    """
    timed, rounds, searches = figures.queries, figures.rounds, figures.searches
    is_query_count_valid = timed > 0 and min(MIN_QUERIES, queries) <= timed <= min(queries, effort.queries)
    _require(is_query_count_valid, f"{timed} of {queries} queries were timed")
    most_rounds = max(2, -(-effort.searches // timed), effort.most_rounds)
    _require(2 <= rounds <= most_rounds, f"{rounds} rounds are not between 2 and {most_rounds}")
    _require(searches == timed * rounds, f"{searches} searches do not match {timed} queries in {rounds} rounds")
    _require(figures.unsettled <= timed and figures.spread_ms is not None, "the uncertainty of the latency is missing")
    _require((figures.other_work or 0) <= 1, "other work used more processors than exist")
    batched_limit = min(queries, effort.throughput_queries) if figures.queries_per_second is not None else 0
    is_batched_valid = figures.batched == batched_limit or figures.batched in range(BATCH, batched_limit, BATCH)
    _require(is_batched_valid, f"throughput is over {figures.batched} of {queries} queries")


def _check_times(figures: EfficiencyFigures) -> None:
    """Reject percentiles, means, times of parts, and rates of searches that contradict each other."""
    latency = figures.latency_ms
    _require(_FASTEST_MS <= latency.p50 <= latency.p95 <= latency.p99, "the latencies are not valid percentiles")
    # Half of all searches took at least p50, and one in a hundred at least p99.
    largest_error = _ROUNDING * latency.mean
    is_plausible = latency.p50 <= 2 * largest_error and latency.p99 <= 100 * largest_error
    _require(is_plausible, "the mean latency is below what its percentiles allow")
    are_parts_valid = all(part <= largest_error for part in figures.parts_ms.values())
    _require(are_parts_valid, "a part of a search takes longer than the search")
    rate, highest_rate = figures.queries_per_second, _MAX_GAIN * 1000 / latency.p50
    _require(
        rate is None or 0 < rate <= highest_rate,
        f"{rate or 0:.3g} queries a second are more than batches give",
    )


def is_plain_file(path: Path) -> bool:
    """Return whether a path is a regular file without symbolic or hard links."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small regular file. Raises InvalidOutcome for anything else."""
    try:
        value = parse_json(read_file(path, _LARGEST_FILE))
    except OSError as error:
        raise InvalidOutcome(f"{path.name}: {error.strerror}") from error
    except NotJson as error:
        raise InvalidOutcome(f"{path.name}: {quote(error)}") from error
    _require(_nesting_depth(value) <= _MAX_NESTING, "the JSON value is nested too deeply")
    return _get_object({path.name: value}, path.name)


def _nesting_depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_nesting_depth, children), default=0)


def _get_object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise InvalidOutcome(f"{name} is not an object")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_duration(value)


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _TOO_LARGE


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidOutcome(message)
