"""Retrieve with one of our own engines, then score: baselines and the demo's other rows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.db import transaction

from evaluation.engines import retrieve
from leaderboard.baselines import BM25, CONFIGURATIONS, system_of
from leaderboard.datasets import mark_published
from leaderboard.example_runs import keep_example_runs, offer_example_runs
from leaderboard.models import Entry, Qrels
from leaderboard.runs import store_run
from leaderboard.store import Area, path_of
from submissions.lease import Lease, LeaseLost
from submissions.lifecycle import advance, write_log
from submissions.models import Job, State
from submissions.scoring import (
    Result,
    begin_scoring,
    current_qrels,
    evaluate,
    publish_on_present,
    publish_results,
)


def retrieve_job(job: Job, lease: Lease) -> None:
    """Run the job's configuration over its dataset and publish the result. Raises LeaseLost or Cancelled."""
    configuration = CONFIGURATIONS[job.payload.get("configuration", BM25.slug)]
    qrels = current_qrels(job.dataset)
    version = qrels.version
    if not advance(job.pk, State.RETRIEVING, fence=job.fence, stage="loading"):
        raise LeaseLost
    write_log(job.pk, f"{configuration.name} over {version}")
    work = Path(settings.VAR) / "work"
    work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        out = Path(folder) / "run.txt"
        retrieval = retrieve(
            configuration.engine,
            corpus=path_of(Area.FILES, version.corpus_sha256),
            queries=path_of(Area.FILES, version.topics_sha256),
            out=out,
            parameters={"language": job.dataset.language, **configuration.parameters},
            drop_self_matches=job.dataset.drop_self_matches,
            progress=lease.report_stage,
            work_folder=Path(folder),
        )
        write_log(
            job.pk,
            f"{retrieval.documents:,} documents indexed in {retrieval.build_seconds:.1f} s, "
            f"{retrieval.queries:,} queries searched in {retrieval.search_seconds:.1f} s "
            f"({retrieval.index_bytes / 2**20:.1f} MiB, analyser {retrieval.analyser})",
        )
        begin_scoring(job)
        scored = evaluate(out, job.dataset, qrels, lease)
        stored = store_run(out)
        is_baseline = job.kind == Job.Kind.BASELINE
        examples = keep_example_runs(job.dataset, out, Path(folder)) if is_baseline else []

        @transaction.atomic
        def publish(results: Sequence[Result], present: Qrels) -> None:
            publish_results(job, system_of(configuration), results, present, Entry.Provenance.MEASURED)
            offer_example_runs(version, examples)
            if is_baseline:
                mark_published(job.dataset)

        publish_on_present(job, lease, [Result(stored, scored)], qrels, publish)
