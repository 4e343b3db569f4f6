"""Files that no row names: what a crash between writing bytes and committing their row leaves behind."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from leaderboard.models import Run, WorkRequest
from leaderboard.store import Area
from submissions.checkpoints.keeping import sweep_checkpoints
from submissions.model_work.embedding_cache import sweep_embeddings
from submissions.models import TERMINAL, Job

logger = logging.getLogger(__name__)

#: A file younger than this, in seconds, may belong to a transaction that is still open.
GRACE = 24 * 3600


def sweep() -> int:
    """Remove old unnamed runs and uploads, and old unfinished files; returns how many."""
    count = 0
    for area, named in ((Area.RUNS, _named_runs()), (Area.UPLOADS, _named_uploads())):
        for path in _old_files(Path(settings.VAR) / area.value):
            if path.name not in named:
                path.unlink(missing_ok=True)
                count += 1
    for path in _old_files(Path(settings.FILE_UPLOAD_TEMP_DIR)):
        path.unlink(missing_ok=True)
        count += 1
    count += _sweep_work() + sweep_embeddings() + sweep_checkpoints(GRACE)
    if count:
        logger.info("swept %s files that no row names", count)
    return count


def _sweep_work() -> int:
    """Remove the scratch folders of workers that were killed: a job takes no longer than the grace does."""
    work = Path(settings.VAR) / "work"
    limit = time.time() - max(GRACE, settings.JOB_WALL_CLOCK_SECONDS)
    old = [folder for folder in work.glob("*") if folder.is_dir() and folder.stat().st_mtime < limit]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
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
