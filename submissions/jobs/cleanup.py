"""Removal of unreferenced files that crashes leave behind, and detection of missing files after a restore."""

import logging
import re
from collections.abc import Callable, Container, Iterator, Sized
from datetime import timedelta
from pathlib import Path

import orjson
from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils import timezone

from evaluation.checkpoints.description import FILE_NAME
from leaderboard.core.storage import deletion_lock, shared
from leaderboard.core.storage.store import PARTIAL, Area, local_path, path_of
from leaderboard.datasets.derived_files import top_documents_path
from leaderboard.models import CollectionProfile, Pool, Qrels, Rescore, Run, WorkRequest
from submissions.checkpoints.service import checkpoint_folder, sweep_checkpoints
from submissions.jobs.checkpoints.embeddings import sweep_embeddings
from submissions.jobs.checkpoints.own_engines import sweep_indexes
from submissions.jobs.checkpoints.running import sweep_work
from submissions.jobs.kinds.handover import RetrievalResult
from submissions.models import TERMINAL, Checkpoint, Job, Upload
from submissions.sandbox.processes import remove_old
from submissions.uploads import storage
from submissions.uploads.service import discard_expired_uploads

logger = logging.getLogger(__name__)

#: Minimum age in seconds of files to remove; younger ones may belong to an open transaction.
GRACE = 24 * 3600
#: Maximum number of unreferenced files that are removed without a comparison with the number of all files.
_SAFE_COUNT = 20
#: JSON columns that may contain checksums.
_JSON_COLUMNS = ((Pool, "files"), (Rescore, "content"), (WorkRequest, "payload"), (Job, "payload"))
_CHECKSUM = re.compile(rb"[0-9a-f]{64}")


def remove_unreferenced(grace: float = GRACE) -> int:
    """Remove files that no row references and that are older than `grace` seconds; return the number removed.

    A failure of one step does not stop the others. No file is removed during a backup, since the copied database may
    refer to files that are unreferenced now. A backup may begin at any moment, so each step checks again.
    """
    if deletion_lock.deletions_are_paused():
        logger.info("No files are swept during a backup.")
        return 0
    oldest = timezone.now() - timedelta(seconds=grace)
    profiles = CollectionProfile.objects.values_list("terms_sha256", flat=True)
    uploads = Job.objects.needing_files().values_list("upload_sha256", flat=True)
    upload_folder, pieces = Path(settings.FILE_UPLOAD_TEMP_DIR), Upload.objects.values_list("pk", flat=True)
    excluding_runs = Run.objects.exclude(version__excluded_sha256="").values_list("sha256", "version__excluded_sha256")
    steps: dict[str, Callable[[], int]] = {
        "runs": lambda: _sweep_files(_folder(Area.RUNS), referenced_runs(), grace),
        "top documents": lambda: _sweep_files(
            _folder(Area.TOP_DOCUMENTS),
            referenced_runs() | {top_documents_path(*run).name for run in excluding_runs},
            grace,
        ),
        "profiles": lambda: _sweep_files(_folder(Area.PROFILES), set(profiles), grace),
        "uploads": lambda: _sweep_files(_folder(Area.UPLOADS), set(uploads), grace),
        "files of datasets": lambda: _sweep_datasets(grace),
        "staged imports": lambda: _sweep_files(_folder(Area.STAGED), set(), grace),
        # Old downloads go with their jobs, whose payload refers to them.
        "downloads": lambda: Job.objects.filter(kind=Job.Kind.DOWNLOAD, finished_at__lt=oldest).delete()[0],
        "downloaded collections": lambda: _sweep_files(_folder(Area.DOWNLOADS), set(), grace),
        "expanded zips": lambda: remove_old(filter(Path.is_dir, upload_folder.glob("zip-*")), grace),
        "unfinished uploads": lambda: _sweep_files(upload_folder, set(), grace),
        "expired uploads": discard_expired_uploads,
        "chunked uploads": lambda: _sweep_files(storage.folder(), set(pieces), grace),
        "work": lambda: sweep_work(grace),
        "embeddings": sweep_embeddings,
        "word indexes": sweep_indexes,
        "checkpoints": lambda: sweep_checkpoints(grace),
        "the shared storage": lambda: _sweep_shared(grace),
    }
    count = 0
    for name, step in steps.items():
        try:
            count += step()
        except Exception:
            logger.exception("Could not sweep %s", name)
    if count:
        logger.info("Swept %s unreferenced files.", count)
    return count


def _folder(area: Area) -> Path:
    return Path(settings.VAR) / area.value


def _sweep_files(folder: Path, referenced_names: Container[str], grace: float) -> int:
    """Remove old files except the named ones, unless a backup has begun meanwhile. Return the number removed."""
    if deletion_lock.deletions_are_paused():
        return 0
    return remove_old([p for p in folder.rglob("*") if p.name not in referenced_names and p.is_file()], grace)


def _sweep_datasets(grace: float) -> int:
    """Remove old files of datasets, judgments included, whose checksum is in no row. Return the number removed.

    If most files of an area are unreferenced, only its partial files are removed.
    """
    checksums = referenced_checksums()
    if deletion_lock.deletions_are_paused():
        return 0
    count = 0
    for area in (Area.FILES, Area.INDEXES, Area.EXCERPTS, Area.QRELS, Area.CURATION):
        files = [path for path in _folder(area).rglob("*") if path.is_file()]
        unreferenced = [path for path in files if path.name not in checksums]
        complete_files = [path for path in unreferenced if not path.name.startswith(PARTIAL)]
        if _are_too_many(complete_files, files, area.value):
            unreferenced = [path for path in unreferenced if path.name.startswith(PARTIAL)]
        count += remove_old(unreferenced, grace)
    return count


def _sweep_shared(grace: float) -> int:
    """Remove old files of the shared storage that no row references. Return the number removed.

    They were removed here, or their row was never stored. If most files are unreferenced, none is removed.
    """
    checksums = referenced_checksums() | referenced_runs()
    if deletion_lock.deletions_are_paused():
        return 0
    paths = list(shared.sent_paths())
    unreferenced = [path for path in paths if path.name not in checksums]
    if _are_too_many(unreferenced, paths, "the shared storage"):
        return 0
    return sum(shared.remove(path, grace) for path in unreferenced)


def _are_too_many(unreferenced: Sized, files: Sized, area: str) -> bool:
    """Return whether most files are unreferenced, which suggests that the database is empty or another site's."""
    if len(unreferenced) <= _SAFE_COUNT or 2 * len(unreferenced) <= len(files):
        return False
    logger.error("%s of %s files in %s are unreferenced; removing none of them.", len(unreferenced), len(files), area)
    return True


def referenced_runs() -> set[str]:
    """Return the checksums of runs referenced by rows, including jobs that are active or can be retried."""
    checksums = set(Run.objects.values_list("sha256", flat=True))
    # A job that has not run, or was requeued, references its run only in its payload.
    job_payloads = Job.objects.needing_files().values_list("payload", flat=True)
    for payload in (*job_payloads, *WorkRequest.objects.filter(taken_at=None).values_list("payload", flat=True)):
        retrieval = RetrievalResult.from_payload(payload)
        checksums |= {payload.get("run_sha256", ""), *(retrieval.sha256s if retrieval else ())}
    return checksums


def referenced_checksums() -> set[str]:
    """Return all SHA-256 checksums in any row, including history tables.

    Columns of future tables are found by their names, which must end with "sha256".
    """
    checksums: set[str] = set()
    for label in ("leaderboard", "submissions"):
        for model in apps.get_app_config(label).get_models():
            for field in model._meta.concrete_fields:
                if isinstance(field, models.CharField) and field.name.endswith("sha256"):
                    checksums.update(model._default_manager.values_list(field.name, flat=True).distinct().iterator())
    for table, column in _JSON_COLUMNS:
        for value in table._default_manager.values_list(column, flat=True).iterator():
            checksums.update(match.decode() for match in _CHECKSUM.findall(orjson.dumps(value)))
    return checksums - {""}


def find_missing_files(*, private: bool) -> list[str]:
    """Return a line for each missing file of jobs, uploads, runs, and checkpoints, and of judgments if `private`."""
    root = Path(settings.VAR)
    return [
        f"{path.relative_to(root)}: missing, needed by {user}"
        for path, user in _referenced_files(private=private)
        if not path.exists()
    ]


def _referenced_files(*, private: bool) -> Iterator[tuple[Path, str]]:
    """Yield the path of each referenced file, those of judgments if `private`, with a description of its row."""
    # Uploads of active jobs whose run is not stored yet.
    waiting_jobs = Job.objects.exclude(state__in=TERMINAL).filter(validated=False).exclude(upload_sha256="")
    for pk, submission, sha256 in waiting_jobs.values_list("pk", "submission_id", "upload_sha256"):
        yield path_of(Area.UPLOADS, sha256), f"job {pk} of submission {submission}"
    for key in Upload.objects.values_list("pk", flat=True):
        yield storage.path_of(key), f"upload {key}"
    for sha256 in sorted(referenced_runs() - {""}):
        yield local_path(Area.RUNS, sha256), "a run or a waiting job"
    for row in Checkpoint.objects.select_related("team"):
        yield checkpoint_folder(row) / FILE_NAME, f"checkpoint {row.pk} ({row})"
    if private:
        columns = "sha256", "parts_sha256", "answers_sha256", "subtopics_sha256", "labels_sha256"
        for pk, *checksums in Qrels.objects.values_list("pk", *columns):
            for sha256 in filter(None, checksums):
                yield path_of(Area.QRELS, sha256), f"judgements {pk}"
