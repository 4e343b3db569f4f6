"""The checkpoints that the demo offers for trying the submit page: its sample, and one that is refused."""

from __future__ import annotations

from pathlib import Path

from leaderboard.datasets.files import keep_file
from leaderboard.importing.demo.sample_checkpoint import (
    ARCHIVE_NAME,
    REFUSED_NAME,
    archive_checkpoint,
    archive_refused,
)
from leaderboard.importing.examples_runs import ExampleRun as Example
from leaderboard.models import DatasetFile

Kind = DatasetFile.Kind


def keep_example_models(checkpoint: Path, work: Path) -> list[Example]:
    """Archive the sample checkpoint, and one with pickled weights, in the store; no row is written.

    `work` is a folder for files on the way. Offer what comes back with `example_runs.offer_example_runs`.
    """
    sample = keep_file(archive_checkpoint(checkpoint, work / ARCHIVE_NAME))
    refused = keep_file(archive_refused(checkpoint, work / REFUSED_NAME))
    return [
        Example(
            Kind.EXAMPLE_MODEL,
            ARCHIVE_NAME,
            sample,
            "The sample checkpoint, static embeddings made on this machine: upload it as it is, for the dense engine",
        ),
        Example(Kind.REFUSED_MODEL, REFUSED_NAME, refused),
    ]
