"""BM25's indexes of corpora: built once by a child of the site's own, kept, and opened by whatever job needs them.

`<key>/index` is what engines open, read-only. `<key>/<hardware class>.json` says what building took on machines of that
class, which is published; one of another class measures that itself, once, and has the index already. A folder takes
its name whole: of two workers that build the same one keeps its own, and where none lies any more it is built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.core.errors import ModelFailure
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import Resources, describe
from evaluation.engines.base import size_of
from evaluation.engines.index.inverted_index import FORMAT, InvertedIndex
from evaluation.engines.index.term_search import resolve_language
from evaluation.execution.job import INDEX_FOLDER, ExecutionJob
from evaluation.text import analyser_for
from leaderboard.core.storage.store import Area, atomic_write, local_path, path_of
from leaderboard.models import Dataset, DatasetVersion
from submissions.jobs.checkpoints.embeddings import checked_size, move_into_place, remove_least_used
from submissions.jobs.checkpoints.running import DamagedInput, ModelTimedOut, job_folder, run_child
from submissions.queue.lease import Lease
from submissions.queue.lifecycle import write_log
from submissions.sandbox.processes import remove

logger = logging.getLogger(__name__)

#: Fewer documents are indexed sooner than a child starts; their index is not kept.
LEAST_DOCUMENTS = 2_000
#: Seconds for which an index stays after it was used: a child may be about to open it.
GRACE = 24 * 3600
_ENGINE = "bm25"
_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError)


@dataclass(frozen=True, slots=True)
class _Building:
    """What is noted of a building: wall seconds, the peak of memory, the index's size (bytes), and the corpus."""

    seconds: float
    memory: int
    size: int
    corpus: str


def with_kept_index(lease: Lease, work: ExecutionJob, version: DatasetVersion) -> ExecutionJob:
    """The work with the index of words that its engine searches, built where it is missing or damaged.

    As it was for an engine that searches none or runs, and where none is kept: then the engine builds its own.
    `work.parameters` are all parameters. Raises LeaseLost or Cancelled.
    """
    wanted = None if work.runs else describe(work.engine).word_index(work.parameters)
    if wanted is None or version.statistics.get("documents", 0) < LEAST_DOCUMENTS:
        return work
    wanted = resolve_language(describe(_ENGINE).complete(wanted), Resources(language=work.language))
    place = path_of(Area.WORD_INDEXES, _key(version, wanted))
    note = place / f"{describe_hardware(settings.MODEL_THREADS, 'cpu').slug}.json"
    building = _noted(note)
    if building is None or not _is_whole(place, building.size, version):
        try:
            building = _build(lease, version, wanted, note)
        except (ModelFailure, ModelTimedOut, RuntimeError, OSError) as error:
            logger.warning("an index could not be kept: %s: %s", type(error).__name__, error)
            write_log(lease.job.pk, f"BM25's index could not be kept ({type(error).__name__}).")
            return work
    os.utime(place)
    return replace(
        work, index=place / INDEX_FOLDER, index_seconds=building.seconds, index_memory=building.memory
    )


def _key(version: DatasetVersion, parameters: Mapping[str, Any]) -> str:
    """A checksum of what decides an index's bytes."""
    analyser = analyser_for(parameters["language"], parameters["stemming"]).description
    packages = [version_of(name) for name in ("PyStemmer", "icu4py", "whoosh-reloaded")]
    what = [version.corpus_sha256, _ENGINE, parameters, FORMAT, analyser, packages]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _noted(note: Path) -> _Building | None:
    try:
        return _Building(**json.loads(note.read_text("utf-8")))
    except _DAMAGED:
        return None


def _is_whole(place: Path, size: int, version: DatasetVersion) -> bool:
    """Whether the index can be opened, and has all of its bytes and documents."""
    try:
        index = InvertedIndex(place / INDEX_FOLDER)
        return (size_of(index.folder), index.document_count) == (size, version.statistics["documents"])
    except _DAMAGED:
        return False


def _build(lease: Lease, version: DatasetVersion, parameters: Mapping[str, Any], note: Path) -> _Building:
    """Build the index, and keep it unless there is one now. Raises as `run_child`, and OSError."""
    place = note.parent
    with job_folder() as folder:
        work = ExecutionJob(
            task="index",
            engine=_ENGINE,
            out=folder / "out",
            corpus=local_path(Area.FILES, version.corpus_sha256),
            parameters=parameters,
            threads=settings.MODEL_THREADS,
        )
        told = run_child(work, lease, trusted=True)["index"]
        size = checked_size(work.out / INDEX_FOLDER)
        building = _Building(float(told["seconds"]), int(told["memory"]), size, version.corpus_sha256)
        if not _is_whole(work.out, size, version):
            raise DamagedInput(f"the index of {work.corpus} lacks documents")
        if not _is_whole(place, size, version):
            kept = folder / "kept"
            kept.mkdir()
            (work.out / INDEX_FOLDER).rename(kept / INDEX_FOLDER)
            move_into_place(kept, place)
        with atomic_write(note) as file:
            file.write_text(json.dumps(asdict(building)), "utf-8")
    write_log(lease.job.pk, f"BM25's index is kept: {size / 2**20:.1f} MiB.")
    return building


def sweep_indexes() -> int:
    """Remove indexes of no version that is now current, and beyond `EMBEDDINGS_CACHE_BYTES`; returns how many.

    Those that were used longest ago go first, and none that was used within `GRACE`.
    """
    root = Path(settings.VAR) / Area.WORD_INDEXES.value
    used, sizes = {}, {}
    for place in (*root.glob("??/*"), *root.glob(".arriving-*")):  # the latter of processes that were killed
        with suppress(FileNotFoundError):  # another worker of this host was quicker, here as below
            used[place], sizes[place] = place.stat().st_mtime, checked_size(place)
    versions = Dataset.objects.exclude(current_version=None)
    current = set(versions.values_list("current_version__corpus_sha256", flat=True))

    def delete_if_old(place: Path) -> bool:
        with suppress(FileNotFoundError):
            if place.stat().st_mtime >= time.time() - GRACE:
                return False
            remove(place)
            return True
        return False

    stale = [place for place in sizes if _corpus(place) not in current]
    removed = {place for place in stale if delete_if_old(place)}
    left = {place: size for place, size in sizes.items() if place not in removed}
    needed = sorted(left.keys() - set(stale), key=used.__getitem__)
    return len(removed) + remove_least_used(left, needed, settings.EMBEDDINGS_CACHE_BYTES, delete_if_old)


def _corpus(place: Path) -> str | None:
    """The corpus of an index, as any building of it says."""
    return next((noted.corpus for note in place.glob("*.json") if (noted := _noted(note))), None)
