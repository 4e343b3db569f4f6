"""Files that rows name and that are not there: asked once a backup has come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from evaluation.checkpoints.description import FILE_NAME
from leaderboard.core.storage.store import Area, path_of
from leaderboard.models import Qrels
from submissions.checkpoints.service import folder_of
from submissions.jobs.cleanup.unreferenced_files import referenced_runs
from submissions.models import TERMINAL, Checkpoint, Job, Upload
from submissions.uploads import storage

Named = Iterator[tuple[Path, str]]


def find_missing_files(*, private: bool) -> list[str]:
    """What is missing of uploads that jobs wait for, runs, checkpoints, and, where asked, judgements: a line each."""
    named = [*_uploads(), *_pieces(), *_runs(), *_checkpoints(), *(_judgements() if private else ())]
    root = Path(settings.VAR)
    return [f"{path.relative_to(root)}: missing, {who} needs it" for path, who in named if not path.exists()]


def _uploads() -> Named:
    """Of jobs that have not ended, nor kept their run."""
    waiting = Job.objects.exclude(state__in=TERMINAL).filter(validated=False).exclude(upload_sha256="")
    for pk, submission, sha256 in waiting.values_list("pk", "submission_id", "upload_sha256"):
        yield path_of(Area.UPLOADS, sha256), f"job {pk} of submission {submission}"


def _pieces() -> Named:
    for upload in Upload.objects.only("pk"):
        yield storage.path_of(upload.pk), f"upload {upload.pk}"


def _runs() -> Named:
    for sha256 in sorted(referenced_runs() - {""}):
        yield path_of(Area.RUNS, sha256), "a run or a job that waits"


def _checkpoints() -> Named:
    for row in Checkpoint.objects.select_related("team"):
        yield folder_of(row) / FILE_NAME, f"checkpoint {row.pk} ({row})"


def _judgements() -> Named:
    for pk, *checksums in Qrels.objects.values_list("pk", "sha256", "parts_sha256"):
        for sha256 in filter(None, checksums):
            yield path_of(Area.QRELS, sha256), f"judgements {pk}"
