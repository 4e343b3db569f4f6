"""Program inside the sandbox, which executes one job and writes its results to the output folder.

The child sends progress lines to its parent, and asks it whether the machine is free for measurements.
"""

import errno
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from evaluation.collections.beir import Query, read_corpus
from evaluation.core.problems import ModelFailure, is_out_of_memory
from evaluation.core.writing import DISK_FULL, make_folder, replace_on_success
from evaluation.efficiency.measurements import TooSlow, measuring_seconds, plan_efforts
from evaluation.efficiency.meters import peak_memory
from evaluation.efficiency.protocol import System, flops_per_document, measure
from evaluation.engines import (
    Engine,
    InvalidParameter,
    Resources,
    Retrieval,
    RetrievalTask,
    ShardedEngine,
    describe,
    retrieve,
)
from evaluation.execution.job import (
    ANSWER_GO,
    ASK_TO_MEASURE,
    EXIT_DISK_FULL,
    EXIT_MODEL_FAILED,
    EXIT_OUT_OF_MEMORY,
    FAILURE_NAME,
    INDEX_FOLDER,
    MEASURED,
    RESULT_NAME,
    RUN_NAME,
    SHARD_DONE,
    SHARD_FOLDER,
    WORK_FOLDER,
    ExecutionJob,
)

#: Minimum seconds between progress lines of a stage.
_PAUSE = 0.2


class Channel:
    """Lines to the parent on the original standard output. Output of libraries is redirected to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._stage = ""
        self._last_report_time = -_PAUSE

    def report(self, stage: str, share: float) -> None:
        """Send the progress of a stage: always when it starts or ends, otherwise a few times per second."""
        seconds = monotonic()
        if stage == self._stage and share < 1 and seconds - self._last_report_time < _PAUSE:
            return
        self._stage, self._last_report_time = stage, seconds
        self._send(json.dumps({"stage": stage, "share": share}))

    def ask_to_measure(self) -> bool:
        """Wait until the machine is free, and return whether to measure. Raises EOFError if the parent is gone."""
        self._send(ASK_TO_MEASURE)
        answer = sys.stdin.readline()
        if not answer:
            raise EOFError("the parent closed its end without an answer")
        return answer.strip() == ANSWER_GO

    def report_measured(self) -> None:
        self._send(MEASURED)

    def requested_shards(self) -> Iterator[int]:
        """Yield the numbers of shards to encode. The next one is requested when the previous one is finished."""
        while line := sys.stdin.readline():
            yield int(line)
            self._send(SHARD_DONE)

    def _send(self, line: str) -> None:
        self._lines.write(line + "\n")
        self._lines.flush()


_LONGEST_MESSAGE = 500
_DISK_FULL = (errno.EFBIG, *DISK_FULL)


def main(job_file: Path) -> int:
    """Execute a job, write its result or failure to the output folder, and return the exit status.

    Tracebacks are written to standard error for the operator's log.
    """
    channel = Channel()
    job = ExecutionJob.from_json(job_file.read_text(encoding="utf-8"))
    try:
        result = perform(job, channel)
    except ModelFailure as failure:
        return _fail(job, failure)
    except InvalidParameter as error:
        return _fail(job, ModelFailure("invalid_parameter", str(error)))
    except OSError as error:
        traceback.print_exc()
        return EXIT_DISK_FULL if error.errno in _DISK_FULL else 1
    except Exception as error:
        traceback.print_exc()
        if not is_out_of_memory(error):
            return 1
        return _fail(job, ModelFailure("out_of_memory", "the model ran out of memory"))
    if result is not None:
        _write(job.out / RESULT_NAME, result)
    return 0


def perform(job: ExecutionJob, channel: Channel) -> dict[str, Any] | None:
    """Execute a job and return the content of `result.json`, or None if each shard has its own.

    Raises ModelFailure and InvalidParameter.
    """
    if job.task == "encode_shards":
        _encode_shards(job, channel)
        return None
    if job.task == "check":
        from evaluation.engines.neural.checking import check_checkpoint

        assert job.checkpoint is not None
        return {"problems": [asdict(problem) for problem in check_checkpoint(job.checkpoint).problems]}
    if job.task == "index":
        assert job.corpus is not None
        description = describe(job.engine)
        engine = description.create(description.complete(job.parameters), _resources(job))
        folder = job.out / INDEX_FOLDER
        folder.mkdir()
        start = perf_counter()
        engine.build(read_corpus(job.corpus, lambda share: channel.report("indexing", share)), folder)
        return {"index": {"seconds": perf_counter() - start, "memory": peak_memory()}}
    return _retrieve(job, channel)


def _retrieve(job: ExecutionJob, channel: Channel) -> dict[str, Any]:
    """Write the run, measure the engine if the job asks for it, and return the content of `result.json`.

    For the task "measure", the run is temporary. `result.json` is also written before and after measuring, so that
    it exists if the child is killed.
    """
    assert job.queries is not None
    assert job.corpus is not None
    work = job.out / WORK_FOLDER
    work.mkdir()
    figures: dict[str, Any] = {"figures": None, "variants": {}}

    def before_cleanup(engine: Engine, queries: Sequence[Query], result: Retrieval) -> None:
        """Write the result without figures, and measure the engine if the parent allows it."""
        if not (job.measure and queries):
            return
        # If the child is killed later, the run is still valid, and so are the figures after they are written.
        _write(job.out / RESULT_NAME, {"retrieval": result.as_data(), **figures})
        assert job.corpus is not None
        flops = flops_per_document(engine, job.corpus, work)
        if channel.ask_to_measure():
            figures.update(_measure(job, channel, engine, queries, result, flops))
            _write(job.out / RESULT_NAME, {"retrieval": result.as_data(), **figures})
            channel.report_measured()

    retrieval = retrieve(
        RetrievalTask(
            job.engine,
            job.corpus,
            job.queries,
            (work if job.task == "measure" else job.out) / RUN_NAME,
            parameters=job.parameters,
            k=job.depth,
            drop_self_matches=job.drop_self_matches,
            work_folder=work,
            tag=job.tag,
            resources=_resources(job),
            shards=job.shards,
            shard_size=job.shard_size,
            rankings=job.rankings,
            excluded=job.excluded,
        ),
        progress=channel.report,
        before_cleanup=before_cleanup,
    )
    shutil.rmtree(work)
    return {"retrieval": retrieval.as_data(), **figures}


def _measure(
    job: ExecutionJob,
    channel: Channel,
    engine: Engine,
    queries: Sequence[Query],
    retrieval: Retrieval,
    flops_per_document: float | None,
) -> dict[str, Any]:
    """Return the main figures and the figures of each variant, or an empty dictionary if searches are too slow.

    The main variant is the last one. The machine is reserved for this function, so it only measures.
    """
    engines = {label: engine.variant(label) for label in engine.variants} or {"": engine}
    figures_by_label: dict[str, dict[str, Any]] = {}
    deadline = perf_counter() + measuring_seconds(retrieval)
    for label, effort in zip(engines, plan_efforts(len(engines), brief=job.brief), strict=True):
        try:
            figures = measure(
                System(engines[label], retrieval.for_variant(label), job.device, job.checkpoint),
                queries,
                effort,
                budget=(deadline - perf_counter()) / (len(engines) - len(figures_by_label)),
                progress=lambda share: channel.report("measuring", (len(figures_by_label) + share) / len(engines)),
            )
        except TooSlow:
            return {}
        figures_by_label[label] = replace(figures, flops_per_document=flops_per_document).as_data()
    return {"figures": figures_by_label[list(engines)[-1]], "variants": figures_by_label if engine.variants else {}}


def _encode_shards(job: ExecutionJob, channel: Channel) -> None:
    """Load the model once, and write each shard that the parent requests, with a result."""
    description = describe(job.engine)
    resources = _resources(job)
    description.check(resources)
    channel.report("loading", 0.0)
    engine = description.create(description.complete(job.parameters), resources)
    if not isinstance(engine, ShardedEngine):
        raise TypeError(f"{job.engine} does not encode in shards")
    assert job.corpus is not None
    report = partial(channel.report, "encoding")
    for number in channel.requested_shards():
        documents = list(islice(read_corpus(job.corpus, first_document=number * job.shard_size), job.shard_size))
        report(0.0)
        start = perf_counter()
        make_folder(job.out / SHARD_FOLDER, partial(engine.encode_shard, documents, progress=report))
        shard = {"number": number, "documents": len(documents), "seconds": perf_counter() - start}
        _write(job.out / RESULT_NAME, {"shard": shard})


def _resources(job: ExecutionJob) -> Resources:
    return Resources(job.checkpoint, job.runs, job.device, job.threads, job.language, job.index, job.socket)


def _fail(job: ExecutionJob, failure: ModelFailure) -> int:
    print(f"{failure.code}: {failure.message}", file=sys.stderr)  # The message is only for the operator's log.
    _write(job.out / FAILURE_NAME, {"code": failure.code, "message": failure.message[:_LONGEST_MESSAGE]})
    return EXIT_OUT_OF_MEMORY if failure.code == "out_of_memory" else EXIT_MODEL_FAILED


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with replace_on_success(path) as unfinished:
        unfinished.write_text(json.dumps(content), encoding="utf-8")
