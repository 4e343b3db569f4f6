"""Fetch a model from the hub at one commit, on a worker, and keep it as if its sender had uploaded it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from evaluation.checkpoints import CheckpointKind
from evaluation.core.errors import InvalidContent, InvalidRun
from evaluation.engines import describe
from leaderboard.models import User
from submissions.checkpoints.hub import fetch
from submissions.checkpoints.service import keep_checkpoint
from submissions.core.errors import Refused
from submissions.intake.models.intake import kinds_of
from submissions.jobs.models.running import workplace
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.lease import LeaseLost
from submissions.queue.lifecycle import advance, write_log


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
    found = known.filter(kind__in=[kind.value for kind in kinds]).first()
    if found is None:
        if not advance(job.pk, State.RETRIEVING, fence=job.fence, stage="fetching"):
            raise LeaseLost
        write_log(job.pk, f"Fetching {name} at {commit[:12]} from the hub.")
        found = _fetch_and_keep(submission, name, commit, kinds)
    Submission.objects.filter(pk=submission.pk).update(checkpoint=found)
    return found


def _fetch_and_keep(
    submission: Submission, name: str, commit: str, kinds: tuple[CheckpointKind, ...]
) -> Checkpoint:
    """Raises InvalidRun for what the hub does not have, or what cannot be run."""
    with workplace() as folder:
        files = folder / "files"
        files.mkdir()
        try:
            fetch(name, commit, files)
            return keep_checkpoint(
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
