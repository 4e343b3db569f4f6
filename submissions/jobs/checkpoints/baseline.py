"""Retrieve with one of our own engines, then score: baselines and the demo's other rows; and BM25 beside a model.

The baseline of a dataset that collects runs is retrieved at once, so that pools can be drawn from it too, and scored
with all others when the first judgements come.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.db import transaction

from evaluation.core.errors import ModelFailure
from evaluation.core.problems import RunStatistics
from evaluation.engines import Resources, RetrievalTask, describe, retrieve
from evaluation.execution.job import ExecutionJob
from evaluation.runs.score import check_run
from leaderboard.core.storage.runs import run_path, store_run, write_text
from leaderboard.core.storage.store import Area, local_path
from leaderboard.datasets.qrels import excluded_path, scoring_target, topic_ids
from leaderboard.models import DatasetVersion, Run
from leaderboard.systems.baselines import BM25, CONFIGURATIONS, EngineConfiguration, system_of
from submissions.intake.run_records import record_job_run
from submissions.jobs.checkpoints.kept_indexes import with_kept_index
from submissions.jobs.checkpoints.running import DamagedInput, ModelTimedOut, job_folder, run_child
from submissions.jobs.kinds.handover import (
    RetrievalResult,
    finish_retrieval,
    score_handed_over,
    store_checked_run,
)
from submissions.jobs.kinds.score import begin, judged_version
from submissions.models import Job, State
from submissions.queue.lease import Lease, advance_claimed, finish
from submissions.queue.lifecycle import write_log

#: Where a run's metadata says which queries it was retrieved for.
TOPICS = "topics_sha256"


def retrieve_job(job: Job, lease: Lease) -> None:
    """Run the job's configuration over its dataset and publish the result. Raises LeaseLost or Cancelled.

    Without judgements yet the run is kept, and the job is done.
    """
    if score_handed_over(job, lease):
        return
    configuration = CONFIGURATIONS[job.payload.get("configuration", BM25.slug)]
    begin(job, State.RETRIEVING, "loading")
    with job_folder() as folder:
        if job.dataset.awaits_judgements:
            _retrieve_and_store(job, lease, configuration, folder / "run.txt")
        else:
            _retrieve_and_score(job, lease, configuration, folder / "run.txt")


def _retrieve_and_score(job: Job, lease: Lease, configuration: EngineConfiguration, out: Path) -> None:
    version = judged_version(job.dataset)
    if (kept := _find_waiting_run(configuration, version)) is not None:
        write_log(job.pk, f"{configuration.name} over {version}, retrieved while runs were collected")
        write_text(kept.sha256, out)
    else:
        _retrieve(job, lease, configuration, version, out)
    run = store_checked_run(out, version, may_be_empty=True)
    finish_retrieval(job, lease, RetrievalResult(system_of(configuration).slug, version.pk, job.queue, [run]))


def _retrieve_and_store(job: Job, lease: Lease, configuration: EngineConfiguration, out: Path) -> None:
    version = job.dataset.current_version
    if version is None:
        raise RuntimeError(f"{job.dataset.slug} collects runs and has no version")
    if _find_waiting_run(configuration, version) is not None:
        advance_claimed(job, State.DONE, progress=1.0)
        return
    _retrieve(job, lease, configuration, version, out)
    read = check_run(out, scoring_target(version)).statistics
    statistics = RunStatistics(lines=read.lines, tags=read.tags, metadata={TOPICS: version.topics_sha256})
    stored = store_run(out)
    with transaction.atomic():
        finish(job, "Kept. It is scored when the first judgements come.")
        record_job_run(
            job, None, system_of(configuration), stored, statistics, version, origin=Run.Origin.RETRIEVED
        )


def _retrieve(
    job: Job, lease: Lease, configuration: EngineConfiguration, version: DatasetVersion, out: Path
) -> None:
    write_log(job.pk, f"{configuration.name} over {version}")
    corpus = local_path(Area.FILES, version.corpus_sha256)
    parameters = describe(configuration.engine).complete(configuration.parameters)
    work = ExecutionJob(
        "retrieve", configuration.engine, out, parameters=parameters, language=job.dataset.language
    )
    work = with_kept_index(lease, work, version)
    retrieval = retrieve(
        RetrievalTask(
            work.engine,
            corpus,
            local_path(Area.FILES, version.topics_sha256),
            out,
            parameters=parameters,
            drop_self_matches=job.dataset.drop_self_matches,
            excluded=excluded_path(version),
            work_folder=out.parent,
            resources=Resources(language=work.language, index=work.index),
        ),
        progress=lease.report_stage,
    )
    if retrieval.documents != version.statistics.get("documents", retrieval.documents):
        raise DamagedInput(f"{retrieval.documents} documents were read of the corpus {corpus.name}")
    seconds = retrieval.build_seconds + work.index_seconds
    write_log(
        job.pk,
        f"{retrieval.documents:,} documents indexed in {seconds:.1f} s, "
        f"{retrieval.queries:,} queries searched in {retrieval.search_seconds:.1f} s "
        f"({retrieval.index_bytes / 2**20:.1f} MiB, analyser {retrieval.analyser})",
    )


def _find_waiting_run(configuration: EngineConfiguration, version: DatasetVersion) -> Run | None:
    """Return the configuration's run that was stored while the dataset collected runs, if it has all queries."""
    runs = Run.objects.filter(
        version=version,
        system=system_of(configuration),
        origin=Run.Origin.RETRIEVED,
        metadata__has_key=TOPICS,
    )
    now = topic_ids(version.topics_sha256)
    for run in runs.order_by("-pk"):
        then = topic_ids(run.metadata[TOPICS])
        if run_path(run.sha256).exists() and now <= then:
            return run
    return None


def measure_bm25(
    lease: Lease, work: ExecutionJob, version: DatasetVersion, folder: Path
) -> Mapping[str, Any]:
    """Measure BM25 on this machine, in this job; return its figures and hardware class, empty if that fails."""
    bm25 = ExecutionJob(
        task="measure",
        engine=BM25.engine,
        out=folder / "baseline",
        corpus=work.corpus,
        documents=work.documents,
        queries=work.queries,
        excluded=work.excluded,
        parameters=describe(BM25.engine).complete(BM25.parameters),
        language=work.language,
        drop_self_matches=work.drop_self_matches,
        threads=work.threads,
    )
    try:
        return run_child(with_kept_index(lease, bm25, version), lease, trusted=True)
    except (ModelFailure, ModelTimedOut, RuntimeError) as error:
        write_log(lease.job.pk, f"BM25 could not be measured beside it ({type(error).__name__}).")
        return {}
