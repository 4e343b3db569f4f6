"""Files that no row names, which a crash between writing bytes and committing their row leaves behind; and rows whose
files are missing, once a backup has come back.
"""

import logging
import re
from collections.abc import Callable, Container, Iterator, Sized
from pathlib import Path

import orjson
from django.apps import apps
from django.conf import settings
from django.db import models

from evaluation.checkpoints.description import FILE_NAME
from leaderboard.core.storage import deletion_lock, shared
from leaderboard.core.storage.store import PARTIAL, Area, local_path, path_of
from leaderboard.datasets.derived_files import top_documents_path
from leaderboard.models import CollectionProfile, Pool, Qrels, Rescore, Run, WorkRequest
from submissions.checkpoints.service import folder_of, sweep_checkpoints
from submissions.jobs.checkpoints.embeddings import sweep_embeddings
from submissions.jobs.checkpoints.own_engines import sweep_indexes
from submissions.jobs.checkpoints.running import sweep_work
from submissions.jobs.kinds.handover import RetrievalResult
from submissions.models import TERMINAL, Checkpoint, Job, Upload
from submissions.sandbox.processes import remove_old
from submissions.uploads import storage
from submissions.uploads.service import discard_expired_uploads

logger = logging.getLogger(__name__)

#: A file younger than this, in seconds, may belong to a transaction that is still open.
GRACE = 24 * 3600
#: So many files that no row names may be what crashes left, however few others there are.
_FEW = 20
#: Columns of JSON that may have checksums in them.
_JSON_COLUMNS = ((Pool, "files"), (Rescore, "content"), (WorkRequest, "payload"), (Job, "payload"))
_CHECKSUM = re.compile(rb"[0-9a-f]{64}")


def remove_unreferenced(grace: float = GRACE) -> int:
    """Remove what no row names and nobody touched for `grace` seconds; returns how many files and folders.

    What cannot be removed in one place does not keep the others from being swept. While a backup runs nothing is: the
    database that it copied may name what no row names now. One may begin at any moment, so each step looks again.
    """
    if deletion_lock.deletions_are_paused():
        logger.info("nothing is swept while a backup runs")
        return 0
    profiles = CollectionProfile.objects.values_list("terms_sha256", flat=True)
    uploads = Job.objects.needing_files().values_list("upload_sha256", flat=True)
    arriving, pieces = Path(settings.FILE_UPLOAD_TEMP_DIR), Upload.objects.values_list("pk", flat=True)
    steps: dict[str, Callable[[], int]] = {
        "runs": lambda: _sweep_files(_folder(Area.RUNS), referenced_runs(), grace),
        "top documents": lambda: _sweep_files(_folder(Area.TOP_DOCUMENTS), _top_documents(), grace),
        "profiles": lambda: _sweep_files(_folder(Area.PROFILES), set(profiles), grace),
        "uploads": lambda: _sweep_files(_folder(Area.UPLOADS), set(uploads), grace),
        "datasets' files": lambda: _sweep_datasets(grace),
        "expanded zips": lambda: remove_old(filter(Path.is_dir, arriving.glob("zip-*")), grace),
        "unfinished uploads": lambda: _sweep_files(arriving, set(), grace),
        "expired uploads": discard_expired_uploads,
        "uploads in pieces": lambda: _sweep_files(storage.folder(), set(pieces), grace),
        "work": lambda: sweep_work(grace),
        "embeddings": sweep_embeddings,
        "indexes of words": sweep_indexes,
        "checkpoints": lambda: sweep_checkpoints(grace),
        "the shared storage": lambda: _sweep_shared(grace),
    }
    count = 0
    for name, step in steps.items():
        try:
            count += step()
        except Exception:
            logger.exception("%s could not be swept", name)
    if count:
        logger.info("swept %s files that no row names", count)
    return count


def _folder(area: Area) -> Path:
    return Path(settings.VAR) / area.value


def _sweep_files(folder: Path, named: Container[str], grace: float) -> int:
    """Remove old files except the named ones, and none if a backup has begun by the time that the names are known."""
    if deletion_lock.deletions_are_paused():
        return 0
    return remove_old([p for p in folder.rglob("*") if p.name not in named and p.is_file()], grace)


def _sweep_datasets(grace: float) -> int:
    """What datasets are made of, judgements among it. There every checksum in any row keeps its file.

    Where most of an area would go, nothing does.
    """
    named = referenced_checksums()
    if deletion_lock.deletions_are_paused():
        return 0
    count = 0
    for area in (Area.FILES, Area.INDEXES, Area.EXCERPTS, Area.QRELS, Area.CURATION):
        files = [path for path in _folder(area).rglob("*") if path.is_file()]
        unnamed = [path for path in files if path.name not in named]
        whole = [path for path in unnamed if not path.name.startswith(PARTIAL)]
        if _are_too_many(whole, files, area.value):
            unnamed = [path for path in unnamed if path.name.startswith(PARTIAL)]
        count += remove_old(unnamed, grace)
    return count


def _sweep_shared(grace: float) -> int:
    """What was sent to a storage for several hosts, by a worker that died before its row, say, or was removed here."""
    named = referenced_checksums() | referenced_runs()
    if deletion_lock.deletions_are_paused():
        return 0
    sent = list(shared.sent_paths())
    unnamed = [path for path in sent if path.name not in named]
    if _are_too_many(unnamed, sent, "the shared storage"):
        return 0
    return sum(shared.remove(path, grace) for path in unnamed)


def _are_too_many(unnamed: Sized, files: Sized, where: str) -> bool:
    """Return whether most of a place would go: then this is another site's database, or an empty one."""
    if len(unnamed) <= _FEW or 2 * len(unnamed) <= len(files):
        return False
    logger.error("no row names %s of %s files in %s: none is removed", len(unnamed), len(files), where)
    return True


def referenced_runs() -> set[str]:
    """Return the checksums of the runs that any row names, or a job that has not ended, or may be tried again."""
    named = set(Run.objects.values_list("sha256", flat=True))
    # A job that has not run yet, or was put back, names its run in its payload alone.
    waiting = Job.objects.needing_files().values_list("payload", flat=True)
    requested = WorkRequest.objects.filter(taken_at=None).values_list("payload", flat=True)
    for payload in (*waiting, *requested):
        found = RetrievalResult.from_payload(payload)
        named |= {payload.get("run_sha256", ""), *(found.sha256s if found else ())}
    return named


def _top_documents() -> set[str]:
    """Return the names of the files with first documents of runs that any row names."""
    listed = Run.objects.exclude(version__excluded_sha256="").values_list(
        "sha256", "version__excluded_sha256"
    )
    return referenced_runs() | {top_documents_path(*each).name for each in listed}


def referenced_checksums() -> set[str]:
    """Every sha256 in any row, histories included: of a table to come as well, as long as its column says so."""
    named: set[str] = set()
    for label in ("leaderboard", "submissions"):
        for model in apps.get_app_config(label).get_models():
            for field in model._meta.concrete_fields:
                if isinstance(field, models.CharField) and field.name.endswith("sha256"):
                    rows = model._default_manager.values_list(field.name, flat=True)
                    named.update(rows.distinct().iterator())
    for table, column in _JSON_COLUMNS:
        for value in table._default_manager.values_list(column, flat=True).iterator():
            named.update(match.decode() for match in _CHECKSUM.findall(orjson.dumps(value)))
    return named - {""}


def find_missing_files(*, private: bool) -> list[str]:
    """What is missing of uploads that jobs wait for, runs, checkpoints, and, where asked, judgements: a line each."""
    root = Path(settings.VAR)
    return [
        f"{path.relative_to(root)}: missing, {who} needs it"
        for path, who in _named_files(private=private)
        if not path.exists()
    ]


def _named_files(*, private: bool) -> Iterator[tuple[Path, str]]:
    """The files that rows name, and who needs each."""
    # Jobs that have neither ended nor kept their run.
    waiting = Job.objects.exclude(state__in=TERMINAL).filter(validated=False).exclude(upload_sha256="")
    for pk, submission, sha256 in waiting.values_list("pk", "submission_id", "upload_sha256"):
        yield path_of(Area.UPLOADS, sha256), f"job {pk} of submission {submission}"
    for key in Upload.objects.values_list("pk", flat=True):
        yield storage.path_of(key), f"upload {key}"
    for sha256 in sorted(referenced_runs() - {""}):
        yield local_path(Area.RUNS, sha256), "a run or a job that waits"
    for row in Checkpoint.objects.select_related("team"):
        yield folder_of(row) / FILE_NAME, f"checkpoint {row.pk} ({row})"
    if private:
        for pk, *checksums in Qrels.objects.values_list("pk", "sha256", "parts_sha256", "answers_sha256"):
            for sha256 in filter(None, checksums):
                yield path_of(Area.QRELS, sha256), f"judgements {pk}"
