"""A dataset of the size of MS MARCO's topics, and runs of 100 MB on it, without a file for each of them.

Two rankings of every query are written once. A sender's run takes one or the other for each query, by a generator of
its own, so all runs differ, have the same length, and are read from the page cache while they are sent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATASET = "load"
QUERIES = 2_000
#: Documents of a query in a large run. Lines have 50 bytes: 100 MB.
DEPTH, SMALL_DEPTH = 1_000, 10
JUDGED = 40
VARIANTS = 2
#: Lists of scores that queries have one of: enough that files compress by a factor of 3 to 7, as real runs do.
SCORINGS = 64


def write_collection(folder: Path) -> None:
    """Queries and judgements in BEIR's layout; there are no documents."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "queries.jsonl").open("w") as queries:
        for query in range(QUERIES):
            text = f"what is known of subject number {query}"
            queries.write(json.dumps({"_id": _query(query), "text": text}) + "\n")
    (folder / "qrels").mkdir(exist_ok=True)
    with (folder / "qrels" / "test.tsv").open("w") as judgements:
        judgements.write("query-id\tcorpus-id\tscore\n")
        for query in range(QUERIES):
            choose = random.Random(query)
            for document in choose.sample(range(2 * DEPTH), JUDGED):
                judgements.write(f"{_query(query)}\t{_document(query, document)}\t{choose.randint(0, 2)}\n")


@dataclass(frozen=True)
class Blocks:
    """The two rankings of every query: files whose blocks, one a query, have the same length."""

    paths: Sequence[Path]
    block_bytes: int

    @property
    def run_bytes(self) -> int:
        """Of every run that is sent."""
        return self.block_bytes * QUERIES

    def run(self, number: int) -> Iterator[bytes]:
        """The blocks of one sender's run, in the order of the queries."""
        choose = random.Random(number)
        files = [path.open("rb") for path in self.paths]
        try:
            for query in range(QUERIES):
                file = choose.choice(files)
                file.seek(query * self.block_bytes)
                yield file.read(self.block_bytes)
        finally:
            for file in files:
                file.close()


def write_blocks(folder: Path, depth: int = DEPTH) -> Blocks:
    """Write both rankings of every query."""
    folder.mkdir(parents=True, exist_ok=True)
    random_ = np.random.default_rng(1)
    endings = [_endings(random_.random(depth)) for _ in range(SCORINGS)]
    numbers = [f"{number:07d}" for number in range(2 * DEPTH)]
    paths, length = [], 0
    for variant in range(VARIANTS):
        path = folder / f"ranking-{depth}-{variant}.txt"
        with path.open("wb") as file:
            for query in range(QUERIES):
                begin = f"{_query(query)} Q0 {query:05d}-"
                order = random_.permutation(len(numbers))[:depth].tolist()
                ends = endings[int(random_.integers(SCORINGS))]
                lines = [f"{begin}{numbers[number]}{end}" for number, end in zip(order, ends, strict=True)]
                length = file.write("".join(lines).encode())
        paths.append(path)
    return Blocks(paths, length)


def _endings(steps: NDArray[np.float64]) -> list[str]:
    """What stands after the document in each line of a query: its rank, a score below the one before, the tag."""
    scores = 60.0 - np.cumsum(0.005 + 0.05 * steps)
    return [f" {rank:04d} {score:09.6f} large-load\n" for rank, score in enumerate(scores.tolist(), start=1)]


def _query(number: int) -> str:
    return f"q{number:05d}"


def _document(query: int, number: int) -> str:
    return f"{query:05d}-{number:07d}"
