"""Output of a child process is untrusted: results, runs, progress, and failures."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import ModelFailure
from evaluation.efficiency import EfficiencyFigures
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import ENGINES, InvalidParameter, describe
from evaluation.engines.facts import FACTS
from evaluation.engines.run_writing import variant_paths
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import (
    ExecutionJob,
    Progress,
)
from evaluation.execution.outcome import STAGES, InvalidOutcome, read_failure, read_progress, read_result


def left(out: Path, figures: Mapping[str, Any] | None = None, **changes: Any) -> None:
    """A result as a child leaves it, with some of the retrieval changed."""
    retrieval = {
        "engine": "x", "parameters": {}, "analyser": "words", "documents": 3, "queries": 2, "lines": 4,
        "queries_without_results": 0, "index_bytes": 10, "build_seconds": 0.1, "search_seconds": 0.1, "facts": {},
        "variants": {}, "variant_facts": {}, "variant_index_bytes": {}, "encoding_seconds": 0.0,
    }  # fmt: skip
    hardware = {"details": {"cpu": "the fastest", "cores": 1, "gpu": None, "python": "3", "libraries": {}}}
    result = {"figures": figures, "variants": {}, "hardware": hardware, "retrieval": {**retrieval, **changes}}
    for name in ("run.txt", "run.50.txt", "run.top-10.txt"):
        (out / name).write_text("q1 Q0 d1 1 1.0 x\n")
    (out / "result.json").write_text(json.dumps(result))


def test_what_was_asked_for_is_not_taken_from_the_child(job: ExecutionJob) -> None:
    """Engine and parameters are those of the job, and what nobody knows is dropped."""
    left(job.out, engine="the best", parameters={"k1": 99}, surprise="x" * 100, analyser="What is asked in q1?")
    result = read_result(job.out, job, seconds=60)
    assert result["retrieval"]["engine"] == "bm25"
    assert result["retrieval"]["parameters"]["k1"] == 0.9
    assert "surprise" not in result["retrieval"]
    assert "What is asked" not in str(result)
    assert result["hardware"] == describe_hardware(1).as_data()


@pytest.mark.parametrize(
    "changes",
    [
        {"documents": -1},
        {"documents": True},
        {"documents": 1e300},
        {"index_bytes": "10"},
        {"build_seconds": math.nan},
        {"build_seconds": math.inf},
        {"facts": {"unknown": 1}},
        {"facts": {"dimension": [1]}},
        {"facts": {"dimension": "what is asked in q1?"}},
        {"facts": {"dimension": 10**7}},
        {"facts": {"recall_against_exact": 1.5}},
        {"facts": {"recall_against_exact": -0.5}},
        {"facts": {"similarity": "what is asked in q1?"}},
        {"facts": {"hardware_mixture": "what is asked in q1?"}},
        {"queries": 3},
        {"documents": 10**400},
        {"build_seconds": 61},
        {"encoding_seconds": 1},
        {"variants": {"top 10": "run.top-10.txt"}},
        {"analyser": "x" * 10_000},
        {"variants": {"50": "../../etc/passwd"}},
        {"variants": {"50": "run.absent.txt"}},
        {"variants": ["run.txt"]},
        {"variant_facts": {"50": {}}},
        {"variant_facts": []},
        {"variant_index_bytes": {"50": 1}},
        {"variant_index_bytes": []},
        {"encoded_documents": "all"},
        {"encoded_documents": 4},
        {"surprise": [[[[[[[[1]]]]]]]]},
    ],
)
def test_a_strange_result_is_refused(job: ExecutionJob, changes: dict[str, Any]) -> None:
    """Numbers, names and depths that no child of ours writes."""
    left(job.out)
    read_result(job.out, job, seconds=60)
    left(job.out, **changes)
    with pytest.raises(InvalidOutcome):
        read_result(job.out, job, seconds=60)


@pytest.mark.parametrize("documents", [2, 4])
def test_a_result_over_other_documents_than_the_corpus_has_is_none(job: ExecutionJob, documents: int) -> None:
    """A corpus that was cut, or a child that tells of a better rate than it had."""
    left(job.out)
    read_result(job.out, replace(job, documents=3), seconds=60)
    with pytest.raises(InvalidOutcome, match="the number of documents is wrong"):
        read_result(job.out, replace(job, documents=documents), seconds=60)


@pytest.mark.parametrize(("number", "documents"), [(0, 2), (1, 1)])
def test_a_shard_has_all_of_its_documents(job: ExecutionJob, number: int, documents: int) -> None:
    """The corpus has three documents in shards of two."""
    work = replace(job, task="encode_shards", shard=number, shard_size=2, documents=3)
    (job.out / "shard").mkdir()
    for told in range(4):
        (job.out / "result.json").write_text(json.dumps({"shard": {"number": number, "documents": told, "seconds": 1}}))
        if told == documents:
            assert read_result(job.out, work, seconds=60)["shard"]["documents"] == told
        else:
            with pytest.raises(InvalidOutcome, match="the shard has another number of documents"):
                read_result(job.out, work, seconds=60)


def test_facts_have_the_decimals_that_are_shown(job: ExecutionJob) -> None:
    """A number carries no more than a reader sees."""
    left(job.out, facts={"recall_against_exact": 0.123456789, "dimension": 384, "index_kind": "hnsw"})
    facts = read_result(job.out, job, seconds=60)["retrieval"]["facts"]
    assert facts == {"recall_against_exact": 0.1235, "dimension": 384, "index_kind": "hnsw"}


def test_every_choice_that_engines_tell_of_is_a_word() -> None:
    """Choices of an engine's storage and search are accepted values of the facts with the same meaning."""
    told = {"stored_dtype": "stored_dtype", "search": "index_kind", "mode": "index_kind"}
    for engine in ENGINES.values():
        for parameter in engine.parameters:
            if parameter.name in told:
                assert set(parameter.choices) <= set(FACTS[told[parameter.name]].words), engine.name


DEPTHS = ("top 10", "top 50", "top 100")


def reranked(job: ExecutionJob, labels: Sequence[str]) -> ExecutionJob:
    """A cross-encoder's job at three depths, and a result with these variants."""
    names = {label: path.name for label, path in variant_paths(labels, job.out / "run.txt").items()}
    left(
        job.out,
        variants=names,
        variant_facts={label: {"depth": 1} for label in names},
        variant_index_bytes=dict.fromkeys(names, 12345),
    )
    for name in names.values():
        (job.out / name).write_text("q1 Q0 d1 1 1.0 x\n")
    return replace(job, engine="cross-encoder", parameters={"reranking_depths": "10,50"})


def test_variants_are_those_that_the_engine_has(job: ExecutionJob) -> None:
    """The parent knows the labels from the parameters alone, and takes nothing more, less or else."""
    asked = reranked(job, DEPTHS)
    assert tuple(read_result(job.out, asked, seconds=60)["retrieval"]["variants"]) == DEPTHS
    for others in ([], DEPTHS[1:], [*DEPTHS, "top 11"], [f"top {depth}" for depth in range(1, 151)]):
        reranked(job, others)
        with pytest.raises(InvalidOutcome, match="other variants"):
            read_result(job.out, asked, seconds=60)


FIGURES = {
    "protocol": "v4", "depth": 100, "threads": 1, "device": "cpu", "searches": 200, "queries": 2, "documents": 3,
    "rounds": 100, "spread_ms": 0.1, "unsettled": 0,
    "latency_ms": {"mean": 5.0, "p50": 4.0, "p95": 8.0, "p99": 9.0}, "parts_ms": {"search": 3.0},
    "queries_per_second": 300.0, "documents_per_second": 1e9, "build_seconds": 1e-9, "index_bytes": 1,
    "peak_memory_bytes": 2**28, "parameters": 7 * 10**9, "stored_runs": 9, "batched": 2,
}  # fmt: skip


def test_what_follows_from_the_retrieval_is_not_asked_twice(job: ExecutionJob) -> None:
    """Build time, its rate, bytes and weights are those that the parent can know."""
    left(job.out, FIGURES)
    figures = read_result(job.out, job, seconds=60)["figures"]
    assert figures["latency_ms"]["p50"] == 4.0
    assert (figures["build_seconds"], figures["index_bytes"], figures["parameters"]) == (0.1, 10, None)
    assert figures["documents_per_second"] == pytest.approx(30)
    assert figures["stored_runs"] == 0


def test_what_a_kept_index_took_is_added_by_the_parent(job: ExecutionJob) -> None:
    """The child only opened it, and ran for less than it had taken to build."""
    left(job.out, FIGURES)
    over_kept = replace(job, index=job.out, index_seconds=100.0, index_memory=2**30)
    result = read_result(job.out, over_kept, seconds=60)
    assert result["retrieval"]["build_seconds"] == result["figures"]["build_seconds"] == 100.1
    assert result["figures"]["documents_per_second"] == pytest.approx(3 / 100.1, rel=1e-3)
    assert result["figures"]["peak_memory_bytes"] == pytest.approx(2**30, rel=1e-3)
    with pytest.raises(InvalidOutcome):
        read_result(job.out, over_kept, seconds=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": "v1"},
        {"rounds": 1, "searches": 2},
        {"rounds": 99},
        {"rounds": 101, "searches": 202},
        {"spread_ms": None},
        {"unsettled": 3},
        {"other_work": 1.5},
        {"depth": 10},
        {"threads": 64},
        {"device": "cuda"},
        {"searches": 10},
        {"queries": 0},
        {"queries": 1, "rounds": 200},
        {"queries": 3},
        {"batched": 1},
        {"batched": 3},
        {"documents": 10**9},
        {"latency_ms": {"mean": 0, "p50": 0, "p95": 0, "p99": 0}},
        {"latency_ms": {"mean": 5.0, "p50": 4.0, "p95": 3.0, "p99": 9.0}},
        {"latency_ms": {"mean": 1.0, "p50": 4.0, "p95": 8.0, "p99": 9.0}},
        {"latency_ms": {"mean": 400.0, "p50": 4.0, "p95": 8.0, "p99": 9.0}},
        {"latency_ms": {"mean": 10**400, "p50": 4.0, "p95": 8.0, "p99": 9.0}},
        {"parts_ms": {"search": 50.0}},
        {"queries_per_second": 1e18},
        {"queries_per_second": 0},
        {"queries_per_second": 1e-3},
        {"peak_memory_bytes": 2**60},
        {"peak_memory_bytes": 0},
        {"peak_gpu_memory_bytes": 1},
        {"energy_joules_per_query": 1.0},
        {"energy_joules_per_query": 1e9, "energy_source": "CPU"},
        {"energy_joules_per_query": 1.0, "energy_source": "what is asked in q1?"},
    ],
)
def test_figures_that_cannot_be_are_refused(job: ExecutionJob, changes: dict[str, Any]) -> None:
    """Another protocol or device, searches that took longer than the child ran, or less than a call."""
    left(job.out, {**FIGURES, **changes})
    with pytest.raises(InvalidOutcome):
        read_result(job.out, job, seconds=60)


def test_a_slow_system_may_be_searched_less_often(job: ExecutionJob) -> None:
    """Two rounds, and no throughput."""
    latency = {"mean": 2000.0, "p50": 2000.0, "p95": 2000.0, "p99": 2000.0}
    brief = {"searches": 4, "rounds": 2, "queries_per_second": None, "batched": 0}
    left(job.out, {**FIGURES, **brief, "latency_ms": latency})
    figures = read_result(job.out, job, seconds=60)["figures"]
    assert (figures["searches"], figures["queries_per_second"]) == (4, None)


def test_a_quick_system_that_chose_what_to_time_has_a_run_and_no_figures(job: ExecutionJob) -> None:
    left(job.out, {**FIGURES, "searches": 4, "rounds": 2})
    result = read_result(job.out, job, seconds=60)
    assert (result["figures"], result["retrieval"]["queries"]) == (None, 2)


def test_throughput_is_over_whole_batches(job: ExecutionJob) -> None:
    assert job.queries is not None
    job.queries.write_text("".join(json.dumps({"_id": f"q{n}", "text": "x"}) + "\n" for n in range(150)))
    told = {**FIGURES, "queries": 100, "searches": 1000, "rounds": 10}
    for batched, is_taken in ((150, True), (128, True), (64, True), (100, False), (0, False)):
        left(job.out, {**told, "batched": batched}, queries=150)
        with nullcontext() if is_taken else pytest.raises(InvalidOutcome, match="throughput is over"):
            read_result(job.out, job, seconds=60)


@pytest.mark.parametrize("make", ["a link", "a pipe", "a folder", "nothing", "16 MiB", "half a pair"])
def test_a_result_that_is_no_file_of_ours_is_refused(job: ExecutionJob, make: str) -> None:
    """Links are not followed, pipes are not waited for, and large files are not read completely."""
    left(job.out)
    result = job.out / "result.json"
    content = result.read_text()
    result.unlink()
    match make:
        case "a link":
            (job.out / "elsewhere").write_text(content)
            result.symlink_to(job.out / "elsewhere")
        case "a pipe":
            os.mkfifo(result)
        case "a folder":
            result.mkdir()
        case "16 MiB":
            result.write_text(content + " " * (16 << 20))
        case "half a pair":
            result.write_text(content.replace("words", "\\ud800"))
    with pytest.raises(InvalidOutcome):
        read_result(job.out, job, seconds=60)


def test_a_run_that_is_a_link_is_refused(job: ExecutionJob) -> None:
    """A run is a file of its own."""
    left(job.out)
    (job.out / "run.txt").unlink()
    (job.out / "run.txt").symlink_to("/etc/passwd")
    with pytest.raises(InvalidOutcome, match=r"there is no run\.txt"):
        read_result(job.out, job, seconds=60)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300) | st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
       lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["stage", "share", "note", "x"]), inner))
       .map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_line_is_too_strange(line: bytes) -> None:
    """A line is progress, or it is nothing."""
    progress = read_progress(line)
    assert progress is None or (0 <= progress.share <= 1 and not progress.note)


def test_progress_carries_little(job: ExecutionJob) -> None:
    """The submitter sees it, and the child read the queries: no words, no digits beyond a hundredth, no way back."""
    said = {
        "stage": "searching",
        "share": 0.123456789,
        "note": "4,242,424,242,424 of 9,999,999,999,999 documents",
    }
    heard = read_progress(json.dumps(said).encode())
    assert heard == Progress("searching", 0.12)
    random = Random(7)
    told, lines = set(), [(random.choice(STAGES), random.random()) for _ in range(10_000)]
    progress = Progress("loading", 0.0)
    for stage, share in lines:
        line = json.dumps({"stage": stage, "share": share}).encode()
        if (later := read_progress(line, progress)) is not None:
            assert (STAGES.index(later.stage), later.share) >= (STAGES.index(progress.stage), progress.share)
            progress = later
            told.add(progress)
    assert len(told) <= 5 * 101


def test_numbers_of_a_result_have_four_digits(job: ExecutionJob) -> None:
    """More would be room for what the child read, and no page shows them."""
    left(job.out, build_seconds=1.23456789, index_bytes=123_456_789)
    retrieval = read_result(job.out, job, seconds=60)["retrieval"]
    assert (retrieval["build_seconds"], retrieval["index_bytes"]) == (1.235, 123_500_000)


def test_a_number_of_any_length_is_read(job: ExecutionJob) -> None:
    """In a line, a result or a failure: it is refused, and nothing breaks."""
    number = "9" * 400
    assert read_progress(f'{{"stage": "searching", "share": {number}}}'.encode()) is None
    (job.out / "failure.json").write_text(f'{{"code": "not_loadable", "message": "", "at": {number}}}')
    assert read_failure(job.out, job) is None
    with pytest.raises(ValueError, match="depth"):
        EfficiencyFigures.from_data({**FIGURES, "depth": 10**400})
    with pytest.raises(InvalidParameter, match="is not valid; expected a number"):
        describe("bm25").complete({"k1": number})


@pytest.mark.parametrize(
    ("engine", "code", "said", "told"),
    [
        ("bm25", "not_loadable", "what is asked in q1?", MODEL_FAILURES["not_loadable"].meaning),
        (
            "dense",
            "invalid_parameter",
            "maximum_length = 900: what is asked, 384?",
            "maximum_length (900, 384)",
        ),
        ("dense", "invalid_parameter", "leave pooling at auto", "pooling"),
        ("bm25", "invalid_parameter", "leave pooling", MODEL_FAILURES["invalid_parameter"].meaning),
    ],
)
def test_a_failure_is_told_in_our_words(job: ExecutionJob, engine: str, code: str, said: str, told: str) -> None:
    """A child has read the queries: its own words stay in the operator's log."""
    (job.out / "failure.json").write_text(json.dumps({"code": code, "message": said}))
    failure = read_failure(job.out, replace(job, engine=engine))
    assert isinstance(failure, ModelFailure)
    assert (failure.code, failure.message) == (code, told)


def test_a_child_cannot_report_any_number_of_problems(tmp_path: Path) -> None:
    problem = {"severity": "warning", "code": sorted(CODES)[0], "message": "x"}
    job = ExecutionJob("check", "dense", tmp_path)
    for count, accepted in ((1_000, True), (1_001, False)):
        (tmp_path / "result.json").write_text(json.dumps({"problems": [problem] * count}))
        with nullcontext() if accepted else pytest.raises(InvalidOutcome, match="too many problems"):
            assert len(read_result(tmp_path, job, 1.0)["problems"]) == count
