"""What a dataset offers as examples for trying the submit page.

Its baseline's run, cut to be small; for the demo also a run with mistakes, and two checkpoints, one to be refused.
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

#: Documents a query in an example run: 300 queries with the longest ids stay below what is checked at once.
EXAMPLE_DEPTH = 100
#: Lines of the run with mistakes.
BROKEN_LINES = 40

#: Its mistakes: 1-based line → (code of the validation report, the line made of its fields and those before it).
MISTAKES: dict[int, tuple[str, Callable[[list[str], list[str]], str]]] = {
    3: ("fields", lambda fields, before: " ".join(fields[:5])),
    7: ("score", lambda fields, before: " ".join([*fields[:4], "nan", fields[5]])),
    8: ("score", lambda fields, before: " ".join([*fields[:4], fields[4].replace(".", ","), fields[5]])),
    12: ("duplicate", lambda fields, before: " ".join([*fields[:2], before[2], *fields[3:]])),
    16: ("encoding", lambda fields, before: " ".join([*fields[:5], "caf\u00e9"])),
    20: ("fields", lambda fields, before: f"{fields[0]},{fields[2]},{fields[4]}"),
}


class ExampleFile(NamedTuple):
    """A run or a checkpoint in the store, not yet offered."""

    kind: DatasetFile.Kind
    name: str
    kept: StoredFile
    description: str = ""


def store_example_runs(dataset: Dataset, run: Path, work: Path) -> list[ExampleFile]:
    """Make the examples from the baseline's run (plain text with ranks from 1) and store them; no row is written.

    Call it outside of transactions, because it reads the whole run. `work` is a folder for temporary files. An empty
    run gives no example, because it would be refused as an upload.
    """
    if not run.stat().st_size:
        return []
    cut = truncate_run(run, work / "example-run.txt", EXAMPLE_DEPTH)
    examples = [
        ExampleFile(
            DatasetFile.Kind.EXAMPLE_RUN,
            f"{dataset.slug}.bm25.run.txt.gz",
            store_file(gzipped(cut, work / "example-run.gz")),
            f"BM25's run, the first {EXAMPLE_DEPTH} documents per query: upload it as it is to try the site",
        )
    ]
    if dataset.slug == DEMO_SLUG:
        broken = work / "broken-run.txt"
        write_broken_run(cut, broken)
        name = f"{dataset.slug}.broken.run.txt"
        examples.append(ExampleFile(DatasetFile.Kind.BROKEN_RUN, name, store_file(broken)))
    return examples


def store_example_models(checkpoint: Path, work: Path) -> list[ExampleFile]:
    """Archive the sample checkpoint, and one with pickled weights, in the store; no row is written.

    `work` is a folder for files on the way. Offer what comes back with `offer_example_runs`.
    """
    sample = store_file(archive_checkpoint(checkpoint, work / ARCHIVE_NAME))
    refused = store_file(archive_with_pickle(checkpoint, work / REFUSED_NAME))
    return [
        ExampleFile(
            DatasetFile.Kind.EXAMPLE_MODEL,
            ARCHIVE_NAME,
            sample,
            "The sample checkpoint, static embeddings made on this machine: upload it as it is, for the dense engine",
        ),
        ExampleFile(DatasetFile.Kind.REFUSED_MODEL, REFUSED_NAME, refused),
    ]


def offer_example_runs(version: DatasetVersion, examples: list[ExampleFile]) -> None:
    """Offer them with the version's files."""
    for example in examples:
        offer_file(version, example.kind, example.kept, example.name, example.description)


def truncate_run(run: Path, target: Path, depth: int) -> Path:
    """Write the lines of the run whose rank is at most `depth` to `target`, and return that."""
    with run.open("rb") as lines, target.open("wb") as file:
        file.writelines(line for line in lines if int(line.split(maxsplit=4)[3]) <= depth)
    return target


def write_broken_run(run: Path, target: Path) -> None:
    """Write the first lines of a good run to `target`, with MISTAKES in some."""
    with run.open(encoding="utf-8") as file:
        good = [[*line.split()[:5], "broken"] for line in islice(file, BROKEN_LINES)]
    lines = [" ".join(fields) for fields in good]
    for number, (_, spoil) in MISTAKES.items():
        if number <= len(lines):
            lines[number - 1] = spoil(good[number - 1], good[number - 2])
    target.write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
