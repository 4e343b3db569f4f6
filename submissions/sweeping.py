"""Files that no row names: what a crash between writing bytes and committing their row leaves behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from django.conf import settings

from leaderboard.models import CollectionProfile, Run, WorkRequest
from leaderboard.store import Area
from submissions.checkpoints.keeping import sweep_checkpoints
from submissions.model_work.embedding_cache import sweep_embeddings
from submissions.models import TERMINAL, Job
from submissions.sandbox.watching import remove

logger = logging.getLogger(__name__)

#: A file younger than this, in seconds, may belong to a transaction that is still open.
GRACE = 24 * 3600


def sweep() -> int:
    """Remove old unnamed runs, profiles and uploads, and old unfinished files; returns how many.

    What cannot be removed in one place does not keep the others from being swept.
    """
    steps: dict[str, Callable[[], int]] = {
        "runs": lambda: _sweep_files(Path(settings.VAR) / Area.RUNS.value, _named_runs()),
        "top documents": lambda: _sweep_files(Path(settings.VAR) / Area.TOP_DOCUMENTS.value, _named_runs()),
        "profiles": lambda: _sweep_files(
            Path(settings.VAR) / Area.PROFILES.value,
            set(CollectionProfile.objects.values_list("terms_sha256", flat=True)),
        ),
        "uploads": lambda: _sweep_files(Path(settings.VAR) / Area.UPLOADS.value, _named_uploads()),
        "unfinished uploads": lambda: _sweep_files(Path(settings.FILE_UPLOAD_TEMP_DIR), set()),
        "work": _sweep_work,
        "embeddings": sweep_embeddings,
        "checkpoints": lambda: sweep_checkpoints(GRACE),
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


def _sweep_files(folder: Path, named: Container[str]) -> int:
    unnamed = [path for path in _old_files(folder) if path.name not in named]
    for path in unnamed:
        path.unlink(missing_ok=True)
    return len(unnamed)


def _sweep_work() -> int:
    """Remove the scratch folders of workers that were killed: a job takes no longer than the grace does."""
    work = Path(settings.VAR) / "work"
    limit = time.time() - max(GRACE, settings.JOB_WALL_CLOCK_SECONDS)
    old = [folder for folder in work.glob("*") if folder.is_dir() and folder.stat().st_mtime < limit]
    for folder in old:
        remove(folder)
    return len(old)


def _old_files(folder: Path) -> Iterator[Path]:
    limit = time.time() - GRACE
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime < limit:
            yield path


def _named_runs() -> set[str]:
    named = set(Run.objects.values_list("sha256", flat=True))
    # A job that has not run yet, or was put back, names its run in its payload alone.
    waiting = Job.objects.exclude(state__in=TERMINAL).values_list("payload", flat=True)
    requested = WorkRequest.objects.filter(taken_at=None).values_list("payload", flat=True)
    return named | {payload.get("run_sha256", "") for payload in (*waiting, *requested)}


def _named_uploads() -> set[str]:
    return set(Job.objects.exclude(state__in=TERMINAL).values_list("upload_sha256", flat=True))
