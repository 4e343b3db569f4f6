"""Read the files and lines of a child without trust in any size, type, name, or link.

A child that times itself can always work less than it reports. It cannot have taken longer than it ran, have searched
faster than a function is called, or have counted something else than the protocol counts.
"""

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.checkpoints.files import NotJson, parse, read_file
from evaluation.checkpoints.findings import CODES, quote
from evaluation.collections.beir import read_queries
from evaluation.core.problems import ModelFailure, Problem
from evaluation.efficiency.hardware import describe as describe_hardware
from evaluation.efficiency.measurements import (
    BATCH,
    LEAST_QUERIES,
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
MOST_PROBLEMS = 1_000
_DEEPEST = 7
#: Decimals of a share, and significant digits of times, rates, and sizes: no page shows more.
_SHARE_DECIMALS, _DIGITS = 2, 4
#: Numbers of a message about parameters that are kept.
_NUMBER = re.compile(r"(?<![\w.])[0-9]{1,7}(?![\w.])", re.ASCII)
_MOST_NUMBERS = 3
_COUNTS = ("documents", "queries", "queries_without_results", "lines", "index_bytes")
_SECONDS = ("build_seconds", "search_seconds", "encoding_seconds")
#: Names that `meters.open_meter` gives its counters.
_ENERGY_SOURCES = ("", "CPU", "GPU", "CPU and GPU")
#: Milliseconds of the shortest search: as long as calling it.
_FASTEST_MS = 0.0005
#: A batch takes no less than one of its searches alone; clocks and caches vary.
_MOST_GAIN = 10 * BATCH
#: Watts of the largest machine, and joules by which its counters may be wrong.
_MOST_WATTS, _COUNTER_STEP = 20_000.0, 1.0
_ROUNDING = 1.01
#: Share of its time that the searches of a system take at least if fewer are timed than asked for.
_LEAST_USED = 0.1
#: Bytes of memory that no machine has.
_TOO_MUCH_MEMORY = 2**46
_TOO_LARGE = 2**63


class InvalidOutcome(Exception):
    """A child left something else than a child leaves; the text is for the log."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The parent's knowledge of a child's work: the job, the number of its queries, and the seconds that it ran."""

    job: ExecutionJob
    queries: int
    seconds: float


def read_progress(line: bytes, before: Progress | None = None) -> Progress | None:
    """Return the progress in a line, or None if there is none, or if it is behind `before`.

    The submitter watches it, and the child may have read hidden queries. It can only advance, by hundredths through
    five stages, so all of it carries less than 500 signs, whatever the child writes.
    """
    try:
        told = parse(line)
        stage, share = told["stage"], told["share"]
    except (NotJson, KeyError, TypeError, IndexError):
        return None
    if stage not in STAGES or not isinstance(share, int | float):
        return None
    progress = Progress(stage, round(min(max(float(share), 0.0), 1.0), _SHARE_DECIMALS))
    return progress if before is None or _place(before) <= _place(progress) else None


def _place(progress: Progress) -> tuple[int, float]:
    """Return an order of progress. Stages that are not a child's, such as waiting, come first."""
    return (STAGES.index(progress.stage) if progress.stage in STAGES else -1, progress.share)


def read_failure(out: Path, job: ExecutionJob) -> ModelFailure | None:
    """Return why the model cannot be used, if the child left a code that exists.

    The code's own meaning is the message. The child read private queries and may write anything: of its words only
    names of the engine's parameters are kept, if these do not fit, and a few numbers beside them.
    """
    try:
        told = _read_object(out / FAILURE_NAME)
    except InvalidOutcome:
        return None
    code, message = told.get("code"), told.get("message")
    if not isinstance(code, str) or code not in MODEL_FAILURES or not isinstance(message, str):
        return None
    words = set(re.findall(r"\w+", message)) if code == "invalid_parameter" else set()
    names = ", ".join(each.name for each in describe(job.engine).parameters if each.name in words)
    numbers = ", ".join(_NUMBER.findall(message)[:_MOST_NUMBERS])
    named = f"{names} ({numbers})" if names and numbers else names
    return ModelFailure(code, named or MODEL_FAILURES[code].meaning)


def read_result(out: Path, job: ExecutionJob, seconds: float) -> dict[str, Any]:
    """Return the child's `result.json`, checked against its job and the `seconds` it ran. Raises InvalidOutcome.

    "retrieve" and "measure": `retrieval` (as `engines.Retrieval`, where `variants` maps labels to names of files in
    `out`), `figures` and `variants` (figures by label) or null, `hardware`. "encode_shards": `shard` with `number`,
    `documents` and `seconds`, and `hardware`, which is that of this process: the child runs beside it. "check":
    `problems`, a list of Problem. "index": `index` with `seconds` and `memory` in bytes.
    """
    result = _read_object(out / RESULT_NAME)
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
        told = {name: shard[name] for name in ("number", "documents", "seconds")}
        return {"shard": told, "hardware": hardware}
    if job.task == "index":
        index = _object(result, "index")
        told = {name: index.get(name) for name in ("seconds", "memory")}
        _require(all(map(_is_duration, told.values())), "index: numbers")
        _require((out / INDEX_FOLDER).is_dir(), "there is no index")
        return {"index": told, "hardware": hardware}
    assert job.queries is not None
    known = JobFacts(job, sum(1 for _ in read_queries(job.queries)), seconds)
    retrieval = _checked_retrieval(_object(result, "retrieval"), out, known)
    try:
        figures, variants = _measured(result, known, retrieval)
    except (ValueError, TypeError) as error:
        raise InvalidOutcome(str(error)) from error
    told = retrieval.as_data()
    told |= _rounded({name: told[name] for name in (*_SECONDS, "index_bytes")})
    sizes = retrieval.variant_index_bytes.items()
    told["variant_index_bytes"] = {label: int(_rounded(float(size))) for label, size in sizes}
    return {"retrieval": told, "figures": figures, "variants": variants, "hardware": hardware}


def _checked_problems(told: object) -> list[Problem]:
    """Return the library's problems with a checkpoint, in its words, because the child has read nothing hidden."""
    if not isinstance(told, list):
        raise InvalidOutcome("problems is no list")
    _require(len(told) <= MOST_PROBLEMS, "there are too many problems")
    problems = []
    for each in told:
        known = isinstance(each, dict) and each.get("code") in CODES
        _require(known, "a problem has a code that does not exist")
        severity, message = each.get("severity"), each.get("message")
        _require(severity in ("error", "warning") and isinstance(message, str), "a problem says nothing")
        problems.append(Problem(severity, each["code"], 1, quote(message, 400), CODES[each["code"]]))
    return problems


def _checked_retrieval(told: dict[str, Any], out: Path, known: JobFacts) -> Retrieval:
    for name in _COUNTS:
        _require(_is_count(told.get(name)), f"{name} is no count")
    for name in _SECONDS:
        _require(_is_duration(told.get(name)), f"{name} is no time")
    _require(len(str(told.get("analyser"))) <= _LONGEST_TEXT, "a text is too long")
    encoded = told.get("encoded_documents")
    _require(encoded is None or _is_count(encoded), "encoded_documents is no count")
    _require(encoded is None or encoded <= told["documents"], "more was encoded than there is")
    _require(told["queries"] == known.queries, "it has other queries")
    # The parent knows the request better than the child.
    job, description = known.job, describe(known.job.engine)
    whole = job.documents in (None, told["documents"]) or not description.reads_corpus
    _require(whole, "it is of other documents")
    parameters = description.complete(job.parameters)
    variants = variant_paths(description.variants(parameters), out / RUN_NAME)
    names = {label: path.name for label, path in variants.items()}
    _require(_object(told, "variants") == names, "it has other variants")
    for path in () if job.task == "measure" else variants.values() or [out / RUN_NAME]:
        _require(is_plain_file(path), f"there is no {path.name}")
    facts, sizes = _object(told, "variant_facts"), _object(told, "variant_index_bytes")
    _require(facts.keys() == variants.keys(), "it has facts of other variants")
    _require(sizes.keys() == variants.keys(), "it has indexes of other variants")
    _require(all(map(_is_count, sizes.values())), "the bytes of a variant's index are no count")
    numbers = {name: told[name] for name in (*_COUNTS, *_SECONDS)}
    return Retrieval(
        engine=description.name,
        parameters=parameters,
        analyser="",  # the child's own words, which nobody needs
        facts=_checked_facts(_object(told, "facts"), parameters),
        variants=variants,
        variant_facts={label: _checked_facts(_object(facts, label), parameters) for label in variants},
        variant_index_bytes=sizes,
        encoded_documents=encoded,
        **numbers | {"build_seconds": told["build_seconds"] + job.index_seconds},
    )


def _checked_facts(told: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, FactValue]:
    """Return the facts, each a number within its bounds, to the decimals that are shown, or one of its words."""
    _require(set(told) <= set(FACTS), "a fact is not known")
    try:
        facts = {name: FACTS[name].checked(value) for name, value in told.items()}
    except ValueError as error:
        raise InvalidOutcome(str(error)) from error
    for name, value in facts.items():
        chosen = parameters.get(name)
        _require(chosen not in FACTS[name].words or value == chosen, f"{name} is not what was asked for")
    return facts


def _measured(
    result: Mapping[str, Any], known: JobFacts, retrieval: Retrieval
) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]]]:
    """Return the figures of the whole, and by variant, or none of too few searches. Raises ValueError."""
    labels, told = tuple(retrieval.variants), _object(result, "variants")
    if result.get("figures") is None:
        _require(not told, "variants were measured, and the whole was not")
        _check_clock([], known, retrieval)
        return None, {}
    _require(set(told) == set(labels), "other variants were measured")
    given = [told[label] for label in labels] or [result["figures"]]
    efforts = plan_efforts(len(given))
    figures = [
        _checked_figures(EfficiencyFigures.from_data(one), known, retrieval.of_variant(label), effort)
        for label, one, effort in zip(labels or ("",), given, efforts, strict=True)
    ]
    _check_clock(figures, known, retrieval)
    seconds = measuring_seconds(
        replace(retrieval, build_seconds=retrieval.build_seconds - known.job.index_seconds)
    )
    for one, effort in zip(figures, efforts, strict=True):
        # A quick system has no reason to time less, and could choose suitable queries.
        complete = one.queries == min(known.queries, effort.queries) and one.searches >= effort.searches
        spent = one.searches * one.latency_ms.mean / 1000
        if not complete and spent < _LEAST_USED * seconds / len(given):
            return None, {}
    data = [_rounded(one.as_data()) for one in figures]
    return data[-1], dict(zip(labels, data, strict=False))


def _rounded(value: Any) -> Any:
    """Return every float, and every number of bytes, with four significant digits, in dictionaries too."""
    if isinstance(value, dict):
        return {
            name: int(_rounded(float(item)))
            if name.endswith("_bytes") and item is not None
            else _rounded(item)
            for name, item in value.items()
        }
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _checked_figures(
    figures: EfficiencyFigures, known: JobFacts, retrieval: Retrieval, effort: Effort
) -> EfficiencyFigures:
    """Return the figures with those that follow from the retrieval."""
    _check_counts(figures, known.queries, effort)
    declared = {
        "protocol": PROTOCOL,
        "depth": DEPTH,
        "threads": THREADS,
        "device": known.job.device,
        "documents": retrieval.documents,
    }
    for name, value in declared.items():
        stated = getattr(figures, name)
        _require(stated == value, f"{name} is {stated!r:.40}, and not {value!r}")
    _check_times(figures)
    _check_resources(figures)
    return replace(
        figures,
        build_seconds=retrieval.build_seconds if retrieval.built_whole else None,
        documents_per_second=encoding_rate(retrieval),
        index_bytes=retrieval.index_bytes,
        job_seconds=job_seconds(retrieval),
        parameters=count_parameters(known.job.checkpoint),
        peak_memory_bytes=max(figures.peak_memory_bytes or 0, known.job.index_memory) or None,
        stored_runs=0,  # the parent adds those that it began with
    )


def _check_clock(figures: Sequence[EfficiencyFigures], known: JobFacts, retrieval: Retrieval) -> None:
    """Refuse building, searching, and timed searches that took longer than the child ran.

    The last figures are those of the main result. Searches of an earlier child are not counted.
    """
    total = retrieval.build_seconds - known.job.index_seconds
    total += 0.0 if known.job.resumes else retrieval.search_seconds
    for one in figures:
        total += one.searches * one.latency_ms.mean / 1000
        if one.queries_per_second:
            total += one.batched / one.queries_per_second
    _require(total <= known.seconds, f"{total:.3g} s are told, and it ran for {known.seconds:.3g} s")
    longest = _ROUNDING * retrieval.build_seconds
    _require(
        retrieval.encoding_seconds <= longest, "encoding took longer than building, which it is a part of"
    )


def _check_counts(figures: EfficiencyFigures, queries: int, effort: Effort) -> None:
    """Refuse more work than the effort allows, over so many queries; a slow system does less."""
    timed, rounds, searches = figures.queries, figures.rounds, figures.searches
    enough = timed > 0 and min(LEAST_QUERIES, queries) <= timed <= min(queries, effort.queries)
    _require(enough, f"{timed} of {queries} queries were timed")
    most = max(2, -(-effort.searches // timed), effort.most_rounds)
    _require(2 <= rounds <= most, f"{rounds} rounds are not 2 to {most}")
    _require(
        searches == timed * rounds, f"{searches} searches are none of {timed} queries in {rounds} rounds"
    )
    confident = figures.unsettled <= timed and figures.spread_ms is not None
    _require(confident, "it is not told how well the latency is known")
    _require((figures.other_work or 0) <= 1, "other work used more processors than there are")
    whole = min(queries, effort.batched) if figures.queries_per_second is not None else 0
    in_batches = figures.batched == whole or figures.batched in range(BATCH, whole, BATCH)
    _require(in_batches, f"throughput is over {figures.batched} of {queries} queries")


def _check_times(figures: EfficiencyFigures) -> None:
    latency = figures.latency_ms
    ordered = _FASTEST_MS <= latency.p50 <= latency.p95 <= latency.p99
    _require(ordered, "latencies are no percentiles of searches")
    # Half of all searches took p50 or longer, and one of a hundred p99.
    largest = _ROUNDING * latency.mean
    plausible = latency.p50 <= 2 * largest and latency.p99 <= 100 * largest
    _require(plausible, "the mean latency is below what its percentiles allow")
    within = all(part <= largest for part in figures.parts_ms.values())
    _require(within, "a part of a search takes longer than the search")
    rate, most = figures.queries_per_second, _MOST_GAIN * 1000 / latency.p50
    _require(rate is None or 0 < rate <= most, f"{rate or 0:.3g} queries a second are more than batches give")


def _check_resources(figures: EfficiencyFigures) -> None:
    memory, on_gpu = figures.peak_memory_bytes, figures.peak_gpu_memory_bytes
    _require(max(memory or 0, on_gpu or 0) <= _TOO_MUCH_MEMORY, "no machine has so much memory")
    used = memory != 0 and (figures.device != "cpu" or on_gpu is None)
    _require(used, "memory is told that was not used")
    joules, source = figures.energy_joules_per_query, figures.energy_source
    _require(source in _ENERGY_SOURCES and (joules is None) == (source == ""), "energy is of no counter")
    most = _MOST_WATTS * figures.latency_ms.mean / 1000 + _COUNTER_STEP
    _require(joules is None or joules <= most, "no machine draws so much")


def is_plain_file(path: Path) -> bool:
    """Return whether it is a file under this one name: no link of either kind, no folder, no device."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small regular file."""
    try:
        value = parse(read_file(path, _LARGEST_FILE))
    except OSError as error:
        raise InvalidOutcome(f"{path.name}: {error.strerror}") from error
    except NotJson as error:
        raise InvalidOutcome(f"{path.name}: {quote(error)}") from error
    _require(_depth(value) <= _DEEPEST, "it is too deep")
    return _object({path.name: value}, path.name)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise InvalidOutcome(f"{name} is no object")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_duration(value)


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _TOO_LARGE


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidOutcome(message)
