"""Run a model over a dataset: retrieve in the sandbox, check the output like a stranger's, score, publish, measure.

A corpus of several shards is encoded by as many workers as there are; the job then waits, and continues when all shards
exist. The one shard of a small corpus is encoded by the job itself, in the same process, and kept.
"""

import gzip
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import InvalidContent, InvalidRun
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import EngineDescription
from evaluation.engines import describe as describe_engine
from evaluation.engines.base import AUTO, shard_name
from evaluation.engines.prompts import SIDES, prompt_of
from evaluation.execution.job import RUN_NAME, ExecutionJob
from leaderboard.core.storage.runs import write_text
from leaderboard.core.storage.store import Area, local_path
from leaderboard.datasets.qrels import excluded_path
from leaderboard.importing.demo import sample_checkpoint
from leaderboard.importing.examples import offer_example_runs, store_example_models
from leaderboard.models import Architecture, Dataset, DatasetFile, DatasetVersion, Run, System, User
from leaderboard.systems.provenance import DEPTH
from leaderboard.systems.records import house_system
from submissions.checkpoints.hub import HubModel, fetch
from submissions.checkpoints.service import CheckpointArchive, folder_of, store_checkpoint
from submissions.checkpoints.service import describe as describe_checkpoint
from submissions.core.errors import Refused
from submissions.intake.checkpoints.intake import kinds_of
from submissions.intake.run_records import MADE_BY, made_by
from submissions.jobs.checkpoints import encodings
from submissions.jobs.checkpoints.embeddings import remove_other_files
from submissions.jobs.checkpoints.own_engines import measure_bm25, with_kept_index
from submissions.jobs.checkpoints.running import check_with_library, device_of, job_folder, run_child
from submissions.jobs.kinds import handover
from submissions.jobs.kinds.score import begin, judged_version
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.lease import Lease
from submissions.queue.queue import write_log
from submissions.sandbox.processes import remove, remove_unexpected_files

#: Kinds that put marks or instructions before texts by default.
_OWN_MARKS = (CheckpointKind.MULTI_VECTOR, CheckpointKind.CROSS_ENCODER)
SAMPLE_ENGINE = "dense"
SAMPLE_SLUG = "static-embeddings-svd"
_SAMPLE_DESCRIPTION = (
    "One vector a word, by a singular value decomposition of the collection's own TF-IDF weights (latent semantic "
    "analysis), made on this machine at the first start. It shows what a measured dense system looks like, not what "
    "one can do; its checkpoint is on the submit page."
)


@dataclass(frozen=True, slots=True)
class ModelTask:
    """A task to run: an engine with all its parameters, its inputs, and the system that shows the result."""

    system: System
    engine: EngineDescription
    parameters: Mapping[str, Any]
    checkpoint: Checkpoint | None = None
    run_ids: Sequence[int] = field(default_factory=tuple)

    def parameters_on(self, dataset: Dataset) -> dict[str, Any]:
        """Return all parameters, on hidden judgments without variants, each of which would be one reading more."""
        return {**self.parameters, **(self.engine.main_alone if dataset.hidden else {})}

    @property
    def is_ours(self) -> bool:
        """Whether the model, if there is one, is the site's own."""
        return self.checkpoint is None or self.checkpoint.team_id is None


@dataclass(frozen=True, slots=True)
class _Plan:
    """A job's task on one version of its dataset, with its embeddings: how they are named, and those that exist."""

    job: Job
    task: ModelTask
    version: DatasetVersion
    setting: encodings.EncodingSetting | None
    encoded: encodings.EncodedCorpus | None

    @property
    def rankings(self) -> Path:
        """Folder in which this host keeps the job's rankings for its next attempt. Abandoned ones are swept."""
        return Path(settings.VAR) / "work" / f"rankings-{self.job.pk}"


def model_job(job: Job, lease: Lease) -> None:
    """Run a submission's model over one dataset and publish the result, or measure an earlier result again.

    Raises ModelFailure, ModelTimedOut, WaitsForShards, InvalidRun, LeaseLost or Cancelled.
    """
    if handover.score_handed_over(job, lease):
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
        raise RuntimeError(f"job {job.pk} belongs to no submission")
    else:
        engine = describe_engine(submission.engine)
        task = ModelTask(
            submission.system,
            engine,
            engine.complete(job.model_parameters),
            submission.checkpoint or fetched_checkpoint(job),
            payload.get("run_ids", ()),
        )
    run_model(job, lease, task)


def sample_model_job(job: Job, lease: Lease) -> None:
    """Make the sample checkpoint from the dataset's documents, offer it for download, and publish its result.

    Raises as `run_model`.
    """
    if handover.score_handed_over(job, lease):
        return
    begin(job, State.RETRIEVING, "loading")
    write_log(job.pk, "Making the sample checkpoint.")
    version = judged_version(job.dataset)
    with job_folder() as folder:
        model = folder / "sample"
        model.mkdir()
        sample_checkpoint.make_sample_checkpoint(model, local_path(Area.FILES, version.corpus_sha256))
        archive = sample_checkpoint.archive_checkpoint(model, folder / "kept.zip")
        source = CheckpointArchive(sample_checkpoint.ARCHIVE_NAME, archive)
        checkpoint = store_checkpoint(None, source, None)
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
    made = made_by(SAMPLE_ENGINE, task.parameters_on(job.dataset), checkpoint)
    job.payload = {**job.payload, MADE_BY: made}
    run_model(job, lease, task)


def run_model(job: Job, lease: Lease, task: ModelTask) -> None:
    """Do a task and have its result scored and published. Raises as `model_job`, and CheckpointRefused."""
    version = judged_version(job.dataset)
    begin(job, State.RETRIEVING, "loading")
    if task.checkpoint is not None:
        check_with_library(job, lease, task.checkpoint)
    # Engines that encode no documents have no names.
    setting, names = None, task.engine.encoding_parameters
    if names is not None and task.checkpoint is not None:
        device, threads = device_of(job), settings.MODEL_THREADS
        setting = encodings.EncodingSetting(
            checkpoint=task.checkpoint,
            version=version,
            engine=task.engine.name,
            parameters={name: task.parameters[name] for name in names},
            hardware=describe_hardware(threads, device).slug,
            device=device,
            threads=threads,
        )
    encoded = encodings.use_encoding(job, setting, lease.report_stage) if setting else None
    if setting and not encoded:
        encodings.require_room(setting, task.parameters)
        if setting.shards > 1:
            raise encodings.WaitsForShards(setting)
    write_log(job.pk, f"{task.engine.label} over {version}")
    if task.parameters_on(job.dataset) != task.parameters:
        write_log(job.pk, "Its judgements are hidden: the main result alone is made and scored.")
    plan = _Plan(job, task, version, setting, encoded)
    with job_folder() as folder:
        found = _retrieve(plan, lease, folder)
    remove(plan.rankings)
    handover.finish_retrieval(job, lease, found)


def _retrieve(plan: _Plan, lease: Lease, folder: Path) -> handover.RetrievalResult:
    """Run the model, keep what it encoded, measure BM25 beside it, and store its runs."""
    work = with_kept_index(lease, _execution_job(plan, folder), plan.version)
    # For notes such as "12,000 of 50,000 documents": the number and the unit by stage.
    counted = {
        "encoding": (plan.version.statistics.get("documents", 0), "documents"),
        "searching": (plan.version.statistics.get("queries", 0), "queries"),
    }
    try:
        result = run_child(work, lease, counted=counted, trusted=plan.task.is_ours)
    finally:
        if plan.encoded:
            remove_other_files(plan.encoded.key, plan.encoded.shards)
    retrieval = result["retrieval"]
    write_log(
        plan.job.pk,
        f"{retrieval['documents']:,} documents indexed in {retrieval['build_seconds']:.1f} s, "
        f"{retrieval['queries']:,} queries searched in {retrieval['search_seconds']:.1f} s "
        f"({retrieval['index_bytes'] / 2**20:.1f} MiB)",
    )
    if plan.setting is not None and not plan.encoded and work.shards is not None:
        # The child encoded the one shard of a small corpus beside its search.
        remove_unexpected_files(work.shards)
        shard = work.shards / shard_name(0)
        if shard.is_dir():
            seconds = float(retrieval.get("encoding_seconds", 0.0))
            encoded = encodings.EncodedShard(
                shard, retrieval["documents"], seconds, result["hardware"]["slug"]
            )
            encodings.store_single_shard(plan.setting, encoded, lease.report_stage)
    figures = _figures(plan, work, result)
    baseline = measure_bm25(lease, work, plan.version, folder) if figures else {}
    costs = {"figures": figures, "hardware": result["hardware"], "baseline": baseline}
    return _store_runs(plan, work.out, result, costs)


def _execution_job(plan: _Plan, folder: Path) -> ExecutionJob:
    """Return the work for the child, with its folders made."""
    dataset, task, version = plan.job.dataset, plan.task, plan.version
    shards = plan.encoded.folder if plan.encoded else folder / "shards" if plan.setting else None
    if shards and not plan.encoded:
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
        parameters=task.parameters_on(dataset),
        checkpoint=folder_of(task.checkpoint) if task.checkpoint else None,
        runs=_given_runs(task, version, folder),
        shards=shards,
        shard_size=plan.encoded.shard_size if plan.encoded else settings.SHARD_SIZE,
        rankings=plan.rankings,
        resumes=any(plan.rankings.iterdir()),
        depth=DEPTH,
        drop_self_matches=dataset.drop_self_matches,
        tag=task.system.slug,
        language=dataset.language,
        device=device_of(plan.job),
        threads=settings.MODEL_THREADS,
    )


def _given_runs(task: ModelTask, version: DatasetVersion, folder: Path) -> tuple[Path, ...]:
    """Write the runs to build on as files for the child: those of the task, else a re-ranking dataset's candidates.

    An engine that searches the corpus gets none.
    """
    by_id, paths = Run.objects.in_bulk(list(task.run_ids)), []
    for number, run_id in enumerate(task.run_ids):
        paths.append(folder / f"given-{number}.txt")
        write_text(by_id[run_id].sha256, paths[-1])
    if task.engine.runs == (0, 1) and not paths and task.parameters.get("mode", "candidates") == "candidates":
        offered = version.files.filter(kind=DatasetFile.Kind.CANDIDATES).first()
        if offered is not None:
            paths.append(folder / "candidates.txt")
            paths[0].write_bytes(gzip.decompress(local_path(Area.FILES, offered.sha256).read_bytes()))
    return tuple(paths)


def _figures(plan: _Plan, work: ExecutionJob, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measured figures by variant, including earlier encoding, and excluding earlier retrieval."""
    figures = result["variants"] or ({"": result["figures"]} if result["figures"] else {})
    if encoded := plan.encoded:
        rate = encoded.documents / encoded.seconds if encoded.seconds > 0 else None
        figures = {
            label: {**values, "documents_per_second": values.get("documents_per_second") or rate}
            for label, values in figures.items()
        }
    if work.runs:
        # The search of the given runs is not in the figures, and without a corpus nothing was built either.
        built = (
            () if plan.task.engine.reads_corpus else ("documents_per_second", "build_seconds", "index_bytes")
        )
        reused = {**dict.fromkeys(built), "stored_runs": len(work.runs)}
        figures = {label: {**values, **reused} for label, values in figures.items()}
    return figures


def _store_runs(
    plan: _Plan, out: Path, result: Mapping[str, Any], costs: Mapping[str, Any]
) -> handover.RetrievalResult:
    """Check like an upload, and store, the run, or one run for each variant with the main one last.

    A job that measures an earlier result stores none.
    """
    retrieval = result["retrieval"]
    files = {} if handover.MEASURES in plan.job.payload else retrieval["variants"] or {"": RUN_NAME}
    task = plan.task
    known: dict[str, str] = {}
    if task.checkpoint is not None:
        # The texts that were put before queries and documents, unless the model decides them itself.
        prompts = task.checkpoint.description.get("prompts", {})
        for side in SIDES:
            asked = task.parameters.get(f"{side}_prompt")
            shown = asked != AUTO or side in prompts or task.checkpoint.kind not in _OWN_MARKS
            if asked is not None and shown:
                known[f"{side}_prompt"] = prompt_of(prompts, side, asked)
    classes = (plan.encoded.hardware if plan.encoded else frozenset()) | {result["hardware"]["slug"]}
    if len(classes) > 1:
        known["hardware_mixture"] = " + ".join(sorted(classes))
        write_log(plan.job.pk, "Encoded on different hardware classes: no times are published.")
        costs = {}
    runs = []
    for label, name in files.items():
        facts = retrieval["variant_facts"].get(label, retrieval["facts"])
        runs.append(handover.store_checked_run(out / name, plan.version, label, {**facts, **known}))
    return handover.RetrievalResult(plan.task.system.slug, plan.version.pk, plan.job.queue, runs, **costs)


def fetched_checkpoint(job: Job) -> Checkpoint | None:
    """Return the checkpoint of a job whose submission named one on the hub; None for any other.

    It is fetched once for a team. Raises InvalidRun if the hub has no such model, or it cannot be run, and LeaseLost.
    """
    submission, name = job.submission, job.payload.get("hub_name", "")
    if submission is None or not name:
        return None
    hub, kinds = HubModel(name, job.payload["hub_commit"]), kinds_of(describe_engine(submission.engine))
    rows = Checkpoint.objects.filter(team=submission.team, hub_name=hub.name, hub_commit=hub.commit)
    checkpoint = next((row for row in rows if describe_checkpoint(row).kinds.intersection(kinds)), None)
    if checkpoint is None:
        begin(job, State.RETRIEVING, "fetching")
        write_log(job.pk, f"Fetching {hub.name} at {hub.commit[:12]} from the hub.")
        with job_folder() as folder:
            files = folder / "files"
            files.mkdir()
            try:
                if heads := fetch(hub, files):
                    write_log(
                        job.pk,
                        f"Heads in {' and '.join(heads)} are pickles, and were not fetched: this is the dense model "
                        "alone. `pack` converts them, and makes an archive of all that the model is.",
                    )
                file_name = f"{hub.name.replace('/', '_')}@{hub.commit[:12]}.zip"
                source = CheckpointArchive(file_name, _pack(files, folder / "fetched.zip"))
                person = User.objects.only("pk").get(pk=submission.submitter_id)
                checkpoint = store_checkpoint(submission.team, source, person, kinds, hub)
            except InvalidContent as error:
                raise InvalidRun.of(*error.report.problems) from error
            except Refused as refusal:
                problems = [problem for file in refusal.files for problem in file.report.problems]
                raise InvalidRun.of(*(problems or refusal.problems)) from refusal
    Submission.objects.filter(pk=submission.pk).update(checkpoint=checkpoint)
    return checkpoint


def _pack(files: Path, archive: Path) -> Path:
    """Pack the files as one archive; the same files give the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(path for path in files.rglob("*") if path.is_file()):
            name = path.relative_to(files).as_posix()
            with (
                path.open("rb") as source,
                packed.open(zipfile.ZipInfo(name), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
    return archive
