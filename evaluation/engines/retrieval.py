"""From a collection and an engine to a TREC run."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TextIO

from evaluation.collection import Query, read_corpus, read_queries
from evaluation.engines.base import (
    Engine,
    EngineDescription,
    InvalidParameter,
    ParameterValue,
    Ranking,
    Retrieval,
    StageProgress,
)

#: How many queries are searched between two reports of progress.
_QUERIES_AT_ONCE = 64
#: Share of indexing that reading the corpus takes; the rest is merging and writing.
_SHARE_OF_READING = 0.9
_GZIP_LEVEL = 6


def run_engine(
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    corpus: Path,
    queries: Path,
    out: Path,
    *,
    depth: int,
    drop_self_matches: bool,
    report: StageProgress,
    work_folder: Path | None,
    tag: str,
) -> Retrieval:
    """What `engines.retrieve` does, with everything decided."""
    if depth < 1:
        raise InvalidParameter(f"A run of depth {depth} holds nothing; ask for at least 1.")
    if not tag or not tag.isprintable() or len(tag.split()) != 1:
        raise InvalidParameter(f"The tag {tag!r} would break the run's lines; use one word.")
    report("loading", 0.0)
    engine = description.create(parameters)
    asked = list(read_queries(queries))
    report("loading", 1.0)
    with tempfile.TemporaryDirectory(prefix="index-", dir=work_folder) as folder:
        started = perf_counter()
        documents = read_corpus(corpus, lambda share: report("indexing", share * _SHARE_OF_READING))
        engine.build(documents, Path(folder))
        build_seconds = perf_counter() - started
        report("indexing", 1.0)
        with _complete_or_absent(out) as file:
            written = _RunWriter(file, tag, depth, drop_self_matches)
            search_seconds = _search(engine, asked, written, report)
        return Retrieval(
            engine=description.name,
            parameters=dict(parameters),
            analyser=engine.analyser_name,
            documents=engine.documents,
            queries=len(asked),
            queries_without_results=written.empty_rankings,
            lines=written.lines,
            index_bytes=engine.size(),
            build_seconds=build_seconds,
            search_seconds=search_seconds,
        )


def run_lines(ranking: Ranking, tag: str) -> str:
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


class _RunWriter:
    """Writes rankings as a run, and counts them."""

    def __init__(self, file: TextIO, tag: str, depth: int, drop_self_matches: bool) -> None:
        self._file = file
        self._tag = tag
        self._drop_self_matches = drop_self_matches
        self._depth = depth
        #: How deep to search, so that enough is left when a query's own document is left out.
        self.depth_to_search = depth + drop_self_matches
        self.lines = 0
        self.empty_rankings = 0

    def write(self, ranking: Ranking) -> None:
        """Write one ranking, without the query's own document if so asked, and cut to the depth."""
        documents, scores = ranking.document_ids, ranking.scores
        if self._drop_self_matches and ranking.query_id in documents:
            own = documents.index(ranking.query_id)
            documents = documents[:own] + documents[own + 1 :]
            scores = scores[[place for place in range(len(scores)) if place != own]]
        kept = Ranking(ranking.query_id, documents[: self._depth], scores[: self._depth])
        self._file.write(run_lines(kept, self._tag))
        self.lines += len(kept.document_ids)
        self.empty_rankings += not kept.document_ids


def _search(engine: Engine, queries: list[Query], writer: _RunWriter, report: StageProgress) -> float:
    """Search all queries and write what is found; return the seconds that searching alone took."""
    seconds = 0.0
    report("searching", 0.0)
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = queries[start : start + _QUERIES_AT_ONCE]
        started = perf_counter()
        rankings = list(engine.search(some, writer.depth_to_search))
        seconds += perf_counter() - started
        for ranking in rankings:
            writer.write(ranking)
        report("searching", (start + len(some)) / len(queries))
    return seconds


@contextmanager
def _complete_or_absent(path: Path) -> Iterator[TextIO]:
    """A text file that takes its name only once all of it is written."""
    partial = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        if path.suffix == ".gz":
            with gzip.open(partial, "wt", _GZIP_LEVEL, encoding="utf-8", newline="\n") as file:
                yield file
        else:
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                yield file
        partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
