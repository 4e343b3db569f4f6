"""Searching a collection in parts, in any process each, and merging what they find to the ranking of one search.

A part is some of the encoded shards, where the score of a document depends on that document alone (`DividedEngine`), or
some of the queries for any other engine. It leaves a run whose first line says what it is a part of. Parts of shards
share what is learned from all of them, such as centroids. Ties between documents of different parts are decided as in
one ranking, by their ids.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np

from evaluation.archives.compression import open_lines
from evaluation.core.problems import InvalidContent, Problem
from evaluation.core.writing import damage_of, make_folder
from evaluation.engines.base import (
    InvalidParameter,
    Progress,
    SearchResult,
    ShardedEngine,
    ignore,
    shard_name,
)

#: What the shards of a folder are made from (`corpus_encoding.claim_shards`).
MADE_FROM = "made-from.json"
_LEARNED = "learned"
_HEADER = "# part: "
#: Digits of the number of lines, at most.
_PLACES = 15


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
        """Return the part that a text such as "2/8" names. Raises InvalidParameter."""
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
    #: How many lines follow.
    lines: int = 0

    def to_line(self) -> str:
        """The line, a comment to everybody else who reads runs. Its length does not depend on how many lines follow."""
        shortest = json.dumps(asdict(replace(self, lines=0)))
        return f"{_HEADER}{json.dumps(asdict(self)).ljust(len(shortest) + _PLACES)}\n"

    @classmethod
    def read(cls, path: Path) -> PartOfRun:
        """The first line of a file. Raises InvalidContent where it is none of a part, or not all of it follows."""
        lines = open_lines(path)
        try:
            part = cls(**json.loads(next(lines, b"").removeprefix(_HEADER.encode())))
        except (ValueError, TypeError):
            part = None
        if part is None or not part._is_possible():
            hint = "Give the files that `retrieve --part` wrote, all with this version."
            raise _unusable("not_a_part", "this is no part of a run", hint)
        if (found := sum(1 for _ in lines)) != part.lines:
            what = f"{found:,} lines follow the first one, and not {part.lines:,}"
            raise _unusable("damaged_part", what, "Copy or make this part again.")
        return part

    def _is_possible(self) -> bool:
        """Return whether all values are of their types, and in their ranges."""
        types = [int, int, int, str, str, int]
        right = list(map(type, astuple(self))) == types and 1 <= self.part <= self.parts
        return right and self.depth > 0 and self.tag.split() == [self.tag]


def learned_for(
    engine: DividedEngine, shards: Path, count: int, parameters: dict[str, Any], own: Path
) -> Path:
    """Return the folder of what all parts share, kept beside the `count` shards: whichever part comes first makes it.

    An engine that learns nothing gets the new folder `own`. Raises InvalidParameter where shards of other parts are
    not there yet.
    """
    if not engine.learns:
        own.mkdir()
        return own
    note = shards / MADE_FROM
    made_from = note.read_text("utf-8") if note.exists() else ""
    name = sha256(json.dumps([parameters, count, made_from], sort_keys=True).encode()).hexdigest()[:16]
    kept = shards / f"{_LEARNED}-{name}"
    if not kept.is_dir():
        folders = [shards / shard_name(number) for number in range(count)]
        missing = [folder.name for folder in folders if not folder.exists()]
        if missing:
            raise InvalidParameter(
                f"Of {count:,} shards {len(missing):,} are not in {shards} yet, the first is {missing[0]}: this index "
                "is learned from all of them. Run `encode` for each part before."
            )
        check_whole(folders)
        make_folder(kept, partial(engine.learn, folders))
    check_whole([kept])
    return kept


def check_whole(folders: Iterable[Path]) -> None:
    """Raise InvalidContent where files of these folders, as far as they are there, have lost bytes."""
    damaged = [f"{folder} ({damage})" for folder in folders if (damage := damage_of(folder))]
    if damaged:
        hint = "Remove these folders, and give the same command again: it makes what is not there."
        raise _unusable("damaged_folder", f"not whole: {', '.join(damaged)}", hint)


def merge_results(found: Sequence[SearchResult], depth: int) -> SearchResult:
    """Return what one search of all parts finds for a query, from what each part found. Raises InvalidContent."""
    ids = [name for ranking in found for name in ranking.document_ids]
    scores = np.concatenate([ranking.scores for ranking in found])
    if len(set(ids)) < len(ids):
        what = f"two parts have the same document for query {found[0].query_id!r}"
        raise _unusable("overlapping_parts", what, "Make all parts from the same corpus and shards.")
    return SearchResult.ranked(found[0].query_id, ids, scores, depth)


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
    headers: list[PartOfRun] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            headers.append(PartOfRun.read(path))
        except InvalidContent as error:
            problems += [
                replace(each, message=f"{path.name}: {each.message}") for each in error.report.problems
            ]
    if problems:
        raise InvalidContent.of(*problems)
    first = headers[0]
    numbers = sorted(header.part for header in headers)
    if any((one.parts, one.depth, one.whole) != (first.parts, first.depth, first.whole) for one in headers):
        raise _unusable(
            "other_run",
            "the files are parts of different runs",
            "Engine, model, parameters, corpus, queries, depth and number of parts have to be the same.",
        )
    if not len(numbers) == len(set(numbers)) == first.parts:
        given = ", ".join(map(str, numbers))
        raise _unusable("missing_parts", f"parts {given} are given, of {first.parts}", "Give each part once.")
    return first


def _rankings(path: Path) -> Iterator[SearchResult]:
    """Yield the rankings of a part, in its order. Raises InvalidContent for a line that is none of a run."""
    for query, rows in groupby(_rows(path), itemgetter(0)):
        _, ids, scores = zip(*rows, strict=True)
        yield SearchResult(query, list(ids), np.array(scores, np.float32))


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    """Query, document and score of each line behind the first one."""
    for number, line in enumerate(islice(open_lines(path), 1, None), 2):
        try:
            query, _, document, _, score, _ = line.split()
            yield str(query, "utf-8"), str(document, "utf-8"), float(score)
        except ValueError:
            what = f"{path.name}: line {number:,} is none of a run"
            raise _unusable("damaged_part", what, "Copy or make this part again.") from None


def _unusable(code: str, message: str, hint: str) -> InvalidContent:
    return InvalidContent.of(Problem("error", code, 1, message, hint))
