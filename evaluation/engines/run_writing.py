"""Writing of runs, storage of intermediate rankings, and merging of the runs of parts.

The run of a part starts with a line that describes the whole run. Merging the runs of all parts yields the ranking of
a single search, in which ties between documents of different parts are broken by id.
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
from evaluation.core.writing import open_atomically, replace_on_success
from evaluation.engines.base import SearchResult

#: Label of the only ranking of an engine without variants.
MAIN = ""
#: Maximum numbers of queries and of documents per query for measuring the loss from lower precision.
SAMPLED_QUERIES, SAMPLED_DOCUMENTS = 100, 20
_HEADER = "# part: "
#: Maximum number of digits of the number of lines.
_COUNT_DIGITS = 15


def variant_paths(labels: Sequence[str], out: Path) -> dict[str, Path]:
    """Return the path of each variant's run.

    The main run, which is the last, is written to `out`, and the others to files next to it.
    """
    stem, dot, endings = out.name.partition(".")
    paths = {}
    for label in labels:
        letters = "".join(letter if letter.isalnum() else "-" for letter in label)
        paths[label] = out.with_name(f"{stem}.{letters}{dot}{endings}")
    if labels:
        paths[labels[-1]] = out
    return paths


def run_lines(ranking: SearchResult, tag: str) -> str:
    """Format a ranking as lines of a TREC run: query, Q0, document, rank from 1, score, tag.

    Nine significant digits represent every float32 exactly, so that the written scores have the same order and ties
    as the ranking.
    """
    query = ranking.query_id
    return "".join(
        [
            f"{query} Q0 {document} {rank} {score:.9g} {tag}\n"
            for rank, (document, score) in enumerate(zip(ranking.document_ids, ranking.scores.tolist(), strict=True), 1)
        ]
    )


@dataclass(frozen=True, slots=True)
class PartOfRun:
    """Header of a part's run. `whole` identifies the run to which the parts belong."""

    part: int
    parts: int
    depth: int
    tag: str
    whole: str
    #: Number of lines after the header.
    lines: int = 0

    def to_line(self) -> str:
        """Format the header as a comment. Its length does not depend on the number of lines."""
        shortest = json.dumps(asdict(replace(self, lines=0)))
        return f"{_HEADER}{json.dumps(asdict(self)).ljust(len(shortest) + _COUNT_DIGITS)}\n"

    @classmethod
    def read(cls, path: Path) -> PartOfRun:
        """Read the header of a file. Raises InvalidContent if it is invalid or the number of lines is wrong."""
        lines = open_lines(path)
        try:
            part = cls(**json.loads(next(lines, b"").removeprefix(_HEADER.encode())))
        except (ValueError, TypeError):
            part = None
        if part is None or not part._is_valid():
            hint = "Use files that `retrieve --part` wrote, all with this version."
            raise refusal("not_a_part", "the file is not a part of a run", hint)
        if (line_count := sum(1 for _ in lines)) != part.lines:
            message = f"{line_count:,} lines follow the first one instead of {part.lines:,}"
            raise refusal("damaged_part", message, "Copy or create this part again.")
        return part

    def _is_valid(self) -> bool:
        """Return whether all values have valid types and ranges."""
        types = [int, int, int, str, str, int]
        are_types_valid = list(map(type, astuple(self))) == types and 1 <= self.part <= self.parts
        return are_types_valid and self.depth > 0 and self.tag.split() == [self.tag]


class RunWriter:
    """Writes rankings as a run or as a part of one, and counts lines and empty rankings."""

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
        most_exclusions = max(map(len, self._excluded.values()), default=0)
        #: Search depth at which enough documents remain after exclusions.
        self.depth_to_search = depth + drop_self_matches + most_exclusions
        self.lines = 0
        self.empty_rankings = 0
        #: Top documents of the first queries, for measuring the loss from lower precision.
        self.first_rankings: list[SearchResult] = []

    @contextmanager
    def open_file(self, path: Path) -> Iterator[RunWriter]:
        """Open a file for writing. It appears when the block ends successfully."""
        with open_atomically(path, self._heading) as self._file:
            yield self

    def _heading(self) -> str:
        return replace(self._part, lines=self.lines).to_line() if self._part else ""

    def write(self, ranking: SearchResult) -> None:
        """Write a ranking without its excluded documents, truncated to the depth, and count its lines."""
        documents, scores = ranking.document_ids, ranking.scores
        exclusions = {*self._excluded.get(ranking.query_id, ())}
        if self._drop_self_matches:
            exclusions.add(ranking.query_id)
        if not exclusions.isdisjoint(documents):
            indices = [index for index, name in enumerate(documents) if name not in exclusions]
            documents, scores = [documents[index] for index in indices], scores[indices]
        output = SearchResult(ranking.query_id, documents[: self._depth], scores[: self._depth])
        self._file.write(run_lines(output, self._tag))
        self.lines += len(output.document_ids)
        self.empty_rankings += not output.document_ids
        if len(self.first_rankings) < SAMPLED_QUERIES:
            best = slice(SAMPLED_DOCUMENTS)
            self.first_rankings.append(SearchResult(output.query_id, output.document_ids[best], output.scores[best]))


Rankings = list[Mapping[str, SearchResult]]


class RankingStore:
    """Rankings of groups of queries that are stored in a folder, so that an interrupted search can continue.

    Without a folder, the rankings are not stored. Scores are restored exactly.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, number: int, search: Callable[[], Rankings]) -> tuple[Rankings, float]:
        """Return the stored rankings of a group with the seconds that they took, or search and store them.

        Unreadable files, such as empty files after a crash, are replaced.
        """
        path = self._folder and self._folder / f"{number:06d}.json"
        if path and path.exists():
            try:
                stored_row = orjson.loads(path.read_bytes())
                return [_read_rankings(row) for row in stored_row["rankings"]], stored_row["seconds"]
            except (ValueError, KeyError, TypeError, AttributeError):
                path.unlink()
        start = perf_counter()
        rankings = search()
        seconds = perf_counter() - start
        if path:
            rows = [
                {
                    label: [ranking.query_id, ranking.document_ids, ranking.scores.tolist()]
                    for label, ranking in row.items()
                }
                for row in rankings
            ]
            with replace_on_success(path) as unfinished:
                unfinished.write_bytes(orjson.dumps({"seconds": seconds, "rankings": rows}))
        return rankings, seconds


def _read_rankings(row: Mapping[str, tuple[str, list[str], list[float]]]) -> dict[str, SearchResult]:
    """Return the rankings of a stored row by label. Raises ValueError for a missing score."""
    if any(len(ids) != len(scores) for _, ids, scores in row.values()):
        raise ValueError("the numbers of documents and scores differ")
    return {
        label: SearchResult(query, ids, np.array(scores, np.float32)) for label, (query, ids, scores) in row.items()
    }


def merge(parts: Sequence[Path], queries: Path, out: Path) -> int:
    """Merge the runs of all parts into one, which is identical to the run of a single search.

    Returns the number of lines. Raises InvalidContent if the files are not the parts of one run over these queries.
    """
    header = read_parts(parts)
    with RunWriter(header.tag, header.depth, drop_self_matches=False).open_file(out) as writer:
        merge_runs(parts, [query.id for query in read_queries(queries)], header.depth, writer.write)
    return writer.lines


def merge_results(rankings: Sequence[SearchResult], depth: int) -> SearchResult:
    """Return the best `depth` documents of a query over the rankings of all parts.

    Raises InvalidContent if two parts contain the same document.
    """
    ids = [name for ranking in rankings for name in ranking.document_ids]
    scores = np.concatenate([ranking.scores for ranking in rankings])
    if len(set(ids)) < len(ids):
        message = f"two parts contain the same document for query {rankings[0].query_id!r}"
        raise refusal("overlapping_parts", message, "Create all parts from the same corpus and shards.")
    return SearchResult.from_scores(rankings[0].query_id, ids, scores, depth)


def merge_runs(
    paths: Sequence[Path], queries: Sequence[str], depth: int, write: Callable[[SearchResult], None]
) -> None:
    """Merge the runs of all parts, passing each ranking to `write`. Only one query is in memory at a time.

    Raises InvalidContent if a part contains other queries or another order.
    """
    streams = [_read_part(path) for path in paths]
    next_rankings = [next(stream, None) for stream in streams]
    for query in queries:
        if matches := [ranking for ranking in next_rankings if ranking is not None and ranking.query_id == query]:
            write(merge_results(matches, depth))
            next_rankings = [
                next(stream, None) if ranking is not None and ranking.query_id == query else ranking
                for stream, ranking in zip(streams, next_rankings, strict=True)
            ]
    remainder = next((ranking for ranking in next_rankings if ranking is not None), None)
    if remainder is not None:
        message = f"a part contains query {remainder.query_id!r}, which is missing in the queries or not in their order"
        raise refusal("other_queries", message, "Use the queries with which the parts were created.")


def read_parts(paths: Sequence[Path]) -> PartOfRun:
    """Return the header that all parts share.

    Raises InvalidContent if parts are missing, repeated, or from different runs.
    """
    headers: list[PartOfRun] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            headers.append(PartOfRun.read(path))
        except InvalidContent as error:
            problems += [
                replace(problem, message=f"{path.name}: {problem.message}") for problem in error.report.problems
            ]
    if problems:
        raise InvalidContent.build(*problems)
    header = headers[0]
    numbers = sorted(header.part for header in headers)
    if len({(header.parts, header.depth, header.whole) for header in headers}) > 1:
        raise refusal(
            "other_run",
            "the files are parts of different runs",
            "Engine, model, parameters, corpus, queries, depth, and number of parts must be the same.",
        )
    if not len(numbers) == len(set(numbers)) == header.parts:
        part_list = ", ".join(map(str, numbers))
        raise refusal("missing_parts", f"parts {part_list} were given, of {header.parts}", "Specify each part once.")
    return header


def _read_part(path: Path) -> Iterator[SearchResult]:
    """Yield the rankings of a part in their order. Raises InvalidContent for an invalid line."""
    for query, rows in groupby(_read_rows(path), itemgetter(0)):
        _, ids, scores = zip(*rows, strict=True)
        yield SearchResult(query, list(ids), np.array(scores, np.float32))


def _read_rows(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield query, document, and score of each line after the header. Raises InvalidContent for an invalid line."""
    for number, line in enumerate(islice(open_lines(path), 1, None), 2):
        try:
            query, _, document, _, score, _ = line.split()
            yield str(query, "utf-8"), str(document, "utf-8"), float(score)
        except ValueError:
            message = f"{path.name}: line {number:,} is not a line of a run"
            raise refusal("damaged_part", message, "Copy or create this part again.") from None


def refusal(code: str, message: str, hint: str) -> InvalidContent:
    return InvalidContent.build(Problem("error", code, 1, message, hint))
