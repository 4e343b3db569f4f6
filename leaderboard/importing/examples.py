"""Example files of a dataset for trying out the submission page.

Every dataset offers a truncated run of its baseline. The demo also offers a run with errors and two checkpoints, one
of which is rejected.
"""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from leaderboard.datasets.files import StoredFile, gzipped, offer_file, store_file
from leaderboard.importing.demo.sample_checkpoint import (
    ARCHIVE_NAME,
    REFUSED_NAME,
    archive_checkpoint,
    archive_with_pickle,
)
from leaderboard.importing.demo.stdlib_search import DEMO_SLUG
from leaderboard.models import Dataset, DatasetFile, DatasetVersion

#: Documents per query in an example run: small enough for the immediate check of 300 queries with long ids.
EXAMPLE_DEPTH = 100
#: Number of lines in the run with errors.
BROKEN_LINES = 40

#: Errors of that run: 1-based line → problem code, and a function of the line's and the previous line's fields.
MISTAKES: dict[int, tuple[str, Callable[[list[str], list[str]], str]]] = {
    3: ("fields", lambda fields, before: " ".join(fields[:5])),
    7: ("score", lambda fields, before: " ".join([*fields[:4], "nan", fields[5]])),
    8: ("score", lambda fields, before: " ".join([*fields[:4], fields[4].replace(".", ","), fields[5]])),
    12: ("duplicate", lambda fields, before: " ".join([*fields[:2], before[2], *fields[3:]])),
    16: ("encoding", lambda fields, before: " ".join([*fields[:5], "caf\u00e9"])),
    20: ("fields", lambda fields, before: f"{fields[0]},{fields[2]},{fields[4]}"),
}


class ExampleFile(NamedTuple):
    """A stored run or checkpoint that is not offered yet."""

    kind: DatasetFile.Kind
    name: str
    stored_file: StoredFile
    description: str = ""


def store_example_runs(dataset: Dataset, run: Path, work: Path) -> list[ExampleFile]:
    """Create and store example runs from the baseline's run (plain text with ranks from 1), without writing rows.

    The demo also gets a run with errors. Call this outside of transactions, because it reads the whole run. `work` is a
    folder for temporary files. An empty run gives no example, because it would be rejected as an upload.
    """
    if not run.stat().st_size:
        return []
    truncated_run = truncate_run(run, work / "example-run.txt", EXAMPLE_DEPTH)
    examples = [
        ExampleFile(
            DatasetFile.Kind.EXAMPLE_RUN,
            f"{dataset.slug}.bm25.run.txt.gz",
            store_file(gzipped(truncated_run, work / "example-run.gz")),
            f"BM25's run with {EXAMPLE_DEPTH} documents per query, ready to upload",
        )
    ]
    if dataset.slug == DEMO_SLUG:
        broken_run = work / "broken-run.txt"
        write_broken_run(truncated_run, broken_run)
        name = f"{dataset.slug}.broken.run.txt"
        examples.append(ExampleFile(DatasetFile.Kind.BROKEN_RUN, name, store_file(broken_run)))
    return examples


def store_example_models(checkpoint: Path, work: Path) -> list[ExampleFile]:
    """Archive and store the sample checkpoint, and a variant with pickled weights, without writing rows.

    `work` is a folder for temporary files. Offer the result with `offer_example_runs`.
    """
    sample_file = store_file(archive_checkpoint(checkpoint, work / ARCHIVE_NAME))
    rejected_file = store_file(archive_with_pickle(checkpoint, work / REFUSED_NAME))
    return [
        ExampleFile(
            DatasetFile.Kind.EXAMPLE_MODEL,
            ARCHIVE_NAME,
            sample_file,
            "A sample checkpoint for the dense engine (static embeddings), ready to upload",
        ),
        ExampleFile(DatasetFile.Kind.REFUSED_MODEL, REFUSED_NAME, rejected_file),
    ]


def offer_example_runs(version: DatasetVersion, examples: list[ExampleFile]) -> None:
    for example in examples:
        offer_file(version, example.kind, example.stored_file, example.name, example.description)


def truncate_run(run: Path, target: Path, depth: int) -> Path:
    """Write the lines with ranks up to `depth` to `target`, and return `target`."""
    with run.open("rb") as lines, target.open("wb") as file:
        file.writelines(line for line in lines if int(line.split(maxsplit=4)[3]) <= depth)
    return target


def write_broken_run(run: Path, target: Path) -> None:
    """Write the first BROKEN_LINES lines of a valid run to `target`, with the errors in MISTAKES."""
    with run.open(encoding="utf-8") as file:
        valid_fields = [[*line.split()[:5], "broken"] for line in islice(file, BROKEN_LINES)]
    lines = [" ".join(fields) for fields in valid_fields]
    for number, (_, make_line) in MISTAKES.items():
        if number <= len(lines):
            lines[number - 1] = make_line(valid_fields[number - 1], valid_fields[number - 2])
    target.write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
