"""Rankings written as a run that appears when it is complete, one for each variant, or kept to go on searching."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TextIO

import numpy as np
import orjson

from evaluation.core.writing import appearing, complete_or_absent
from evaluation.engines.base import SearchResult
from evaluation.engines.parts import PartOfRun
from evaluation.engines.precision import SAMPLED_DOCUMENTS, SAMPLED_QUERIES

#: The label under which an engine without variants has its ranking.
MAIN = ""


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
