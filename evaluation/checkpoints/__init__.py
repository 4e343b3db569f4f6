"""Uploaded model checkpoints: validated without loading anything, then rebuilt file by file."""

from evaluation.checkpoints.codes import CODES
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import (
    Validation,
    open_checkpoint,
    rebuild,
    validate_archive,
    validate_folder,
)

__all__ = [
    "CODES",
    "CheckpointDescription",
    "CheckpointKind",
    "Validation",
    "open_checkpoint",
    "rebuild",
    "validate_archive",
    "validate_folder",
]
