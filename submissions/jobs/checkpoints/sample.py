"""Make the sample checkpoint on this machine, keep it as the site's own, and run it as any model is run."""

from __future__ import annotations

from evaluation.engines import describe
from leaderboard.core.storage.store import Area, local_path
from leaderboard.importing.demo.sample_checkpoint import (
    ARCHIVE_NAME,
    NAME,
    archive_checkpoint,
    make_sample_checkpoint,
)
from leaderboard.importing.examples import offer_example_runs, store_example_models
from leaderboard.models import Architecture, Dataset, System
from leaderboard.systems.records import house_system
from submissions.checkpoints.service import store_checkpoint
from submissions.intake.run_records import MADE_BY, made_by
from submissions.jobs.checkpoints.run_model import ModelTask, run_model
from submissions.jobs.checkpoints.running import job_folder
from submissions.jobs.kinds.handover import score_handed_over
from submissions.jobs.kinds.score import begin, judged_version
from submissions.jobs.registry import register_kind
from submissions.models import Checkpoint, Job, State
from submissions.queue.lease import Lease
from submissions.queue.lifecycle import write_log

ENGINE = "dense"
SLUG = "static-embeddings-svd"
_DESCRIPTION = (
    "One vector a word, by a singular value decomposition of the collection's own TF-IDF weights (latent semantic "
    "analysis), made on this machine at the first start. It shows what a measured dense system looks like, not what "
    "one can do; its checkpoint is on the submit page."
)


@register_kind(Job.Kind.SAMPLE_MODEL)
def sample_model_job(job: Job, lease: Lease) -> None:
    """Make the checkpoint from the dataset's documents, offer it for download, and publish what it finds.

    Raises as `run_model.run_model`.
    """
    if score_handed_over(job, lease):
        return
    begin(job, State.RETRIEVING, "loading")
    write_log(job.pk, "Making the sample checkpoint.")
    checkpoint = _make_checkpoint(job)
    lease.check()
    engine = describe(ENGINE)
    task = ModelTask(_system(checkpoint, job.dataset), engine, engine.complete({}), checkpoint)
    job.payload = {**job.payload, MADE_BY: made_by(ENGINE, task.parameters_on(job.dataset), checkpoint)}
    run_model(job, lease, task)


def _make_checkpoint(job: Job) -> Checkpoint:
    """The checkpoint, kept; the same documents give the same one."""
    version = judged_version(job.dataset)
    with job_folder() as folder:
        model = folder / "sample"
        model.mkdir()
        make_sample_checkpoint(model, local_path(Area.FILES, version.corpus_sha256))
        archive = archive_checkpoint(model, folder / "kept.zip")
        checkpoint = store_checkpoint(team=None, archive=archive, file_name=ARCHIVE_NAME, person=None)
        offer_example_runs(version, store_example_models(model, folder))
    return checkpoint


def _system(checkpoint: Checkpoint, dataset: Dataset) -> System:
    return house_system(
        slug=SLUG,
        name=NAME,
        architecture=Architecture.DENSE,
        description=_DESCRIPTION,
        parameters={"engine": ENGINE, "dimension": checkpoint.description.get("dimension")},
        adapted_to=[dataset.slug],
    )
