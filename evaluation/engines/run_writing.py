"""Rankings written as a run that appears when it is complete, one for each variant, or kept to go on searching.

A part of a search leaves a run whose first line says what it is a part of; the runs of all parts are merged to the
ranking of one search. Ties between documents of different parts are decided as in one ranking, by their ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import TextIO

import numpy as np
import orjson

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import read_queries
from evaluation.core.problems import InvalidContent, Problem
from evaluation.core.writing import appearing, complete_or_absent
from evaluation.engines.base import SearchResult

#: The label under which an engine without variants has its ranking.
MAIN = ""
#: Queries, and documents of each, by which the loss of computing in fewer bits is found.
SAMPLED_QUERIES, SAMPLED_DOCUMENTS = 100, 20
_HEADER = "# part: "
#: Digits of the number of lines, at most.
_PLACES = 15


def variant_paths(labels: Sequence[str], out: Path) -> dict[str, Path]:
    """Where each variant's run is written: the main one, the last, to `out`; others beside it under their labels."""
    stem, dot, endings = out.name.partition(".")
    paths = {}
    for label in labels:
        letters = "".join(character if character.isalnum() else "-" for character in label)
        paths[label] = out.with_name(f"{stem}.{letters}{dot}{endings}")
    if labels:
        paths[labels[-1]] = out
    return paths


def run_lines(ranking: SearchResult, tag: str) -> str:
    """Return the ranking as lines of a TREC run: query, Q0, document, rank from 1, score, tag.

    Nine significant digits are what it takes to read every float32 back as it was, so that the written scores have
    exactly the order, and the ties, of the ranking.
    """
    query = ranking.query_id
    return "".join(
        [
            f"{query} Q0 {document} {rank} {score:.9g} {tag}\n"
            for rank, (document, score) in enumerate(
                zip(ranking.document_ids, ranking.scores.tolist(), strict=True), 1
            )
        ]
    )


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
            raise unusable("not_a_part", "this is no part of a run", hint)
        if (found := sum(1 for _ in lines)) != part.lines:
            what = f"{found:,} lines follow the first one, and not {part.lines:,}"
            raise unusable("damaged_part", what, "Copy or make this part again.")
        return part

    def _is_possible(self) -> bool:
        """Return whether all values are of their types, and in their ranges."""
        types = [int, int, int, str, str, int]
        right = list(map(type, astuple(self))) == types and 1 <= self.part <= self.parts
        return right and self.depth > 0 and self.tag.split() == [self.tag]


class RunWriter:
    """Writes rankings as a run, or as a part of one, into a file that is `opened`; and counts them."""

    def __init__(
        self,
        tag: str,
        depth: int,
        drop_self_matches: bool,
        part: PartOfRun | None = None,
        excluded: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._file: TextIO
        self._part = part
        self._tag = tag
        self._drop_self_matches = drop_self_matches
        self._depth = depth
        self._excluded = excluded or {}
        most = max(map(len, self._excluded.values()), default=0)
        #: How deep to search, so that enough is left when documents of a query are left out.
        self.depth_to_search = depth + drop_self_matches + most
        self.lines = 0
        self.empty_rankings = 0
        #: The rankings of the first queries, as far as their loss by precision is found from them.
        self.first: list[SearchResult] = []

    @contextmanager
    def opened(self, path: Path) -> Iterator[RunWriter]:
        """Ready to write; the file appears when all is written."""
        with complete_or_absent(path, self._heading) as self._file:
            yield self

    def _heading(self) -> str:
        return replace(self._part, lines=self.lines).to_line() if self._part else ""

    def write(self, ranking: SearchResult) -> None:
        """Write one ranking, without what is left out of it, and cut to the depth."""
        documents, scores = ranking.document_ids, ranking.scores
        left_out = {*self._excluded.get(ranking.query_id, ())}
        if self._drop_self_matches:
            left_out.add(ranking.query_id)
        if not left_out.isdisjoint(documents):
            places = [place for place, name in enumerate(documents) if name not in left_out]
            documents, scores = [documents[place] for place in places], scores[places]
        kept = SearchResult(ranking.query_id, documents[: self._depth], scores[: self._depth])
        self._file.write(run_lines(kept, self._tag))
        self.lines += len(kept.document_ids)
        self.empty_rankings += not kept.document_ids
        if len(self.first) < SAMPLED_QUERIES:
            best = slice(SAMPLED_DOCUMENTS)
            self.first.append(SearchResult(kept.query_id, kept.document_ids[best], kept.scores[best]))


Rankings = list[Mapping[str, SearchResult]]


class KeptRankings:
    """Rankings of groups of queries, kept in a folder, so that an interrupted search goes on; None keeps nothing.

    Scores come back as the float32 that they were.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, number: int, search: Callable[[], Rankings]) -> tuple[Rankings, float]:
        """Return what `search` finds for the group of this number, now or before, and the seconds that it took.

        A file that cannot be read, such as one that a lost machine left empty, is written again.
        """
        path = self._folder and self._folder / f"{number:06d}.json"
        if path and path.exists():
            try:
                kept = orjson.loads(path.read_bytes())
                return [_read_rankings(row) for row in kept["rankings"]], kept["seconds"]
            except (ValueError, KeyError, TypeError, AttributeError):
                path.unlink()
        started = perf_counter()
        found = search()
        seconds = perf_counter() - started
        if path:
            rows = [
                {
                    label: [each.query_id, each.document_ids, each.scores.tolist()]
                    for label, each in row.items()
                }
                for row in found
            ]
            with appearing(path) as unfinished:
                unfinished.write_bytes(orjson.dumps({"seconds": seconds, "rankings": rows}))
        return found, seconds


def _read_rankings(row: Mapping[str, tuple[str, list[str], list[float]]]) -> dict[str, SearchResult]:
    if any(len(ids) != len(scores) for _, ids, scores in row.values()):
        raise ValueError("there is not one score for each document")
    return {
        label: SearchResult(query, ids, np.array(scores, np.float32))
        for label, (query, ids, scores) in row.items()
    }


def merge(parts: Sequence[Path], queries: Path, out: Path) -> int:
    """Merge the runs of all parts to the run of one search, whose bytes these are; return how many lines it has.

    Raises InvalidContent where they are not the parts of one run over these queries.
    """
    header = read_parts(parts)
    with RunWriter(header.tag, header.depth, drop_self_matches=False).opened(out) as writer:
        merge_runs(parts, [query.id for query in read_queries(queries)], header.depth, writer.write)
    return writer.lines


def merge_results(found: Sequence[SearchResult], depth: int) -> SearchResult:
    """Return what one search of all parts finds for a query, from what each part found. Raises InvalidContent."""
    ids = [name for ranking in found for name in ranking.document_ids]
    scores = np.concatenate([ranking.scores for ranking in found])
    if len(set(ids)) < len(ids):
        what = f"two parts have the same document for query {found[0].query_id!r}"
        raise unusable("overlapping_parts", what, "Make all parts from the same corpus and shards.")
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
        raise unusable("other_queries", what, "Give the queries that the parts were made with.")


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
        raise unusable(
            "other_run",
            "the files are parts of different runs",
            "Engine, model, parameters, corpus, queries, depth and number of parts have to be the same.",
        )
    if not len(numbers) == len(set(numbers)) == first.parts:
        given = ", ".join(map(str, numbers))
        raise unusable("missing_parts", f"parts {given} are given, of {first.parts}", "Give each part once.")
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
            raise unusable("damaged_part", what, "Copy or make this part again.") from None


def unusable(code: str, message: str, hint: str) -> InvalidContent:
    return InvalidContent.of(Problem("error", code, 1, message, hint))
