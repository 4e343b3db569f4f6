"""Writing rankings as a run: its lines, a file that appears when it is complete, and one beside it a variant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from evaluation.core.writing import complete_or_absent
from evaluation.engines.base import Engine, SearchResult
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
    """The ranking as lines of a TREC run: query, Q0, document, rank from 1, score, tag.

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


def open_writers(
    files: ExitStack, engine: Engine, out: Path, new: Callable[[str], RunWriter]
) -> dict[str, RunWriter]:
    """By label a writer for each variant, or for the one ranking."""
    paths = variant_paths(engine.variants, out) or {MAIN: out}
    return {label: files.enter_context(new(label).opened(path)) for label, path in paths.items()}
