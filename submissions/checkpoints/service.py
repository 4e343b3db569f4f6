"""Validation, rebuilding, and storage of teams' checkpoints. The only writer of `Checkpoint`.

Rebuilt files are in `store/checkpoints/<owner>/<sha256 of the model>/`, with one folder per team and one for the
site, so that response times do not reveal that another team has the same model. Files are written before their row, so
a crash leaves at most an unreferenced folder, which the sweep removes.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from evaluation.checkpoints.description import FILE_NAME, MODEL_KINDS, CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import Validation, rebuild, validate_archive
from evaluation.core.files import file_sha256
from evaluation.core.problems import Problem, ProblemCode
from evaluation.engines.prompts import find_template, prompt_remarks
from evaluation.images.archive import ARCHIVE_NAME, validate_image
from evaluation.images.findings import DEFAULT_LIMITS, ImageLimits
from leaderboard.core.storage import deletion_lock, shared
from leaderboard.core.storage.store import Area, sync
from leaderboard.models import Team, User
from submissions.checkpoints.concurrency import checking_slot
from submissions.checkpoints.hub import PinnedModel
from submissions.core.errors import FileReport, Refused
from submissions.models import Checkpoint
from submissions.sandbox.processes import remove_old
from submissions.uploads.service import lock_for_reading

WRONG_CHECKPOINT_KIND = ProblemCode(
    "wrong_checkpoint_kind", "The checkpoint is valid, but the chosen engine does not run it.",
    "Choose an engine that runs it.",
)  # fmt: skip

#: Display names of checkpoint kinds.
KIND_NAMES = {
    CheckpointKind.SENTENCE_ENCODER: "a sentence encoder (one or two, with pooling)",
    CheckpointKind.STATIC_EMBEDDINGS: "static embeddings",
    CheckpointKind.SPARSE_ENCODER: "a sparse encoder (SPLADE and the like)",
    CheckpointKind.MULTI_VECTOR: "a multi-vector encoder (ColBERT)",
    CheckpointKind.CROSS_ENCODER: "a cross-encoder",
    CheckpointKind.SEQ2SEQ: "a sequence-to-sequence model (T5)",
    CheckpointKind.TERM_WEIGHTING: "a term weighter (DeepCT)",
    CheckpointKind.QUERY_AUGMENTATION: "an encoder with augmentation.safetensors (W and u)",
    CheckpointKind.CONTAINER: "a container image",
}
#: Folder of the site's checkpoints, which belong to no team.
SITE_FOLDER = "house"
_PARTIAL_PREFIX = ".partial-"
#: Notice of checks that need model libraries, which web processes do not have.
VERIFIED_BY_JOB = _(
    "Not checked yet: whether weights, tokenizer, and settings match the library's model class. A job "
    "verifies this before encoding, as does `python -m evaluation pack` on your machine."
)
#: Fields of the description that a validation report contains.
_SUMMARY_FIELDS = (
    "kind", "model_type", "parameters", "dimension", "maximum_length", "pooling", "similarity", "prompts", "image",
)  # fmt: skip


Kinds = tuple[CheckpointKind, ...]


@dataclass(frozen=True, slots=True)
class CheckpointArchive:
    """A checkpoint archive: its name, its temporary path, and the requested pooling, if any.

    `sha256` is the hash of the content, if it was computed on arrival; `upload` is the id of a resumable upload.
    """

    name: str
    path: Path
    pooling: str = ""
    sha256: str | None = None
    upload: str = ""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """A rebuilt checkpoint in its owner's folder, before its row is written."""

    sha256: str
    file_name: str
    description: CheckpointDescription


def checkpoint_folder(checkpoint: Checkpoint) -> Path:
    """Return the folder of the checkpoint's rebuilt files on this host."""
    return shared.ensure_local(_folder(checkpoint.team, checkpoint.model_sha256))


def check_checkpoint(source: CheckpointArchive, accepted_kinds: Kinds = ()) -> FileReport:
    """Return the report of an archive without storing it. Raises TooManyChecks.

    Files of weights in the archive may consist of headers only.
    """
    uploads = [source.upload] if source.upload else []
    with (
        lock_for_reading(uploads, shared=True),
        checking_slot(),
        _validation_in_scratch(source, accepted_kinds, without_weights=True) as (validation, _),
    ):
        if validation.plan is None:
            return FileReport(source.name, "", validation.report)
        values = asdict(validation.plan.description)
        model = {key: values[key] for key in _SUMMARY_FIELDS}
        model["prompt_template"] = prompt_template(model, source.name)
        problems = (*validation.report.problems, *remarks_on_prompts(model, source.name))
        report = replace(validation.report, problems=problems)
        pending = [] if model["kind"] == CheckpointKind.CONTAINER else [str(VERIFIED_BY_JOB)]
        return FileReport(source.name, "", report, model, pending)


def remarks_on_prompts(model: Mapping[str, Any], name: str) -> list[Problem]:
    return prompt_remarks(model["kind"], model.get("prompts", {}), model.get("model_type", ""), name)


def prompt_template(model: Mapping[str, Any], name: str) -> str:
    """Return the label of the model family whose prompts apply, or an empty string."""
    template = find_template(model.get("prompts", {}), model.get("model_type", ""), name)
    return template.label if template else ""


def store_checkpoint(
    team: Team | None,
    source: CheckpointArchive,
    person: User | None,
    accepted_kinds: Kinds = (),
    hub: PinnedModel | None = None,
) -> Checkpoint:
    """Validate, rebuild, and store an archive once for its owner. For workers and commands, which can wait.

    Args:
        team: Owner, or None for the site.
        source: Checkpoint archive.
        person: User who submitted the archive.
        accepted_kinds: Accepted kinds; any kind if empty.
        hub: Model on the Hugging Face Hub, or image in a registry, that the archive was downloaded from.

    Raises Refused with every problem.
    """
    return record(_store_validated_files(team, source, accepted_kinds, _identity(source)), team, person, hub)


def store_files(team: Team | None, source: CheckpointArchive, accepted_kinds: Kinds = ()) -> StoredFiles:
    """Validate, rebuild, and store the files of a checkpoint without its row, during a request.

    Files that the owner has already are not stored again. The duration is that of copying the model, so call it outside
    of transactions. Raises Refused with every problem, and TooManyChecks.
    """
    sha256 = _identity(source)
    if stored_files := _find_stored(team, sha256, accepted_kinds):
        return stored_files
    with checking_slot():
        return _store_validated_files(team, source, accepted_kinds, sha256)


def _store_validated_files(
    team: Team | None, source: CheckpointArchive, accepted_kinds: Kinds, sha256: str
) -> StoredFiles:
    """Validate, rebuild, and store an archive's files, unless the owner has them. Raises Refused with every problem."""
    # A concurrent request may have stored the same archive while this one waited.
    if stored_files := _find_stored(team, sha256, accepted_kinds):
        return stored_files
    with _validation_in_scratch(source, accepted_kinds) as (validation, scratch):
        if not validation.report.valid:
            raise Refused.for_checkpoint(FileReport(source.name, "", validation.report))
        rebuilt_folder = scratch / "rebuilt files"
        description = _write_files(validation, source, rebuilt_folder)
        target = _folder(team, description.sha256)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            rebuilt_folder.rename(target)
        except OSError:  # the same model exists, and a rename only replaces empty folders
            if not (target / FILE_NAME).exists():
                raise
            os.utime(target)
            shutil.rmtree(rebuilt_folder)
        sync(target.parent)
        shared.send(target)
    return StoredFiles(sha256, source.name, description)


def _write_files(validation: Validation, source: CheckpointArchive, target: Path) -> CheckpointDescription:
    """Write a rebuilt checkpoint, or a copy of a container image, into the new folder `target`, and sync it."""
    if validation.plan is None or validation.plan.description.kind != CheckpointKind.CONTAINER:
        return rebuild(validation, target)
    target.mkdir()
    copy = target / ARCHIVE_NAME
    shutil.copyfile(source.path, copy)
    description = replace(validation.plan.description, files={ARCHIVE_NAME: file_sha256(copy)})
    description.write(target)
    for path in (copy, target):
        sync(path)
    return description


def image_limits() -> ImageLimits:
    """Return the limits of images. An image may expand to three times the size limit of archives."""
    return replace(DEFAULT_LIMITS, archive_bytes=settings.IMAGE_BYTES, expanded_bytes=3 * settings.IMAGE_BYTES)


def record(files: StoredFiles, team: Team | None, person: User | None, hub: PinnedModel | None = None) -> Checkpoint:
    """Return the row of stored files: the owner's existing row for the same archive and kind, or a new one."""
    row, _ = Checkpoint.objects.get_or_create(
        team=team,
        sha256=files.sha256,
        kind=files.description.kind.value,
        defaults={
            "model_sha256": files.description.sha256,
            "description": asdict(files.description),
            "file_name": files.file_name[:200],
            "size": files.description.size,
            "hub_name": hub.name if hub else "",
            "hub_commit": hub.commit if hub else "",
            "created_by": person,
        },
    )
    return row


def describe(checkpoint: Checkpoint) -> CheckpointDescription:
    return CheckpointDescription.from_dict(checkpoint.description)


def _find_stored(team: Team | None, sha256: str, accepted_kinds: Kinds) -> StoredFiles | None:
    """Return the owner's stored files of this archive, if they are of an accepted kind and still exist.

    They are marked as used, so that the sweep does not remove them.
    """
    for row in Checkpoint.objects.filter(team=team, sha256=sha256):
        folder = checkpoint_folder(row)
        if accepted_kinds and describe(row).kinds.isdisjoint(accepted_kinds):
            continue
        if (folder / FILE_NAME).exists():
            os.utime(folder)  # protects the folder from the sweep
            return StoredFiles(sha256, row.file_name, describe(row))
    return None


def _identity(source: CheckpointArchive) -> str:
    """Return the archive's sha256, or a hash that includes the requested pooling, which makes it a different model."""
    sha256 = source.sha256 or file_sha256(source.path)
    return hashlib.sha256(f"{sha256} {source.pooling}".encode()).hexdigest() if source.pooling else sha256


@contextmanager
def _validation_in_scratch(
    source: CheckpointArchive, accepted_kinds: Kinds, without_weights: bool = False
) -> Iterator[tuple[Validation, Path]]:
    """Yield the validation and the scratch folder, on the store's disk, with the extracted archive."""
    area = Path(settings.VAR) / Area.CHECKPOINTS.value
    area.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=area, prefix=_PARTIAL_PREFIX) as folder:
        scratch = Path(folder)
        named_link = scratch / (re.sub(r"[^\w.-]", "_", source.name)[-80:].lstrip(".") or "checkpoint")
        named_link.symlink_to(source.path.absolute())  # problems then show the sender's file name
        unpacked = scratch / "unpacked files"  # with a space, which `named_link` never has
        unpacked.mkdir()
        kinds, pooling = accepted_kinds or None, source.pooling
        if accepted_kinds == (CheckpointKind.CONTAINER,):
            yield validate_image(named_link, image_limits()), scratch
            return
        yield validate_archive(named_link, unpacked, kinds, pooling, without_weights=without_weights), scratch


def name_kinds(kinds: Collection[CheckpointKind]) -> str:
    is_any_kind = len(kinds) == len(MODEL_KINDS)
    return "a checkpoint of any kind" if is_any_kind else " or ".join(KIND_NAMES[kind] for kind in kinds)


def wrong_kind(name: str, kind: CheckpointKind | None, accepted_kinds: Kinds) -> Refused:
    return Refused.for_problem(
        WRONG_CHECKPOINT_KIND,
        f"{name} is {KIND_NAMES[kind] if kind else 'of another kind'}; the engine runs {name_kinds(accepted_kinds)}.",
        "Choose an engine that runs it, or send a checkpoint that this engine needs.",
    )


def _folder(team: Team | None, model_sha256: str) -> Path:
    owner = str(team.pk) if team is not None else SITE_FOLDER
    return Path(settings.VAR) / Area.CHECKPOINTS.value / owner / model_sha256


def sweep_checkpoints(grace: float) -> int:
    """Remove unreferenced and unfinished folders untouched for `grace` seconds. Return their number.

    During a backup, nothing is removed.
    """
    area = Path(settings.VAR) / Area.CHECKPOINTS.value
    referenced_folders = {_folder(row.team, row.model_sha256) for row in Checkpoint.objects.select_related("team")}
    if deletion_lock.deletions_are_paused():  # a backup may contain rows that were deleted before our query
        return 0
    folders = [
        *area.glob(f"{_PARTIAL_PREFIX}*"),
        *(path for path in area.glob("[!.]*/*") if path not in referenced_folders),
    ]
    return remove_old([folder for folder in folders if folder.is_dir()], grace)
