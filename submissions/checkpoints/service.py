"""Checkpoints that teams bring: validated, rebuilt and kept once per owner. The only writer of `Checkpoint`.

Rebuilt files lie under `store/checkpoints/<owner>/<sha256 of the model>/`, one folder for every team and one of the
house, so that nobody learns from a quick answer that somebody else has the same model. Files come first, the row that
names them after: a crash leaves at most a folder that no row names, which the sweep removes.
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

from evaluation.checkpoints.description import FILE_NAME, CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import Validation, rebuild, validate_archive
from evaluation.core.files import sha256_of
from evaluation.core.problems import Problem, ProblemCode
from evaluation.engines.prompts import prompt_remarks, template_of
from leaderboard.core.storage import deletion_lock, shared
from leaderboard.core.storage.store import Area, sync
from leaderboard.models import Team, User
from submissions.checkpoints.concurrency import checking_slot
from submissions.checkpoints.hub import HubModel
from submissions.core.errors import FileReport, Refused
from submissions.models import Checkpoint
from submissions.sandbox.processes import remove_old
from submissions.uploads.service import lock_for_reading

WRONG_CHECKPOINT_KIND = ProblemCode("wrong_checkpoint_kind", "A good checkpoint, which the chosen engine does not "
    "run.", "Choose the engine that runs it.")  # fmt: skip

#: Kinds of checkpoints in words.
KIND_NAMES = {
    CheckpointKind.SENTENCE_ENCODER: "a sentence encoder (one or two, with pooling)",
    CheckpointKind.STATIC_EMBEDDINGS: "static embeddings",
    CheckpointKind.SPARSE_ENCODER: "a sparse encoder (SPLADE and the like)",
    CheckpointKind.MULTI_VECTOR: "a multi-vector encoder (ColBERT)",
    CheckpointKind.CROSS_ENCODER: "a cross-encoder",
    CheckpointKind.SEQ2SEQ: "a sequence-to-sequence model (T5)",
    CheckpointKind.TERM_WEIGHTING: "a term weighter (DeepCT)",
    CheckpointKind.QUERY_AUGMENTATION: "an encoder with augmentation.safetensors (W and u)",
}
#: The folder of checkpoints that belong to no team: the site's own.
HOUSE = "house"
_PARTIAL = ".partial-"
#: The check that needs the libraries of models, which web processes do not have.
VERIFIED_BY_JOB = _(
    "Not checked here: whether names and shapes of the weights, the tokenizer, and the settings fit the library's own "
    "class. A job verifies that before it encodes anything, and so does `python -m evaluation pack` on your machine."
)
#: What is said of a checkpoint that was only checked.
_SUMMARISED = (
    "kind", "model_type", "parameters", "dimension", "maximum_length", "pooling", "similarity", "prompts",
)  # fmt: skip


Kinds = tuple[CheckpointKind, ...]


@dataclass(frozen=True, slots=True)
class CheckpointArchive:
    """An archive with a checkpoint: its name, where its bytes lie for now, and the pooling asked for, if any.

    `sha256` is of its bytes, where it was found as they came; `upload` names the upload that brought it in pieces.
    """

    name: str
    path: Path
    pooling: str = ""
    sha256: str | None = None
    upload: str = ""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """A rebuilt checkpoint whose files lie in their owner's folder; no row names it yet."""

    sha256: str
    file_name: str
    description: CheckpointDescription


def folder_of(checkpoint: Checkpoint) -> Path:
    """Return where the checkpoint's rebuilt files lie, on this host."""
    return shared.local(_folder(checkpoint.team, checkpoint.model_sha256))


def check_checkpoint(source: CheckpointArchive, wanted: Kinds = ()) -> FileReport:
    """The verdict on an archive, with every finding; nothing is stored. Raises Busy where too many are checked."""
    uploads = [source.upload] if source.upload else []
    with (
        lock_for_reading(uploads, shared=True),
        checking_slot(),
        _validated(source, wanted, without_weights=True) as (validation, _),
    ):
        model = _summary(validation, source.name)
        problems = (*validation.report.problems, *(remarks_on_prompts(model, source.name) if model else ()))
        pending = [str(VERIFIED_BY_JOB)] if model else []
        return FileReport(source.name, "", replace(validation.report, problems=problems), model, pending)


def remarks_on_prompts(model: Mapping[str, Any], name: str) -> list[Problem]:
    """What is to be known of a model's prompts before it runs with them, from its description and its name."""
    return prompt_remarks(model["kind"], model.get("prompts", {}), model.get("model_type", ""), name)


def prompt_template(model: Mapping[str, Any], name: str) -> str:
    """Return the family of models, of those whose cards say how texts begin, that a model is of; empty for others."""
    template = template_of(model.get("prompts", {}), model.get("model_type", ""), name)
    return template.label if template else ""


def _summary(validation: Validation, name: str) -> dict[str, Any]:
    """What a valid checkpoint is, by the names of its description; empty where it is none."""
    plan = validation.plan
    if plan is None:
        return {}
    described = asdict(plan.description)
    model = {key: described[key] for key in _SUMMARISED}
    return {**model, "prompt_template": prompt_template(model, name)}


def store_checkpoint(
    team: Team | None,
    source: CheckpointArchive,
    person: User | None,
    wanted: Kinds = (),
    hub: HubModel | None = None,
) -> Checkpoint:
    """Validate, rebuild and store an archive for its owner, once, for workers and commands, which wait for it.

    Args:
        team: the owner; None for the site itself.
        source: the archive.
        person: the person who brought it.
        wanted: the kinds that it may be of.
        hub: the model on the hub that it was fetched from.

    Raises Refused with every finding.
    """
    return record(_store_validated_files(team, source, wanted, _identity(source)), team, person, hub)


def store_files(team: Team | None, source: CheckpointArchive, wanted: Kinds = ()) -> StoredFiles:
    """Return the files of `store_checkpoint`, without the row, while somebody waits for an answer.

    It takes as long as copying a model: not in a transaction. Raises Refused with every finding, and Busy where
    too many are checked.
    """
    sha256 = _identity(source)
    if known := _find_stored(team, sha256, wanted):
        return known
    with checking_slot():
        return _store_validated_files(team, source, wanted, sha256)


def _store_validated_files(
    team: Team | None, source: CheckpointArchive, wanted: Kinds, sha256: str
) -> StoredFiles:
    # Perhaps it was sent twice, and stored while this one waited.
    if known := _find_stored(team, sha256, wanted):
        return known
    with _validated(source, wanted) as (validation, scratch):
        if not validation.report.valid:
            raise Refused.for_checkpoint(FileReport(source.name, "", validation.report))
        rebuilt = scratch / "rebuilt of it"
        description = rebuild(validation, rebuilt)
        _move_into_place(rebuilt, _folder(team, description.sha256))
    return StoredFiles(sha256, source.name, description)


def record(
    files: StoredFiles, team: Team | None, person: User | None, hub: HubModel | None = None
) -> Checkpoint:
    """Store the row of stored files; the same archive of the same owner is one checkpoint."""
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
    """What is known of the model, from its row."""
    return CheckpointDescription.of(checkpoint.description)


def _find_stored(team: Team | None, sha256: str, wanted: Kinds) -> StoredFiles | None:
    """What the owner has already of these bytes, as one of the wanted kinds, its files still there."""
    for row in Checkpoint.objects.filter(team=team, sha256=sha256):
        folder = folder_of(row)
        if wanted and describe(row).kinds.isdisjoint(wanted):
            continue
        if (folder / FILE_NAME).exists():
            os.utime(folder)  # the sweep leaves alone what is new
            return StoredFiles(sha256, row.file_name, describe(row))
    return None


def _identity(source: CheckpointArchive) -> str:
    """Return the archive's sha256; where a pooling was asked for, which makes another model of it, of both."""
    sha256 = source.sha256 or sha256_of(source.path)
    return hashlib.sha256(f"{sha256} {source.pooling}".encode()).hexdigest() if source.pooling else sha256


@contextmanager
def _validated(
    source: CheckpointArchive, wanted: Kinds, without_weights: bool = False
) -> Iterator[tuple[Validation, Path]]:
    """The verdict, and the scratch folder on the store's own disk that holds what the archive expanded to."""
    area = Path(settings.VAR) / Area.CHECKPOINTS.value
    area.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=area, prefix=_PARTIAL) as folder:
        scratch = Path(folder)
        named = scratch / (re.sub(r"[^\w.-]", "_", source.name)[-80:].lstrip(".") or "checkpoint")
        named.symlink_to(source.path.absolute())  # findings show the sender's name, not that of our copy
        unpacked = scratch / "unpacked of it"
        unpacked.mkdir()
        kinds, pooling = wanted or None, source.pooling
        yield validate_archive(named, unpacked, kinds, pooling, without_weights=without_weights), scratch


def in_words(kinds: Collection[CheckpointKind]) -> str:
    """Return the kinds of checkpoint that an engine runs."""
    every = len(kinds) == len(CheckpointKind)
    return "a checkpoint of any kind" if every else " or ".join(KIND_NAMES[kind] for kind in kinds)


def wrong_kind(name: str, kind: CheckpointKind | None, wanted: Kinds) -> Refused:
    """Return the refusal of a good checkpoint that the chosen engine does not run."""
    return Refused.of(
        WRONG_CHECKPOINT_KIND,
        f"{name} is {KIND_NAMES[kind] if kind else 'of another kind'}; the engine runs {in_words(wanted)}.",
        "Choose the engine that runs it, or send the checkpoint that this engine needs.",
    )


def _folder(team: Team | None, model_sha256: str) -> Path:
    owner = str(team.pk) if team is not None else HOUSE
    return Path(settings.VAR) / Area.CHECKPOINTS.value / owner / model_sha256


def _move_into_place(rebuilt: Path, target: Path) -> None:
    """Put the rebuilt files in place, whole and synced; the same model that is there already stays."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        rebuilt.rename(target)
    except OSError:  # it is there: a rename replaces an empty folder only
        if not (target / FILE_NAME).exists():
            raise
        os.utime(target)
        shutil.rmtree(rebuilt)
    sync(target.parent)
    shared.send(target)


def sweep_checkpoints(grace: float) -> int:
    """Remove the folders that no row names, and unfinished ones, untouched for `grace` seconds. Returns how many."""
    area = Path(settings.VAR) / Area.CHECKPOINTS.value
    named = {_folder(row.team, row.model_sha256) for row in Checkpoint.objects.select_related("team")}
    if deletion_lock.deletions_are_paused():  # by whoever copied rows that were gone when we asked
        return 0
    folders = [*area.glob(f"{_PARTIAL}*"), *(path for path in area.glob("[!.]*/*") if path not in named)]
    return remove_old([folder for folder in folders if folder.is_dir()], grace)
