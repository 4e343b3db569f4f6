"""Retrieval with Runboard's own engines: baselines, demo systems, the BM25 reference, and cached BM25 indexes.

An index is built once per corpus by a trusted child and opened by all jobs that need it. `<key>/index` is read-only for
engines. `<key>/<hardware class>.json` has the published costs of building it on machines of that class; a machine of
another class measures them once. Folders are renamed atomically: if two workers build the same index, one of the two
remains. A missing index is built again.

The baseline of a dataset that collects runs is retrieved immediately, so that pools can include it, and scored with
all others when the first judgments arrive.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from evaluation.core.problems import ModelFailure, RunStatistics, format_count
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import Resources, RetrievalTask, describe, retrieve
from evaluation.engines.base import total_size
from evaluation.engines.index.inverted_index import FORMAT, InvertedIndex
from evaluation.engines.index.term_search import resolve_language
from evaluation.execution.job import INDEX_FOLDER, ExecutionJob
from evaluation.runs.score import check_run
from evaluation.text import analyser_for
from leaderboard.core.storage.runs import run_path, store_run, write_text
from leaderboard.core.storage.store import Area, atomic_write, local_path, path_of
from leaderboard.datasets.qrels import excluded_path, scoring_target, topic_ids
from leaderboard.models import Dataset, DatasetVersion, Run
from leaderboard.systems.baselines import BM25, CONFIGURATIONS, EngineConfiguration, configuration_system
from submissions.intake.run_records import record_job_run
from submissions.jobs.checkpoints.embeddings import checked_size, move_into_place, remove_least_used
from submissions.jobs.checkpoints.running import DamagedInput, ModelTimedOut, job_folder, run_child
from submissions.jobs.kinds import handover
from submissions.jobs.kinds.score import begin, judged_version
from submissions.models import Job, State
from submissions.queue.lease import Lease, advance_claimed, finish
from submissions.queue.queue import write_log
from submissions.sandbox.processes import remove_old

logger = logging.getLogger(__name__)

#: Minimum number of documents for cached indexes. Indexing fewer is faster than starting a child.
MIN_DOCUMENTS = 2_000
#: Seconds for which an unused index remains, since a child may be about to open it.
GRACE = 24 * 3600
_ENGINE = "bm25"
_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError)


@dataclass(frozen=True, slots=True)
class _BuildCosts:
    """Costs of building an index: wall-clock seconds, peak memory, size in bytes, and the corpus."""

    seconds: float
    memory: int
    size: int
    corpus: str


def use_cached_index(lease: Lease, work: ExecutionJob, version: DatasetVersion) -> ExecutionJob:
    """Return the work with the cached word index for its engine, built if it is missing or damaged.

    The work is returned unchanged if its engine searches runs or no word index, or if the index cannot be cached; the
    engine then builds its own. `work.parameters` must be complete. Raises LeaseLost or Cancelled.
    """
    parameters = None if work.runs else describe(work.engine).word_index(work.parameters)
    if parameters is None or version.statistics.get("documents", 0) < MIN_DOCUMENTS:
        return work
    parameters = resolve_language(describe(_ENGINE).complete(parameters), Resources(language=work.language))
    analyser = analyser_for(parameters["language"], parameters["stemming"]).description
    packages = [version_of(name) for name in ("PyStemmer", "icu4py", "whoosh-reloaded")]
    inputs = [version.corpus_sha256, _ENGINE, parameters, FORMAT, analyser, packages]
    folder = path_of(Area.WORD_INDEXES, hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest())
    costs_path = folder / f"{describe_hardware(settings.MODEL_THREADS, 'cpu').slug}.json"
    costs = _read_build_costs(costs_path)
    if costs is None or not _is_whole(folder, costs.size, version):
        try:
            costs = _build_index(lease, version, parameters, costs_path)
        except (ModelFailure, ModelTimedOut, RuntimeError, OSError) as error:
            logger.warning("Could not cache an index: %s: %s", type(error).__name__, error)
            write_log(lease.job.pk, f"BM25's index could not be cached ({type(error).__name__}).")
            return work
    os.utime(folder)
    return replace(work, index=folder / INDEX_FOLDER, index_seconds=costs.seconds, index_memory=costs.memory)


def _read_build_costs(costs_path: Path) -> _BuildCosts | None:
    try:
        return _BuildCosts(**json.loads(costs_path.read_text("utf-8")))
    except _DAMAGED:
        return None


def _is_whole(folder: Path, size: int, version: DatasetVersion) -> bool:
    """Return whether the index can be opened and is complete."""
    try:
        index = InvertedIndex(folder / INDEX_FOLDER)
        return (total_size(index.folder), index.document_count) == (size, version.statistics["documents"])
    except _DAMAGED:
        return False


def _build_index(lease: Lease, version: DatasetVersion, parameters: Mapping[str, Any], costs_path: Path) -> _BuildCosts:
    """Build an index and store it with its costs, unless a complete one exists by now; return the costs.

    Raises DamagedInput if it is incomplete, OSError, and the exceptions of `run_child`.
    """
    index_folder = costs_path.parent
    with job_folder() as folder:
        work = ExecutionJob(
            task="index",
            engine=_ENGINE,
            out=folder / "out",
            corpus=local_path(Area.FILES, version.corpus_sha256),
            parameters=parameters,
            threads=settings.MODEL_THREADS,
        )
        costs = run_child(work, lease, trusted=True)["index"]
        size = checked_size(work.out / INDEX_FOLDER)
        build_costs = _BuildCosts(float(costs["seconds"]), int(costs["memory"]), size, version.corpus_sha256)
        if not _is_whole(work.out, size, version):
            raise DamagedInput(f"The index of {work.corpus} is incomplete.")
        if not _is_whole(index_folder, size, version):
            arriving_folder = folder / "kept"
            arriving_folder.mkdir()
            (work.out / INDEX_FOLDER).rename(arriving_folder / INDEX_FOLDER)
            move_into_place(arriving_folder, index_folder)
        with atomic_write(costs_path) as file:
            file.write_text(json.dumps(asdict(build_costs)), "utf-8")
    write_log(lease.job.pk, f"BM25's index was cached: {size / 2**20:.1f} MiB.")
    return build_costs


def sweep_indexes() -> int:
    """Remove indexes of outdated versions, and those beyond `EMBEDDINGS_CACHE_BYTES`; return their number.

    The least recently used indexes are removed first. Indexes that were used within `GRACE` remain.
    """
    root = Path(settings.VAR) / Area.WORD_INDEXES.value
    last_used, sizes = {}, {}
    for folder in (*root.glob("??/*"), *root.glob(".arriving-*")):  # including folders of killed processes
        with suppress(FileNotFoundError):  # another worker of this host removed it, here as below
            last_used[folder], sizes[folder] = folder.stat().st_mtime, checked_size(folder)
    versions = Dataset.objects.exclude(current_version=None)
    corpora = set(versions.values_list("current_version__corpus_sha256", flat=True))

    def delete_if_old(folder: Path) -> bool:
        return bool(remove_old([folder], GRACE))

    def is_current(folder: Path) -> bool:
        return any(costs.corpus in corpora for path in folder.glob("*.json") if (costs := _read_build_costs(path)))

    outdated_folders = [folder for folder in sizes if not is_current(folder)]
    removed_folders = {folder for folder in outdated_folders if delete_if_old(folder)}
    remaining_sizes = {folder: size for folder, size in sizes.items() if folder not in removed_folders}
    least_used_first = sorted(remaining_sizes.keys() - set(outdated_folders), key=last_used.__getitem__)
    return len(removed_folders) + remove_least_used(
        remaining_sizes, least_used_first, settings.EMBEDDINGS_CACHE_BYTES, delete_if_old
    )


# --- retrieval


#: Key in a run's metadata for the checksum of the queries that it was retrieved for.
TOPICS = "topics_sha256"


def retrieve_job(job: Job, lease: Lease) -> None:
    """Run the job's configuration on its dataset and publish the result. Raises LeaseLost or Cancelled.

    If there are no judgments yet, the run is stored and the job is done.
    """
    if handover.score_retrieval(job, lease):
        return
    configuration = CONFIGURATIONS[job.payload.get("configuration", BM25.slug)]
    begin(job, State.RETRIEVING, "loading")
    is_collecting, version = job.dataset.awaits_judgements, job.dataset.current_version
    if not is_collecting:
        version = judged_version(job.dataset)
    if version is None:
        raise RuntimeError(f"{job.dataset.name} collects runs but has no version.")
    waiting_run = _find_waiting_run(configuration, version)
    if is_collecting and waiting_run is not None:
        advance_claimed(job, State.DONE, progress=1.0)
        return
    system = configuration_system(configuration)
    with job_folder() as folder:
        path = folder / "run.txt"
        if waiting_run is not None:
            write_log(job.pk, f"{configuration.name} over {version}, retrieved before the first judgments")
            write_text(waiting_run.sha256, path)
        else:
            _retrieve(job, lease, configuration, version, path)
        if not is_collecting:
            run = handover.store_checked_run(path, version, may_be_empty=True)
            costs = _measure(lease, configuration, version, folder) if job.kind == Job.Kind.RETRIEVE else {}
            result = handover.RetrievalResult(system.slug, version.pk, job.queue, [run], **costs)
            handover.finish_retrieval(job, lease, result)
            return
        facts = check_run(path, scoring_target(version)).statistics
        stored_run = store_run(path)
    statistics = RunStatistics(lines=facts.lines, tags=facts.tags, metadata={TOPICS: version.topics_sha256})
    with transaction.atomic():
        finish(job, "The run was stored. It will be scored when the first judgments arrive.")
        record_job_run(job, system, stored_run, statistics, version)


def _retrieve(job: Job, lease: Lease, configuration: EngineConfiguration, version: DatasetVersion, path: Path) -> None:
    """Retrieve the configuration's run to `path`, with the cached index if possible, and log the times.

    Raises DamagedInput if the number of documents that the engine read differs from the version's.
    """
    write_log(job.pk, f"{configuration.name} over {version}")
    corpus = local_path(Area.FILES, version.corpus_sha256)
    parameters = describe(configuration.engine).complete(configuration.parameters)
    work = ExecutionJob("retrieve", configuration.engine, path, parameters=parameters, language=job.dataset.language)
    work = use_cached_index(lease, work, version)
    retrieval = retrieve(
        RetrievalTask(
            work.engine,
            corpus,
            local_path(Area.FILES, version.topics_sha256),
            path,
            parameters=parameters,
            drop_self_matches=job.dataset.drop_self_matches,
            excluded=excluded_path(version),
            work_folder=path.parent,
            resources=Resources(language=work.language, index=work.index),
        ),
        progress=lease.report_stage,
    )
    if retrieval.documents != version.statistics.get("documents", retrieval.documents):
        raise DamagedInput(f"Only {retrieval.documents} documents of the corpus {corpus.name} were read.")
    seconds = retrieval.build_seconds + work.index_seconds
    write_log(
        job.pk,
        f"{format_count(retrieval.documents, 'document')} indexed in {seconds:.1f} s, "
        f"{format_count(retrieval.queries, 'query', 'queries')} searched in {retrieval.search_seconds:.1f} s "
        f"({retrieval.index_bytes / 2**20:.1f} MiB, analyser {retrieval.analyser})",
    )


def _find_waiting_run(configuration: EngineConfiguration, version: DatasetVersion) -> Run | None:
    """Return the run that the configuration made while the dataset was collecting runs, if it covers all queries."""
    runs = Run.objects.filter(
        version=version,
        system=configuration_system(configuration),
        origin=Run.Origin.RETRIEVED,
        metadata__has_key=TOPICS,
    )
    present_topics = topic_ids(version.topics_sha256)
    for run in runs.order_by("-pk"):
        run_topics = topic_ids(run.metadata[TOPICS])
        if run_path(run.sha256).exists() and present_topics <= run_topics:
            return run
    return None


def _measure(lease: Lease, configuration: EngineConfiguration, version: DatasetVersion, folder: Path) -> dict[str, Any]:
    """Measure the configuration and BM25 briefly, so that the next results on a new site are not delayed.

    Return the costs of a RetrievalResult, empty if that fails.
    """
    measurement = measure_configuration(lease, version, folder, configuration, brief=True)
    if not measurement.get("figures"):
        return {}
    baseline = measure_configuration(lease, version, folder, brief=True)
    return {"figures": {"": measurement["figures"]}, "hardware": measurement["hardware"], "baseline": baseline}


def measure_configuration(
    lease: Lease,
    version: DatasetVersion,
    folder: Path,
    configuration: EngineConfiguration = BM25,
    *,
    brief: bool = False,
) -> Mapping[str, Any]:
    """Measure a configuration, by default BM25, on the version of the job's dataset and on this machine.

    Return figures and hardware class, empty if that fails.
    """
    dataset = lease.job.dataset
    work = ExecutionJob(
        task="measure",
        engine=configuration.engine,
        out=folder / configuration.slug,
        corpus=local_path(Area.FILES, version.corpus_sha256),
        documents=version.statistics.get("documents"),
        queries=local_path(Area.FILES, version.topics_sha256),
        excluded=excluded_path(version),
        parameters=describe(configuration.engine).complete(configuration.parameters),
        language=dataset.language,
        drop_self_matches=dataset.drop_self_matches,
        threads=settings.MODEL_THREADS,
        brief=brief,
    )
    try:
        return run_child(use_cached_index(lease, work, version), lease, trusted=True)
    except (ModelFailure, ModelTimedOut, RuntimeError) as error:
        write_log(lease.job.pk, f"{configuration.name} could not be measured ({type(error).__name__}).")
        return {}
