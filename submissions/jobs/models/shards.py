"""Encode one shard of a corpus, for whoever waits for it."""

from __future__ import annotations

from django.conf import settings

from evaluation.engines import describe
from evaluation.execution.job import SHARD_FOLDER, ExecutionJob
from leaderboard.core.storage.store import Area, path_of
from submissions.checkpoints.service import folder_of
from submissions.jobs.kinds.score import begin
from submissions.jobs.models.encodings import finish_shard
from submissions.jobs.models.running import device_of, job_folder, run_child
from submissions.jobs.registry import register_kind
from submissions.models import Job, Shard, State
from submissions.queue.lease import Cancelled, Lease


@register_kind(Job.Kind.SHARD)
def shard_job(job: Job, lease: Lease) -> None:
    """Encode the job's shard and keep it. Raises ModelFailure, ModelTimedOut, LeaseLost or Cancelled."""
    shard = (
        Shard.objects.select_related("encoding__checkpoint__team", "encoding__version")
        .filter(job=job.pk)
        .first()
    )
    if shard is None or shard.done_at is not None:
        raise Cancelled  # another job makes it now, or has made it
    begin(job, State.RETRIEVING, "loading")
    encoding = shard.encoding
    with job_folder() as folder:
        work = ExecutionJob(
            task="encode_shard",
            engine=encoding.engine,
            out=folder / "out",
            corpus=path_of(Area.FILES, encoding.version.corpus_sha256),
            parameters=describe(encoding.engine).complete(encoding.parameters),
            checkpoint=folder_of(encoding.checkpoint),
            shard=shard.number,
            shard_size=encoding.shard_size,
            device=device_of(job),
            threads=settings.MODEL_THREADS,
            measure=False,
        )
        left = encoding.version.statistics.get("documents", 0) - shard.number * encoding.shard_size
        counted = {"encoding": (max(min(left, encoding.shard_size), 0), "documents")}
        result = run_child(work, lease, counted=counted, trusted=encoding.checkpoint.team is None)
        finish_shard(
            job,
            shard,
            work.out / SHARD_FOLDER,
            documents=result["shard"]["documents"],
            seconds=result["shard"]["seconds"],
            hardware=result["hardware"]["slug"],
            report=lease.report_stage,
        )
