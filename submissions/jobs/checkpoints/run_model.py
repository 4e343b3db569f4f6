"""Runs of models on datasets: retrieve in the sandbox, check the output like an upload, score, publish, and measure.

A corpus of several shards is encoded by all available workers, while the job waits. The single shard of a small corpus
is encoded by the job itself, in the same process, and stored.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import format_count
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import EngineDescription
from evaluation.engines import describe as describe_engine
from evaluation.engines.base import AUTO, shard_name
from evaluation.engines.prompts import SIDES, select_prompt
from evaluation.execution.job import RUN_NAME, ExecutionJob
from leaderboard.core.storage.runs import write_text
from leaderboard.core.storage.store import Area, local_path
from leaderboard.datasets.qrels import excluded_path
from leaderboard.importing.demo import sample_checkpoint
from leaderboard.importing.examples import offer_example_runs, store_example_models
from leaderboard.models import Architecture, Dataset, DatasetFile, DatasetVersion, Run, System
from leaderboard.systems.provenance import DEPTH
from leaderboard.systems.records import house_system
from submissions.checkpoints.service import CheckpointArchive, checkpoint_folder, store_checkpoint
from submissions.intake.run_records import MADE_BY, describe_producer
from submissions.jobs.checkpoints import encodings
from submissions.jobs.checkpoints.downloads import fetched_checkpoint
from submissions.jobs.checkpoints.embeddings import remove_other_files
from submissions.jobs.checkpoints.images import run_image_job
from submissions.jobs.checkpoints.own_engines import measure_configuration, use_cached_index
from submissions.jobs.checkpoints.running import RANKINGS, check_with_library, get_device, job_folder, run_child
from submissions.jobs.kinds import handover
from submissions.jobs.kinds.score import begin, judged_version
from submissions.models import Checkpoint, Job, State
from submissions.queue.lease import Lease
from submissions.queue.queue import write_log
from submissions.sandbox.processes import remove, remove_unexpected_files

#: Kinds of checkpoints that put markers or instructions before texts by default.
_OWN_MARKS = (CheckpointKind.MULTI_VECTOR, CheckpointKind.CROSS_ENCODER)
SAMPLE_ENGINE = "dense"
SAMPLE_SLUG = "static-embeddings-svd"
_SAMPLE_DESCRIPTION = (
    "One vector per word from a singular value decomposition of the collection's own TF-IDF weights (latent semantic "
    "analysis), computed on this machine at the first start. An example of a measured dense system, not a competitive "
    "one. You can download its checkpoint from the submit page."
)


@dataclass(frozen=True, slots=True)
class ModelTask:
    """Model run to perform: an engine with all its parameters, its inputs, and the system of the result."""

    system: System
    engine: EngineDescription
    parameters: Mapping[str, Any]
    checkpoint: Checkpoint | None = None
    run_ids: Sequence[int] = field(default_factory=tuple)

    def get_parameters(self, dataset: Dataset) -> dict[str, Any]:
        """Return all parameters for the dataset.

        Hidden datasets get no variants, since each would reveal more of the judgments.
        """
        return {**self.parameters, **(self.engine.main_alone if dataset.hidden else {})}

    @property
    def is_ours(self) -> bool:
        """Whether the model is the site's own, or there is none."""
        return self.checkpoint is None or self.checkpoint.team_id is None


@dataclass(frozen=True, slots=True)
class _Plan:
    """Task of a job on one version of its dataset, with the setting of its embeddings and the stored ones."""

    job: Job
    task: ModelTask
    version: DatasetVersion
    setting: encodings.EncodingSetting | None
    corpus: encodings.EncodedCorpus | None

    @property
    def rankings(self) -> Path:
        """Folder in which this host keeps the job's rankings for its next attempt; abandoned ones are swept."""
        return Path(settings.VAR) / "work" / f"{RANKINGS}{self.job.pk}"


def model_job(job: Job, lease: Lease) -> None:
    """Run a submission's model on one dataset and publish the result, or measure an earlier result again.

    Raises ModelFailure, ModelTimedOut, WaitsForShards, InvalidRun, LeaseLost, or Cancelled.
    """
    if handover.score_retrieval(job, lease):
        return
    payload, submission = job.payload, job.submission
    if handover.MEASURES in payload:  # `request_measurement` wrote the payload
        task = ModelTask(
            System.objects.get(slug=payload["system"]),
            describe_engine(payload["engine"]),
            payload["parameters"],
            None if payload["checkpoint"] is None else Checkpoint.objects.get(pk=payload["checkpoint"]),
            payload["run_ids"],
        )
    elif submission is None:
        raise RuntimeError(f"Job {job.pk} belongs to no submission.")
    else:
        engine = describe_engine(submission.engine)
        task = ModelTask(
            submission.system,
            engine,
            engine.complete(job.model_parameters),
            submission.checkpoint or fetched_checkpoint(job, lease),
            payload.get("run_ids", ()),
        )
    run_model(job, lease, task)


def sample_model_job(job: Job, lease: Lease) -> None:
    """Create the sample checkpoint from the dataset's documents, offer it for download, and publish its result.

    Raises the exceptions of `run_model`.
    """
    if handover.score_retrieval(job, lease):
        return
    begin(job, State.RETRIEVING, "loading")
    write_log(job.pk, "Creating the sample checkpoint.")
    version = judged_version(job.dataset)
    with job_folder() as folder:
        model = folder / "sample"
        model.mkdir()
        sample_checkpoint.make_sample_checkpoint(model, local_path(Area.FILES, version.corpus_sha256))
        archive = sample_checkpoint.archive_checkpoint(model, folder / "kept.zip")
        checkpoint = store_checkpoint(None, CheckpointArchive(sample_checkpoint.ARCHIVE_NAME, archive), None)
        offer_example_runs(version, store_example_models(model, folder))
    lease.check()
    engine = describe_engine(SAMPLE_ENGINE)
    system = house_system(
        slug=SAMPLE_SLUG,
        name=sample_checkpoint.NAME,
        architecture=Architecture.DENSE,
        description=_SAMPLE_DESCRIPTION,
        parameters={"engine": SAMPLE_ENGINE, "dimension": checkpoint.description.get("dimension")},
        adapted_to=[job.dataset.slug],
    )
    task = ModelTask(system, engine, engine.complete({}), checkpoint)
    provenance = describe_producer(SAMPLE_ENGINE, task.get_parameters(job.dataset), checkpoint)
    job.payload = {**job.payload, MADE_BY: provenance}
    run_model(job, lease, task)


def run_model(job: Job, lease: Lease, task: ModelTask) -> None:
    """Perform the task, then score and publish its result.

    Raises CheckpointRefused and the exceptions of `model_job`.
    """
    version = judged_version(job.dataset)
    begin(job, State.RETRIEVING, "loading")
    if task.checkpoint is not None and not task.engine.runs_image:
        check_with_library(job, lease, task.checkpoint)
    # Engines that encode no documents have no such parameters.
    setting, parameter_names = None, task.engine.encoding_parameters
    if parameter_names is not None and task.checkpoint is not None:
        device, threads = get_device(job), settings.MODEL_THREADS
        setting = encodings.EncodingSetting(
            checkpoint=task.checkpoint,
            version=version,
            engine=task.engine.name,
            parameters={name: task.parameters[name] for name in parameter_names},
            hardware=describe_hardware(threads, device).slug,
            device=device,
            threads=threads,
        )
    corpus = encodings.use_encoding(job, setting, lease.report_stage) if setting else None
    if setting and not corpus:
        encodings.require_disk_space(setting, task.parameters)
        if setting.shards > 1:
            raise encodings.WaitsForShards(setting)
    write_log(job.pk, f"{task.engine.label} over {version}")
    if task.get_parameters(job.dataset) != task.parameters:
        write_log(job.pk, "The dataset is hidden: only the main configuration is run and scored.")
    plan = _Plan(job, task, version, setting, corpus)
    with job_folder() as folder:
        retrieval = _retrieve(plan, lease, folder)
    remove(plan.rankings)
    handover.finish_retrieval(job, lease, retrieval)


def _retrieve(plan: _Plan, lease: Lease, folder: Path) -> handover.RetrievalResult:
    """Run the model, store its embeddings and runs, and measure BM25 for comparison."""
    work = use_cached_index(lease, _execution_job(plan, folder), plan.version)
    # Total and unit by stage, for notes such as "12,000 of 50,000 documents".
    totals = {
        "encoding": (plan.version.statistics.get("documents", 0), "documents"),
        "searching": (plan.version.statistics.get("queries", 0), "queries"),
    }
    try:
        if plan.task.engine.runs_image:
            result = run_image_job(work, lease, totals)
        else:
            result = run_child(work, lease, totals=totals, trusted=plan.task.is_ours)
    finally:
        if plan.corpus:
            remove_other_files(plan.corpus.key, plan.corpus.shards)
    retrieval = result["retrieval"]
    if work.engine != "container":  # one command indexes and searches
        write_log(
            plan.job.pk,
            f"{format_count(retrieval['documents'], 'document')} indexed in {retrieval['build_seconds']:.1f} s, "
            f"{format_count(retrieval['queries'], 'query', 'queries')} searched in {retrieval['search_seconds']:.1f} s "
            f"({retrieval['index_bytes'] / 2**20:.1f} MiB)",
        )
    if plan.setting is not None and not plan.corpus and work.shards is not None:
        # The child encoded the single shard of a small corpus during its search.
        remove_unexpected_files(work.shards)
        shard = work.shards / shard_name(0)
        if shard.is_dir():
            seconds = float(retrieval.get("encoding_seconds", 0.0))
            encoded_shard = encodings.EncodedShard(shard, retrieval["documents"], seconds, result["hardware"]["slug"])
            encodings.store_single_shard(plan.setting, encoded_shard, lease.report_stage)
    figures = _figures(plan, work, result)
    baseline = measure_configuration(lease, plan.version, folder) if figures else {}
    costs = {"figures": figures, "hardware": result["hardware"], "baseline": baseline}
    return _store_runs(plan, work.out, result, costs)


def _execution_job(plan: _Plan, folder: Path) -> ExecutionJob:
    """Return the work for the child after creating its folders."""
    dataset, task, version = plan.job.dataset, plan.task, plan.version
    shards = plan.corpus.folder if plan.corpus else folder / "shards" if plan.setting else None
    if shards and not plan.corpus:
        shards.mkdir()
    plan.rankings.mkdir(exist_ok=True, mode=0o700)
    return ExecutionJob(
        task="retrieve",
        engine=task.engine.name,
        out=folder / "out",
        corpus=local_path(Area.FILES, version.corpus_sha256),
        documents=version.statistics.get("documents"),
        queries=local_path(Area.FILES, version.topics_sha256),
        excluded=excluded_path(version),
        parameters=task.get_parameters(dataset),
        checkpoint=checkpoint_folder(task.checkpoint) if task.checkpoint else None,
        runs=_write_given_runs(task, version, folder),
        shards=shards,
        shard_size=plan.corpus.shard_size if plan.corpus else settings.SHARD_SIZE,
        rankings=plan.rankings,
        resumes=any(plan.rankings.iterdir()),
        depth=DEPTH,
        drop_self_matches=dataset.drop_self_matches,
        tag=task.system.slug,
        language=dataset.language,
        device=get_device(plan.job),
        threads=settings.MODEL_THREADS,
    )


def _write_given_runs(task: ModelTask, version: DatasetVersion, folder: Path) -> tuple[Path, ...]:
    """Write the task's runs, or else the candidates of a re-ranking dataset, for the child; return the files' paths.

    Engines that search the corpus get no candidates.
    """
    by_id, paths = Run.objects.in_bulk(list(task.run_ids)), []
    for number, run_id in enumerate(task.run_ids):
        paths.append(folder / f"given-{number}.txt")
        write_text(by_id[run_id].sha256, paths[-1])
    if task.engine.runs == (0, 1) and not paths and task.parameters.get("mode", "candidates") == "candidates":
        candidates_file = version.files.filter(kind=DatasetFile.Kind.CANDIDATES).first()
        if candidates_file is not None:
            paths.append(folder / "candidates.txt")
            paths[0].write_bytes(gzip.decompress(local_path(Area.FILES, candidates_file.sha256).read_bytes()))
    return tuple(paths)


def _figures(plan: _Plan, work: ExecutionJob, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measured figures by variant.

    An unmeasured encoding rate is that of the job that encoded the corpus. The size of the checkpoint is added. For
    given runs, their number is added, and figures of the build are None unless the engine reads the corpus.
    """
    figures = result["variants"] or ({"": result["figures"]} if result["figures"] else {})
    if corpus := plan.corpus:
        rate = corpus.documents / corpus.seconds if corpus.seconds > 0 else None
        figures = {
            label: {**values, "documents_per_second": values.get("documents_per_second") or rate}
            for label, values in figures.items()
        }
    if work.runs:
        # The figures do not include the search of the given runs. Engines without a corpus build no index.
        build_figures = (
            () if plan.task.engine.reads_corpus else ("documents_per_second", "build_seconds", "index_bytes")
        )
        overrides = {**dict.fromkeys(build_figures), "stored_runs": len(work.runs)}
        figures = {label: {**values, **overrides} for label, values in figures.items()}
    if checkpoint := plan.task.checkpoint:
        figures = {label: {**values, "model_bytes": checkpoint.size} for label, values in figures.items()}
    return figures


def _store_runs(
    plan: _Plan, folder: Path, result: Mapping[str, Any], costs: Mapping[str, Any]
) -> handover.RetrievalResult:
    """Check the run or the run of each variant like an upload and store it, the main one last.

    Return them with their facts and costs. Jobs that measure an earlier result store no runs. There are no costs if the
    corpus was encoded on different hardware classes.
    """
    retrieval = result["retrieval"]
    files = {} if handover.MEASURES in plan.job.payload else retrieval["variants"] or {"": RUN_NAME}
    task = plan.task
    extra_facts: dict[str, str] = {}
    if task.checkpoint is not None:
        # Record the prompts of queries and documents, unless the model determines them itself.
        prompts = task.checkpoint.description.get("prompts", {})
        for side in SIDES:
            prompt = task.parameters.get(f"{side}_prompt")
            is_recorded = prompt != AUTO or side in prompts or task.checkpoint.kind not in _OWN_MARKS
            if prompt is not None and is_recorded:
                extra_facts[f"{side}_prompt"] = select_prompt(prompts, side, prompt)
    classes = (plan.corpus.hardware if plan.corpus else frozenset()) | {result["hardware"]["slug"]}
    if len(classes) > 1:
        extra_facts["hardware_mixture"] = " + ".join(sorted(classes))
        write_log(plan.job.pk, "Encoded on different hardware classes, so no times are published.")
        costs = {}
    runs = []
    for label, name in files.items():
        facts = retrieval["variant_facts"].get(label, retrieval["facts"])
        runs.append(handover.store_checked_run(folder / name, plan.version, label, {**facts, **extra_facts}))
    return handover.RetrievalResult(plan.task.system.slug, plan.version.pk, plan.job.queue, runs, **costs)
