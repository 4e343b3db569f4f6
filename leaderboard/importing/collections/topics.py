"""The queries that a run is to answer.

BEIR's `queries.jsonl` holds the queries of all splits: half a million of MS MARCO's are train queries, beside the
6,980 that are scored. Left out are those that only published judgements name. Queries that no judgements name stay,
so that the topics do not tell which of them hidden judgements name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluation.collections.beir import Findings, iterate_queries
from evaluation.collections.check import QueryStatistics, check_queries
from evaluation.judgements.qrels import Qrels
from leaderboard.importing.collections.options import ImportOptions


@dataclass(frozen=True, slots=True)
class Topics:
    """The queries to answer; `path` holds them, and is None where these are all queries."""

    ids: Collection[str]
    statistics: QueryStatistics
    path: Path | None = None


def topic_ids(queries: set[str], judgements: Mapping[str, Qrels], options: ImportOptions) -> set[str]:
    """All queries except those that only the judgements of other splits than the scored one name.

    All of them where the scored judgements are yet to come: they may judge again what another split judged. All of
    them, too, where there are no documents: such runs were made elsewhere, for what their track asked.
    """
    scored = judgements.get(options.split)
    if scored is None or options.runs_only:
        return queries
    elsewhere = {
        query for split, qrels in judgements.items() if split != options.split for query in qrels.query_ids
    }
    return queries - (elsewhere - set(scored.query_ids))


def find_topics(
    path: Path, queries: QueryStatistics, every: set[str], wanted: set[str], work: Path
) -> Topics:
    """The topics of the queries file at `path`, all of whose ids are `every`. Lines are copied as they are."""
    if len(wanted) == len(every):
        return Topics(every, queries)
    target = work / "topics.jsonl"
    line = b""

    def remember(read: bytes) -> None:
        nonlocal line
        line = read

    with target.open("wb") as file:
        for _, query in iterate_queries(path, Findings(path.name), on_bytes=remember):
            if query.id in wanted:
                file.write(line if line.endswith(b"\n") else line + b"\n")
    return Topics(wanted, check_queries(target), target)
