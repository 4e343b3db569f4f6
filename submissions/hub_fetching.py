"""Fetch a model from the hub at one commit, on a worker, and keep it as if its sender had uploaded it."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from django.conf import settings

from evaluation.checkpoints.codes import CODES
from evaluation.engines import describe
from evaluation.errors import InvalidRun
from evaluation.formats.compression import describe_bytes
from evaluation.problems import Problem
from submissions.checkpoints import keep_checkpoint
from submissions.lease import LeaseLost
from submissions.lifecycle import advance, write_log
from submissions.model_intake import kinds_of
from submissions.models import Checkpoint, Job, State, Submission
from submissions.refusals import Refused
from submissions.running import workplace

#: What a model is loaded from; nothing else is fetched.
WANTED_SUFFIXES = (".json", ".safetensors")
MOST_FILES = 64


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
        with workplace() as folder:
            archive = _fetch(name, commit, folder)
            try:
                found = keep_checkpoint(
                    team=submission.team,
                    archive=archive,
                    file_name=f"{name.replace('/', '_')}@{commit[:12]}.zip",
                    person=submission.submitter,
                    wanted=kinds,
                    hub_name=name,
                    hub_commit=commit,
                )
            except Refused as refusal:
                problems = [problem for file in refusal.files for problem in file.report.problems]
                raise InvalidRun.of(*(problems or refusal.problems)) from refusal
    Submission.objects.filter(pk=submission.pk).update(checkpoint=found)
    return found


def _fetch(name: str, commit: str, folder: Path) -> Path:
    """The model's files in one archive. Raises InvalidRun for what the hub does not have, or is too large."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        listed = HfApi(token=False).model_info(name, revision=commit, files_metadata=True).siblings or []
    except (RepositoryNotFoundError, RevisionNotFoundError, GatedRepoError) as error:
        message = f"the hub has no public model {name} at {commit}"
        raise InvalidRun.of(Problem("error", "hub_unreachable", 1, message, CODES["hub_name"])) from error
    wanted = {file.rfilename: file.size or 0 for file in listed if _is_wanted(file.rfilename)}
    _refuse_too_much(wanted.values())
    paths = {
        file: Path(hf_hub_download(name, file, revision=commit, local_dir=folder / "files", token=False))
        for file in wanted
    }
    return _packed(paths, folder / "fetched.zip")


def _packed(files: Mapping[str, Path], archive: Path) -> Path:
    """The files as one archive; the same files give the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for name, path in sorted(files.items()):
            with (
                path.open("rb") as source,
                packed.open(zipfile.ZipInfo(name), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
    return archive


def _is_wanted(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in WANTED_SUFFIXES and not any(part.startswith(".") for part in path.parts)


def _refuse_too_much(sizes: Collection[int]) -> None:
    count, total = len(sizes), sum(sizes)
    if total > settings.CHECKPOINT_LIMIT_BYTES or count > MOST_FILES:
        limit = describe_bytes(settings.CHECKPOINT_LIMIT_BYTES)
        message = (
            f"it has {count} files, {describe_bytes(total)}; at most {MOST_FILES} files, {limit} are fetched"
        )
        raise InvalidRun.of(Problem("error", "hub_too_large", 1, message, CODES["hub_too_large"]))
