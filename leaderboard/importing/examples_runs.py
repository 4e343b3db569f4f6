"""The runs that a dataset offers as examples: its baseline's, cut to be small, and for the demo one with mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from leaderboard.core.storage.gzip import gzipped
from leaderboard.datasets.files import KeptFile, keep_file, offer_kept
from leaderboard.importing.demo.broken_run import write_broken_run
from leaderboard.importing.demo.collection import DEMO_SLUG
from leaderboard.models import Dataset, DatasetFile, DatasetVersion

#: Documents a query in an example run: 300 queries with the longest ids stay below what is checked at once.
EXAMPLE_DEPTH = 100


class ExampleRun(NamedTuple):
    """A run in the store, not yet offered."""

    kind: DatasetFile.Kind
    name: str
    kept: KeptFile
    description: str = ""


def keep_example_runs(dataset: Dataset, run: Path, work: Path) -> list[ExampleRun]:
    """Make the examples from the baseline's run (plain text with ranks from 1) and store them; no row is written.

    It takes as long as reading the run, so not inside a transaction. `work` is a folder for files on the way.
    """
    cut = cut_run(run, work / "example-run.txt", EXAMPLE_DEPTH)
    examples = [
        ExampleRun(
            DatasetFile.Kind.EXAMPLE_RUN,
            f"{dataset.slug}.bm25.run.txt.gz",
            keep_file(gzipped(cut, work / "example-run.gz")),
            f"BM25's run, cut to {EXAMPLE_DEPTH} documents a query to be small: upload it as it is, to try the site",
        )
    ]
    if dataset.slug == DEMO_SLUG:
        broken = work / "broken-run.txt"
        write_broken_run(cut, broken)
        name = f"{dataset.slug}.broken.run.txt"
        examples.append(ExampleRun(DatasetFile.Kind.BROKEN_RUN, name, keep_file(broken)))
    return examples


def offer_example_runs(version: DatasetVersion, examples: list[ExampleRun]) -> None:
    """Offer them with the version's files."""
    for example in examples:
        offer_kept(version, example.kind, example.kept, example.name, example.description)


def cut_run(run: Path, target: Path, depth: int) -> Path:
    """Write the lines of the run whose rank is at most `depth` to `target`, and return that."""
    with run.open("rb") as lines, target.open("wb") as file:
        file.writelines(line for line in lines if int(line.split(maxsplit=4)[3]) <= depth)
    return target
