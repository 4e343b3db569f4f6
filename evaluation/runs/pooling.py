"""Pools: unjudged pairs of query and document that several runs rank first.

Pooling to a depth is TREC's way of choosing what to judge (Sparck Jones & van Rijsbergen, 1975; Voorhees & Harman,
TREC: Experiment and Evaluation in Information Retrieval, 2005). Assessors must not know which system retrieved a
document, nor at which rank, so the order of a pool depends only on its pairs and a random seed.
"""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.judgements.qrels import Qrels
from evaluation.runs.score import ScoringTarget
from evaluation.runs.top_documents import first_documents

#: Maximum number of pairs. Larger pools are never judged completely, and their texts would fill the disk.
MAX_PAIRS = 500_000

Pairs = dict[bytes, set[bytes]]


class PoolTooLarge(Exception):
    """Error of a pool with too many pairs to judge; its message suggests smaller settings."""


@dataclass(frozen=True, slots=True)
class DrawnPool:
    """Unjudged pairs (query id, document id), grouped by query, with queries and documents in random order.

    Attributes:
        by_run: Number of the pairs among each run's first documents, in the order of the runs.
        found_by: Number of pairs, keyed by the number of runs that retrieved them.
        judged: Number of pairs within the depth that were omitted because they are judged.
        other_queries: Number of queries in the runs that are not in the target.
    """

    pairs: tuple[tuple[str, str], ...]
    by_run: tuple[int, ...]
    found_by: dict[int, int]
    judged: int
    other_queries: int = 0

    @property
    def queries(self) -> int:
        """Number of queries with a pair to judge."""
        return len({query for query, _ in self.pairs})

    def statistics(self) -> dict[str, object]:
        """Return counts that do not reveal single runs: counts by run are sorted."""
        return {
            "pairs": len(self.pairs),
            "queries": self.queries,
            "judged": self.judged,
            "other_queries": self.other_queries,
            "by_run": sorted(self.by_run, reverse=True),
            "found_by": {str(runs): count for runs, count in sorted(self.found_by.items())},
        }


def draw_pool(
    runs: Sequence[Path],
    target: ScoringTarget,
    *,
    depth: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> DrawnPool:
    """Return the union of the runs' first `depth` documents of each query in trec_eval's order, without judged pairs.

    Only queries and documents of the target are pooled. Documents that are not in the dataset still occupy a rank, as
    in scoring. Documents that the target excludes are dropped before the cut. `progress` is called with the share of
    the runs read and may raise to stop. The pool and the first documents of one run are in memory.

    Raises:
        PoolTooLarge: The pool has more than `MAX_PAIRS` pairs.
        ValueError: `depth` is below 1.
    """
    if depth < 1:
        raise ValueError("the depth of a pool must be at least 1")
    known_queries = {query.encode() for query in target.query_ids}
    judged_documents = _get_judged_documents(target.qrels)
    run_counts: dict[bytes, Counter[bytes]] = {}
    by_run: list[int] = []
    judged_pairs: Pairs = {}
    other_queries: set[bytes] = set()
    for number, run in enumerate(runs, 1):
        by_run.append(0)
        for query, first_documents_of_query in _read_first_documents(run, depth, target).items():
            if known_queries and query not in known_queries:
                other_queries.add(query)
                continue
            judged_for_query = judged_documents.get(query, frozenset())
            unjudged_documents = [document for document in first_documents_of_query if document not in judged_for_query]
            by_run[-1] += len(unjudged_documents)
            run_counts.setdefault(query, Counter()).update(unjudged_documents)
            judged_pairs.setdefault(query, set()).update(judged_for_query.intersection(first_documents_of_query))
        if sum(map(len, run_counts.values())) > MAX_PAIRS:
            raise PoolTooLarge(
                f"The pool has more than {MAX_PAIRS:,} pairs at depth {depth:,}. Choose fewer runs or a smaller depth."
            )
        if progress:
            progress(number / len(runs))
    return DrawnPool(
        pairs=_shuffle_pairs(run_counts, seed),
        by_run=tuple(by_run),
        found_by=dict(
            Counter(count for judged_for_query in run_counts.values() for count in judged_for_query.values())
        ),
        judged=sum(map(len, judged_pairs.values())),
        other_queries=len(other_queries),
    )


def sole_finds(
    runs: Iterable[tuple[Hashable, Path, int]], target: ScoringTarget, earlier_qrels: Qrels | None = None
) -> dict[Hashable, Pairs]:
    """Return the judged pairs that only a single team's runs contributed to pools, by team.

    These are judged pairs among the first documents of the team's runs, and of no other team's runs. Zobel (How
    reliable are the results of large-scale information retrieval experiments?, SIGIR 1998) omits such pairs to test
    whether a pool is fair to systems that did not contribute to it.

    `runs` lists the runs that fed pools as (team, run, depth). Pairs in `earlier_qrels`, the judgments before the first
    pool, belong to no team. Raises FileNotFoundError if the file of a run no longer exists.
    """
    finders: dict[tuple[bytes, bytes], set[Hashable]] = {}
    judged, judged_before = _get_judged_documents(target.qrels), _get_judged_documents(earlier_qrels)
    for team, run, depth in runs:
        for query, documents in _read_first_documents(run, depth, replace(target, document_ids=None)).items():
            pooled = judged.get(query, frozenset()).intersection(documents) - judged_before.get(query, frozenset())
            for document in pooled:
                finders.setdefault((query, document), set()).add(team)
    pairs_by_team: dict[Hashable, Pairs] = {}
    for (query, document), teams in finders.items():
        if len(teams) == 1:
            pairs_by_team.setdefault(teams.pop(), {}).setdefault(query, set()).add(document)
    return pairs_by_team


def _read_first_documents(run: Path, depth: int, target: ScoringTarget) -> dict[bytes, list[bytes]]:
    """Return the first `depth` documents of each query of a run, without documents that are not in the corpus."""
    documents_by_query = first_documents(run, depth, target.excluded, drop_self_matches=target.drop_self_matches)
    if target.document_ids is None:
        return documents_by_query
    names = list({document for documents in documents_by_query.values() for document in documents})
    is_in_corpus = target.document_ids.contain([document.decode() for document in names])
    unknown_names = {name for name, is_known in zip(names, is_in_corpus.tolist(), strict=True) if not is_known}
    return {
        query: [document for document in ranking if document not in unknown_names]
        for query, ranking in documents_by_query.items()
    }


def _get_judged_documents(qrels: Qrels | None) -> dict[bytes, frozenset[bytes]]:
    """Return the ids of the judged documents of each query, empty without qrels."""
    if qrels is None:
        return {}
    return {
        query.encode(): frozenset(document.encode() for document in qrels.get_grades(row))
        for row, query in enumerate(qrels.query_ids)
    }


def _shuffle_pairs(run_counts: dict[bytes, Counter[bytes]], seed: int) -> tuple[tuple[str, str], ...]:
    """Return all pairs in random order. They are sorted first, so that the order of the runs does not matter."""
    generator = random.Random(seed)  # noqa: S311 - an order, not a secret
    queries = sorted(query for query, documents in run_counts.items() if documents)
    generator.shuffle(queries)
    pairs = []
    for query in queries:
        documents = sorted(run_counts[query])
        generator.shuffle(documents)
        pairs += [(query.decode(), document.decode()) for document in documents]
    return tuple(pairs)
