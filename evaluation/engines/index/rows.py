"""What a shard holds of each document, as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from evaluation.engines.base import Progress, ignore


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a row for each document."""
    with path.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def read_rows(paths: Sequence[Path], progress: Progress = ignore) -> Iterator[Any]:
    """The rows that `write_rows` left for each shard, in their order."""
    for number, path in enumerate(paths, 1):
        with path.open("rb") as file:
            yield from map(orjson.loads, file)
        progress(number / len(paths))
