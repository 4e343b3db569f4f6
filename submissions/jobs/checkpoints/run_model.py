"""Run a model over a dataset: retrieve in the sandbox, look at what comes out as a stranger's, score, publish, measure.

A corpus of several shards is encoded by as many workers as there are; the job then waits, and goes on where all shards
are there. The one shard of a small corpus is encoded by the job itself, in the same process, and kept.
"""

from __future__ import annotations

import gzip
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.checkpoints import CheckpointKind
from evaluation.core.errors import InvalidContent, InvalidRun
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import EngineDescription, describe
from evaluation.engines import describe as describe_engine
from evaluation.engines.base import AUTO, shard_name
from evaluation.engines.prompts import SIDES, prompt_of
from evaluation.execution.job import RUN_NAME, ExecutionJob
from leaderboard.core.storage.runs import write_text
from leaderboard.core.storage.store import Area, local_path
from leaderboard.datasets.qrels import excluded_path
from leaderboard.models import Dataset, DatasetFile, DatasetVersion, Run, System, User
from leaderboard.systems.recipes import DEPTH
from submissions.checkpoints.hub import fetch
from submissions.checkpoints.service import describe as describe_checkpoint
from submissions.checkpoints.service import folder_of, store_checkpoint
from submissions.core.errors import Refused
from submissions.intake.checkpoints.intake import kinds_of
from submissions.jobs.checkpoints.baseline import measure_bm25
from submissions.jobs.checkpoints.checking import check_with_library
from submissions.jobs.checkpoints.embedding_files import remove_other_files
from submissions.jobs.checkpoints.encoding_settings import EncodingSetting, require_room
from submissions.jobs.checkpoints.encodings import (
    EncodedCorpus,
    WaitsForShards,
    store_single_shard,
    use_encoding,
)
from submissions.jobs.checkpoints.kept_indexes import with_kept_index
from submissions.jobs.checkpoints.running import device_of, job_folder, run_child
from submissions.jobs.kinds.handover import (
    MEASURES,
    RetrievalResult,
    finish_retrieval,
    score_handed_over,
    store_checked_run,
)
from submissions.jobs.kinds.score import begin, judged_version
from submissions.jobs.registry import register_kind
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.lease import Lease
from submissions.queue.lifecycle import write_log
from submissions.sandbox.processes import remove, remove_unexpected_files


@dataclass(frozen=True, slots=True)
class ModelTask:
    """What is run: an engine with all its parameters, what it is given, and the system that shows the result."""

    system: System
    engine: EngineDescription
    parameters: Mapping[str, Any]
    checkpoint: Checkpoint | None = None
    run_ids: Sequence[int] = field(default_factory=tuple)

    def parameters_on(self, dataset: Dataset) -> dict[str, Any]:
        """All parameters; where the judgements are hidden without variants, each of which would be one reading more."""
        return {**self.parameters, **(self.engine.main_alone if dataset.hidden else {})}

    @property
    def is_ours(self) -> bool:
        """Whether the model, if there is one, is the site's own."""
        return self.checkpoint is None or self.checkpoint.team_id is None


@dataclass(frozen=True, slots=True)
class _ModelRun:
    """A child's finished work: where its files are, what it says, and BM25's figures beside it."""

    out: Path
    retrieval: Mapping[str, Any]
    hardware: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, Any]]
    baseline: Mapping[str, Any] = field(default_factory=dict)


@register_kind(Job.Kind.MODEL)
def model_job(job: Job, lease: Lease) -> None:
    """Run a submission's model over one dataset and publish the result, or measure an earlier result again.

    Raises ModelFailure, ModelTimedOut, WaitsForShards, InvalidRun, LeaseLost or Cancelled.
    """
    if score_handed_over(job, lease):
        return
    run_model(job, lease, _task_measured_again(job) if MEASURES in job.payload else _submitted_task(job))


def _submitted_task(job: Job) -> ModelTask:
    """Return the task of the job's submission, with its checkpoint, which may be fetched from the hub."""
    submission = job.submission
    if submission is None:
        raise RuntimeError(f"job {job.pk} belongs to no submission")
    engine = describe_engine(submission.engine)
    return ModelTask(
        submission.system,
        engine,
        engine.complete(job.model_parameters),
        submission.checkpoint or fetched_checkpoint(job),
        job.payload.get("run_ids", ()),
    )


def _task_measured_again(job: Job) -> ModelTask:
    """Return the task of an earlier job, from the payload that `jobs.measuring.request_measurement` wrote."""
    payload = job.payload
    return ModelTask(
        System.objects.get(slug=payload["system"]),
        describe_engine(payload["engine"]),
        payload["parameters"],
        None if payload["checkpoint"] is None else Checkpoint.objects.get(pk=payload["checkpoint"]),
        payload["run_ids"],
    )


def run_model(job: Job, lease: Lease, task: ModelTask) -> None:
    """Do a task and have what it finds scored and published. Raises as `model_job`, and CheckpointRefused."""
    version = judged_version(job.dataset)
    begin(job, State.RETRIEVING, "loading")
    if task.checkpoint is not None:
        check_with_library(job, lease, task.checkpoint)
    setting = _setting(job, task, version)
    encoded = use_encoding(job, setting, lease.report_stage) if setting else None
    if setting and not encoded:
        require_room(setting, task.parameters)
        if setting.shards > 1:
            raise WaitsForShards(setting)
    write_log(job.pk, f"{task.engine.label} over {version}")
    if task.parameters_on(job.dataset) != task.parameters:
        write_log(job.pk, "Its judgements are hidden: the main result alone is made and scored.")
    with job_folder() as folder:
        done = _retrieve(job, lease, task, version, folder, setting, encoded)
        found = _store_runs(job, task, version, done, encoded)
    remove(_rankings_folder(job))
    finish_retrieval(job, lease, found)


def _rankings_folder(job: Job) -> Path:
    """Where this host keeps what the job has found, for its next attempt. What nobody comes back for is swept."""
    return Path(settings.VAR) / "work" / f"rankings-{job.pk}"


def _setting(job: Job, task: ModelTask, version: DatasetVersion) -> EncodingSetting | None:
    """What the encoded corpus is named by; None for an engine that encodes no documents."""
    names = task.engine.encoding_parameters
    if names is None or task.checkpoint is None:
        return None
    device, threads = device_of(job), settings.MODEL_THREADS
    return EncodingSetting(
        checkpoint=task.checkpoint,
        version=version,
        engine=task.engine.name,
        parameters={name: task.parameters[name] for name in names},
        hardware=describe_hardware(threads, device).slug,
        device=device,
        threads=threads,
    )


def _retrieve(
    job: Job,
    lease: Lease,
    task: ModelTask,
    version: DatasetVersion,
    folder: Path,
    setting: EncodingSetting | None,
    encoded: EncodedCorpus | None,
) -> _ModelRun:
    """Run the model, keep what it encoded, and measure BM25 beside it."""
    shards = encoded.folder if encoded else folder / "shards" if setting else None
    if shards and not encoded:
        shards.mkdir()
    rankings = _rankings_folder(job)
    rankings.mkdir(exist_ok=True, mode=0o700)
    work = ExecutionJob(
        task="retrieve",
        engine=task.engine.name,
        out=folder / "out",
        corpus=local_path(Area.FILES, version.corpus_sha256),
        documents=version.statistics.get("documents"),
        queries=local_path(Area.FILES, version.topics_sha256),
        excluded=excluded_path(version),
        parameters=task.parameters_on(job.dataset),
        checkpoint=folder_of(task.checkpoint) if task.checkpoint else None,
        runs=_write_runs(task.run_ids, folder) or _write_candidates(version, task, folder),
        shards=shards,
        shard_size=encoded.shard_size if encoded else settings.SHARD_SIZE,
        rankings=rankings,
        resumes=any(rankings.iterdir()),
        depth=DEPTH,
        drop_self_matches=job.dataset.drop_self_matches,
        tag=task.system.slug,
        language=job.dataset.language,
        device=device_of(job),
        threads=settings.MODEL_THREADS,
    )
    work = with_kept_index(lease, work, version)
    try:
        result = run_child(work, lease, counted=_progress_totals(version), trusted=task.is_ours)
    finally:
        if encoded:
            remove_other_files(encoded.key, encoded.shards)
    if shards and not encoded:
        remove_unexpected_files(shards)
    retrieval, hardware = result["retrieval"], result["hardware"]
    _log(job, retrieval)
    if setting and shards and not encoded and (shards / shard_name(0)).is_dir():
        store_single_shard(
            setting,
            shards / shard_name(0),
            documents=retrieval["documents"],
            seconds=float(retrieval.get("encoding_seconds", 0.0)),
            hardware=hardware["slug"],
            report=lease.report_stage,
        )
    figures = _figures(result, work, task, encoded)
    baseline = measure_bm25(lease, work, version, folder) if figures else {}
    return _ModelRun(work.out, retrieval, hardware, figures, baseline)


def _figures(
    result: Mapping[str, Any], work: ExecutionJob, task: ModelTask, encoded: EncodedCorpus | None
) -> dict[str, Any]:
    """What was measured, by variant, with what was encoded before and without what was retrieved before."""
    figures = result["variants"] or ({"": result["figures"]} if result["figures"] else {})
    if encoded:
        figures = {label: _with_encoding(values, encoded) for label, values in figures.items()}
    if work.runs:
        figures = {label: _over_stored_runs(values, work, task.engine) for label, values in figures.items()}
    return figures


def _progress_totals(version: DatasetVersion) -> dict[str, tuple[int, str]]:
    """What is counted in each stage, and of what."""
    return {
        "encoding": (version.statistics.get("documents", 0), "documents"),
        "searching": (version.statistics.get("queries", 0), "queries"),
    }


def _write_runs(run_ids: Sequence[int], folder: Path) -> tuple[Path, ...]:
    """The texts of stored runs as files for the child, in the given order."""
    by_id = Run.objects.in_bulk(list(run_ids))
    paths = []
    for number, run_id in enumerate(run_ids):
        path = folder / f"given-{number}.txt"
        write_text(by_id[run_id].sha256, path)
        paths.append(path)
    return tuple(paths)


def _write_candidates(version: DatasetVersion, task: ModelTask, folder: Path) -> tuple[Path, ...]:
    """The candidates of a re-ranking dataset, where the engine re-ranks a run; none where it searches the corpus."""
    offered = version.files.filter(kind=DatasetFile.Kind.CANDIDATES).first()
    if (
        offered is None
        or task.engine.runs != (0, 1)
        or task.parameters.get("mode", "candidates") != "candidates"
    ):
        return ()
    path = folder / "candidates.txt"
    path.write_bytes(gzip.decompress(local_path(Area.FILES, offered.sha256).read_bytes()))
    return (path,)


def _log(job: Job, retrieval: Mapping[str, Any]) -> None:
    write_log(
        job.pk,
        f"{retrieval['documents']:,} documents indexed in {retrieval['build_seconds']:.1f} s, "
        f"{retrieval['queries']:,} queries searched in {retrieval['search_seconds']:.1f} s "
        f"({retrieval['index_bytes'] / 2**20:.1f} MiB)",
    )


def _with_encoding(figures: Mapping[str, Any], encoded: EncodedCorpus) -> dict[str, Any]:
    """The figures with what the embeddings took, where they were made before this process began."""
    rate = encoded.documents / encoded.seconds if encoded.seconds > 0 else None
    return {**figures, "documents_per_second": figures.get("documents_per_second") or rate}


def _over_stored_runs(
    figures: Mapping[str, Any], work: ExecutionJob, engine: EngineDescription
) -> dict[str, Any]:
    """The figures, which say that the runs' own search is not in them; without a corpus nothing was built either."""
    built = () if engine.reads_corpus else ("documents_per_second", "build_seconds", "index_bytes")
    return {**figures, **dict.fromkeys(built), "stored_runs": len(work.runs)}


def _store_runs(
    job: Job, task: ModelTask, version: DatasetVersion, done: _ModelRun, encoded: EncodedCorpus | None
) -> RetrievalResult:
    """Check like an upload, and store, the run, or one run for each variant with the main one last.

    A job that measures an earlier result stores none.
    """
    files = {} if MEASURES in job.payload else done.retrieval["variants"] or {"": RUN_NAME}
    known = _prompts_used(task)
    if mixture := _mixed_hardware(done, encoded):
        known["hardware_mixture"] = " + ".join(sorted(mixture))
        write_log(job.pk, "Encoded on different hardware classes: no times are published.")
    runs = []
    for label, name in files.items():
        facts = done.retrieval["variant_facts"].get(label, done.retrieval["facts"])
        runs.append(store_checked_run(done.out / name, version, label, {**facts, **known}))
    timed = {} if mixture else {"figures": done.figures, "hardware": done.hardware, "baseline": done.baseline}
    return RetrievalResult(task.system.slug, version.pk, job.queue, runs, **timed)


#: Kinds that put marks or instructions before texts where nobody says any.
_OWN_MARKS = (CheckpointKind.MULTI_VECTOR, CheckpointKind.CROSS_ENCODER)


def _prompts_used(task: ModelTask) -> dict[str, str]:
    """What was put before texts, as facts, as far as it is not the model's own affair."""
    if task.checkpoint is None:
        return {}
    prompts, used = task.checkpoint.description.get("prompts", {}), {}
    for side in SIDES:
        asked = task.parameters.get(f"{side}_prompt")
        told = asked != AUTO or side in prompts or task.checkpoint.kind not in _OWN_MARKS
        if asked is not None and told:
            used[f"{side}_prompt"] = prompt_of(prompts, side, asked)
    return used


def _mixed_hardware(done: _ModelRun, encoded: EncodedCorpus | None) -> frozenset[str]:
    """The hardware classes that had a part in it, where these are several; else none."""
    classes = (encoded.hardware if encoded else frozenset()) | {done.hardware["slug"]}
    return classes if len(classes) > 1 else frozenset()


def fetched_checkpoint(job: Job) -> Checkpoint | None:
    """The checkpoint of a job whose submission named one on the hub; None for any other.

    Fetched once for a team. Raises InvalidRun where the hub has no such model, or it is not one that can be run, and
    LeaseLost.
    """
    submission, name = job.submission, job.payload.get("hub_name", "")
    if submission is None or not name:
        return None
    commit, kinds = job.payload["hub_commit"], kinds_of(describe(submission.engine))
    known = Checkpoint.objects.filter(team=submission.team, hub_name=name, hub_commit=commit)
    found = next((row for row in known if describe_checkpoint(row).kinds.intersection(kinds)), None)
    if found is None:
        begin(job, State.RETRIEVING, "fetching")
        write_log(job.pk, f"Fetching {name} at {commit[:12]} from the hub.")
        found = _fetch_and_store(job, submission, name, commit, kinds)
    Submission.objects.filter(pk=submission.pk).update(checkpoint=found)
    return found


def _fetch_and_store(
    job: Job, submission: Submission, name: str, commit: str, kinds: tuple[CheckpointKind, ...]
) -> Checkpoint:
    """Raises InvalidRun for what the hub does not have, or what cannot be run."""
    with job_folder() as folder:
        files = folder / "files"
        files.mkdir()
        try:
            _, heads = fetch(name, commit, files)
            if heads:
                write_log(
                    job.pk,
                    f"Heads in {' and '.join(heads)} are pickles, and were not fetched: this is the dense model alone. "
                    "`pack` converts them, and makes an archive of all that the model is.",
                )
            return store_checkpoint(
                team=submission.team,
                archive=_packed(files, folder / "fetched.zip"),
                file_name=f"{name.replace('/', '_')}@{commit[:12]}.zip",
                person=User.objects.only("pk").get(pk=submission.submitter_id),
                wanted=kinds,
                hub_name=name,
                hub_commit=commit,
            )
        except InvalidContent as error:
            raise InvalidRun.of(*error.report.problems) from error
        except Refused as refusal:
            problems = [problem for file in refusal.files for problem in file.report.problems]
            raise InvalidRun.of(*(problems or refusal.problems)) from refusal


def _packed(files: Path, archive: Path) -> Path:
    """The files as one archive; the same files give the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(path for path in files.rglob("*") if path.is_file()):
            name = path.relative_to(files).as_posix()
            with (
                path.open("rb") as source,
                packed.open(zipfile.ZipInfo(name), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
    return archive
