"""Archives with checkpoints, taken apart into a scratch folder and validated there."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from evaluation.checkpoints import CheckpointKind, Validation, validate_folder
from evaluation.checkpoints.codes import CODES
from evaluation.errors import InvalidContent
from evaluation.formats.archives import Policy, open_archive

_POLICY = Policy(
    max_members=64, members_hint=CODES["too_many_files"], expansion_hint=CODES["archive_expansion"]
)


def validate_archive(
    path: Path, scratch: Path, wanted: Collection[CheckpointKind] | None, pooling: str = ""
) -> Validation:
    """The verdict on an archive, expanded into `scratch`, which is made and must outlive a rebuilding."""
    scratch.mkdir()
    try:
        with open_archive(path, _POLICY) as archive:
            targets = {name: scratch / name for name in archive.names}
            for target in targets.values():
                target.parent.mkdir(parents=True, exist_ok=True)
            archive.extract(targets)
    except InvalidContent as error:
        return Validation(error.report, None)
    return validate_folder(scratch, wanted, pooling)
