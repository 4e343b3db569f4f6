"""Downloads of models from the Hugging Face Hub, and of images from registries, by the jobs that run them."""

import fcntl
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from evaluation.core.problems import InvalidContent, InvalidRun
from evaluation.engines import EngineDescription, InvalidParameter
from evaluation.engines import describe as describe_engine
from evaluation.images.archive import ARCHIVE_NAME
from evaluation.images.findings import IMAGE_UNREACHABLE
from leaderboard.models import User
from submissions.checkpoints.hub import PinnedModel, fetch, fetch_image
from submissions.checkpoints.service import CheckpointArchive, store_checkpoint
from submissions.checkpoints.service import describe as describe_checkpoint
from submissions.core.errors import Refused
from submissions.intake.checkpoints.intake import INVALID_PARAMETERS, checkpoint_kinds
from submissions.jobs.checkpoints.running import job_folder
from submissions.jobs.kinds.score import begin
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.lease import Cancelled, Lease
from submissions.queue.queue import write_log
from submissions.sandbox.processes import remove


def fetched_checkpoint(job: Job, lease: Lease) -> Checkpoint | None:
    """Return the checkpoint of a job if its submission names a model on the hub or an image in a registry, else None.

    Each model is downloaded once per team. Raises LeaseLost or Cancelled, and InvalidRun if the model does not exist or
    cannot be run.
    """
    submission, name = job.submission, job.payload.get("hub_name", "")
    if submission is None or not name:
        return None
    engine, model = describe_engine(submission.engine), PinnedModel(name, job.payload["hub_commit"])
    checkpoint = _find_checkpoint(submission, model, engine)
    if checkpoint is None:
        begin(job, State.RETRIEVING, "fetching")
        origin, digits = ("its registry", 19) if model.is_image else ("the hub", 12)
        write_log(job.pk, f"Downloading {name} at {model.commit[:digits]} from {origin}.")
        with _image_folder(submission, model) if model.is_image else job_folder() as folder:
            # Another job of the submission may have downloaded the image while this one waited.
            checkpoint = _find_checkpoint(submission, model, engine) or _download(lease, submission, model, folder)
    try:
        engine.check_parameters(engine.complete(job.model_parameters), describe_checkpoint(checkpoint))
    except InvalidParameter as error:
        raise InvalidRun.build(INVALID_PARAMETERS.problem(str(error), INVALID_PARAMETERS.remedy)) from error
    Submission.objects.filter(pk=submission.pk).update(checkpoint=checkpoint)
    return checkpoint


def _find_checkpoint(submission: Submission, model: PinnedModel, engine: EngineDescription) -> Checkpoint | None:
    rows = Checkpoint.objects.filter(team=submission.team, hub_name=model.name, hub_commit=model.commit)
    kinds = checkpoint_kinds(engine)
    return next((row for row in rows if describe_checkpoint(row).kinds.intersection(kinds)), None)


def _download(lease: Lease, submission: Submission, model: PinnedModel, folder: Path) -> Checkpoint:
    """Download a model to the folder, validate it, and store it. Raises LeaseLost, Cancelled, and InvalidRun."""
    kinds = checkpoint_kinds(describe_engine(submission.engine))
    stem = model.name.replace("/", "_")
    try:
        if model.is_image:
            archive = folder / ARCHIVE_NAME
            fetch_image(model, archive, lease.check)
            source = CheckpointArchive(f"{stem}@{model.commit[7:19]}.tar", archive)
        else:
            files = folder / "files"
            files.mkdir()
            if heads := fetch(model, files, lease.check):
                write_log(
                    lease.job.pk,
                    f"The heads in {' and '.join(heads)} are pickles and were not downloaded, so only the dense "
                    "model is used. `pack` converts them and creates an archive of the complete model.",
                )
            source = CheckpointArchive(f"{stem}@{model.commit[:12]}.zip", _pack(files, folder / "fetched.zip"))
        person = User.objects.only("pk").get(pk=submission.submitter_id)
        return store_checkpoint(submission.team, source, person, kinds, model)
    except InvalidContent as error:
        raise InvalidRun.build(*error.report.problems) from error
    except Refused as refusal:
        problems = [problem for file in refusal.files for problem in file.report.problems]
        raise InvalidRun.build(*(problems or refusal.problems)) from refusal


@contextmanager
def _image_folder(submission: Submission, image: PinnedModel) -> Iterator[Path]:
    """Yield the locked folder of a team's download of an image on this host.

    After an interruption, the folder remains for the next attempt to resume, until the sweep removes it. It does not
    remain after a cancellation.
    """
    folder = Path(settings.VAR) / "work" / f"pull-{submission.team_id}-{image.commit.partition(':')[2]}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.utime(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        folder.mkdir(exist_ok=True, mode=0o700)  # another job of the image may have removed it
        yield folder
        remove(folder)
    except (InvalidRun, Cancelled) as end:
        problems = end.report.problems if isinstance(end, InvalidRun) else ()
        if not any(problem.code == IMAGE_UNREACHABLE for problem in problems):
            remove(folder)
        raise
    finally:
        os.close(descriptor)


def _pack(files: Path, archive: Path) -> Path:
    """Pack the files into a deterministic archive."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as archive_file:
        for path in sorted(path for path in files.rglob("*") if path.is_file()):
            name = path.relative_to(files).as_posix()
            with (
                path.open("rb") as source,
                archive_file.open(zipfile.ZipInfo(name), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
    return archive
