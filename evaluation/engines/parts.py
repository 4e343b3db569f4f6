"""Searching a collection in parts, in any process each, and merging what they find to the ranking of one search.

A part is some of the encoded shards, where the score of a document depends on that document alone (`DividedEngine`), or
some of the queries for any other engine. It leaves a run whose first line says what it is a part of. Parts of shards
share what is learned from all of them, such as centroids. Ties between documents of different parts are decided as in
one ranking, by their ids.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np

from evaluation.archives.compression import open_lines
from evaluation.core.errors import InvalidContent
from evaluation.core.order import trec_order
from evaluation.core.problems import Problem
from evaluation.engines.base import (
    InvalidParameter,
    Progress,
    SearchResult,
    ShardedEngine,
    ignore,
    shard_name,
)

_LEARNED = "learned"
_HEADER = b"# part: "


class DividedEngine(ShardedEngine):
    """An engine whose shards can be indexed and searched in parts."""

    @property
    def learns(self) -> bool:
        """Whether there is something that is learned from all shards, and `learn` leaves."""
        return False

    @property
    def divides_shards(self) -> bool:
        """Whether parts are of shards; else they are of queries, as those of other engines."""
        return True

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        """Write into the empty `folder` what the indexes of all parts share, learned from all shards."""

    @abstractmethod
    def build_part(
        self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore
    ) -> None:
        """As `build_from_shards`, with what `learn` left for a collection that has these shards."""

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index all encoded shards, in corpus order, into the empty `folder`, and open the index."""
        learned = folder / _LEARNED
        learned.mkdir()
        self.learn(shards, learned)
        self.build_part(shards, learned, folder, progress)


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` (from 1) of `count` parts of about the same size."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The part that a text such as "2/8" names. Raises InvalidParameter."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        number, count = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise InvalidParameter(f"There is no part {text!r}; the second of eight is 2/8.")
        return cls(number, count)

    def of(self, total: int, what: str) -> range:
        """Which of `total` things are in this part. Raises InvalidParameter where there is none for each part."""
        if total < self.count:
            raise InvalidParameter(f"There are {total:,} {what}, too few for {self.count:,} parts.")
        return range((self.number - 1) * total // self.count, self.number * total // self.count)


@dataclass(frozen=True, slots=True)
class PartOfRun:
    """What the first line of a part's run says; `whole` is all that parts of one run have in common."""

    part: int
    parts: int
    depth: int
    tag: str
    whole: str

    def to_line(self) -> str:
        """The line, a comment to everybody else who reads runs."""
        return f"{_HEADER.decode()}{json.dumps(asdict(self))}\n"

    @classmethod
    def read(cls, path: Path) -> PartOfRun:
        """The first line of a file. Raises InvalidContent where it is none of a part."""
        line = next(iter(open_lines(path)), b"")
        try:
            return cls(**json.loads(line[len(_HEADER) :]))
        except (ValueError, TypeError):
            raise _unusable(
                "not_a_part",
                f"{path.name} is no part of a run",
                "Give the files that `retrieve --part` wrote.",
            ) from None


def learned_for(
    engine: DividedEngine, shards: Path, count: int, parameters: dict[str, Any], own: Path
) -> Path:
    """The folder of what all parts share, kept beside the `count` shards: whichever part comes first makes it.

    `own` is an empty folder of this process. Raises InvalidParameter where shards of other parts are not there yet.
    """
    if not engine.learns:
        return own
    name = sha256(json.dumps([parameters, count], sort_keys=True).encode()).hexdigest()[:16]
    kept = shards / f"{_LEARNED}-{name}"
    if not kept.is_dir():
        folders = [shards / shard_name(number) for number in range(count)]
        missing = [folder.name for folder in folders if not folder.exists()]
        if missing:
            raise InvalidParameter(
                f"Of {count:,} shards {len(missing):,} are not in {shards} yet, the first is {missing[0]}: this index "
                "is learned from all of them. Run `encode` for each part before."
            )
        partial = shards / f"{_LEARNED}-{name}.part-{os.getpid()}"
        partial.mkdir()
        engine.learn(folders, partial)
        try:
            partial.rename(kept)
        except OSError:  # another part was quicker, and what it made is what all have to use
            shutil.rmtree(partial)
    return kept


def merge_results(found: Sequence[SearchResult], depth: int) -> SearchResult:
    """What one search of all parts finds for a query, from what each part found. Raises InvalidContent."""
    ids = [name for ranking in found for name in ranking.document_ids]
    scores = np.concatenate([ranking.scores for ranking in found])
    if len(set(ids)) < len(ids):
        what = f"two parts have the same document for query {found[0].query_id!r}"
        raise _unusable("overlapping_parts", what, "Make all parts from the same corpus and shards.")
    order = trec_order(ids, scores)[:depth]
    return SearchResult(found[0].query_id, [ids[place] for place in order.tolist()], scores[order])


def merge_runs(
    paths: Sequence[Path], queries: Sequence[str], depth: int, write: Callable[[SearchResult], None]
) -> None:
    """Give `write` the ranking of each of these queries, from the runs of all parts. One query is in memory at a time.

    Raises InvalidContent where a part names another query.
    """
    streams = [_rankings(path) for path in paths]
    waiting = [next(stream, None) for stream in streams]
    for query in queries:
        found = [ranking for ranking in waiting if ranking is not None and ranking.query_id == query]
        if found:
            write(merge_results(found, depth))
            waiting = [
                next(stream, None) if ranking is not None and ranking.query_id == query else ranking
                for stream, ranking in zip(streams, waiting, strict=True)
            ]
    left = next((ranking for ranking in waiting if ranking is not None), None)
    if left is not None:
        what = f"a part has query {left.query_id!r}, which is not among the queries, or not in their order"
        raise _unusable("other_queries", what, "Give the queries that the parts were made with.")


def read_parts(paths: Sequence[Path]) -> PartOfRun:
    """What all parts have in common. Raises InvalidContent where one is missing, given twice, or of another run."""
    headers = [PartOfRun.read(path) for path in paths]
    first = headers[0]
    numbers = sorted(header.part for header in headers)
    if any((one.parts, one.depth, one.whole) != (first.parts, first.depth, first.whole) for one in headers):
        raise _unusable(
            "other_run",
            "the files are parts of different runs",
            "Engine, parameters, queries, depth and number of parts have to be the same.",
        )
    if numbers != list(range(1, first.parts + 1)):
        given = ", ".join(map(str, numbers))
        raise _unusable("missing_parts", f"parts {given} are given, of {first.parts}", "Give each part once.")
    return first


def _rankings(path: Path) -> Iterator[SearchResult]:
    """The rankings of a run of ours, in its order."""
    rows = (line.split() for line in open_lines(path) if not line.startswith(b"#"))
    for query, lines in groupby(rows, itemgetter(0)):
        ids, scores = zip(*((str(line[2], "utf-8"), float(line[4])) for line in lines), strict=True)
        yield SearchResult(str(query, "utf-8"), list(ids), np.array(scores, np.float32))


def _unusable(code: str, message: str, hint: str) -> InvalidContent:
    return InvalidContent.of(Problem("error", code, 1, message, hint))
