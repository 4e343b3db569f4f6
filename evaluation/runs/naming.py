"""What a run is called that came as a file and with nothing else said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluation.core.errors import InvalidContent
from evaluation.runs.stored import lines_of_run

#: Endings of run files, and of what compresses them.
_ENDINGS = (".gz", ".zst", ".bz2", ".run", ".txt", ".trec", ".res", ".tsv", ".csv", ".json", ".jsonl")


def first_tag(path: Path) -> str:
    """The sixth field of the run's first line, empty where it has none, or cannot be read."""
    try:
        with lines_of_run(path) as lines:
            first = next((line for _, line in lines if line.strip()), b"")
    except InvalidContent:
        return ""
    fields = first.split()
    return fields[5].decode("utf-8", "replace") if len(fields) == 6 else ""


def run_name(path: Path, tags: Sequence[str]) -> str:
    """The run's name: its tag (column six), or where it has none or several the file's name without known endings."""
    return tags[0] if len(tags) == 1 and tags[0].isprintable() and tags[0] else without_endings(path.name)


def without_endings(name: str) -> str:
    """The name of a file without the endings of run files and of compression."""
    while ending := next(
        (each for each in _ENDINGS if name.lower().endswith(each) and len(name) > len(each)), ""
    ):
        name = name[: -len(ending)]
    return name
