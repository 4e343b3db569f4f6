"""Pools: the pairs of query and document that several runs rank first and nobody has judged yet.

Pooling to a depth is TREC's way of choosing what to judge (Sparck Jones & van Rijsbergen, 1975; Voorhees & Harman,
TREC: Experiment and Evaluation in Information Retrieval, 2005). Who judges must not know which system found a
document, nor how high: the order of a pool depends on nothing but its pairs and a random seed.
"""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.judgements.qrels import Qrels
from evaluation.runs.score import ScoringTarget
from evaluation.runs.top_documents import first_documents

#: Beyond this nobody judges, and the texts would fill disks.
MOST_PAIRS = 500_000

Pairs = dict[bytes, set[bytes]]


class PoolTooLarge(Exception):
    """More pairs than anybody judges; the message says what to choose instead."""


@dataclass(frozen=True, slots=True)
class DrawnPool:
    """The unjudged pairs (query id, document id): a query's together, queries and documents in random order.

    `by_run`: how many of them each run has among its first documents, in the order of the runs. `found_by`: how many
    pairs were found by exactly so many runs. `judged`: pairs within the depth that were left out, being judged.
    `other_queries`: queries of the runs that were left out, being none of those asked for.
    """

    pairs: tuple[tuple[str, str], ...]
    by_run: tuple[int, ...]
    found_by: dict[int, int]
    judged: int
    other_queries: int = 0

    @property
    def queries(self) -> int:
        """How many queries have a pair to be judged."""
        return len({query for query, _ in self.pairs})

    def statistics(self) -> dict[str, object]:
        """Return counts that reveal nothing of single runs: those by run are sorted."""
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

    Only queries and documents of the target are pooled. Documents that the dataset does not have take a place all the
    same, as they do where runs are scored. What the target leaves out of rankings is passed over before the cut.
    `progress` gets the share of the runs read, and may raise. Memory is that of the pool and of one run's first
    documents. Raises PoolTooLarge, and ValueError for a depth below 1.
    """
    if depth < 1:
        raise ValueError("a pool is at least one document deep")
    known = {query.encode() for query in target.query_ids}
    judged = _judged(target.qrels)
    found: dict[bytes, Counter[bytes]] = {}
    by_run: list[int] = []
    left_out: Pairs = {}
    others: set[bytes] = set()
    for number, run in enumerate(runs, 1):
        by_run.append(0)
        for query, kept in _first(run, depth, target).items():
            if known and query not in known:
                others.add(query)
                continue
            of_query = judged.get(query, frozenset())
            new = [each for each in kept if each not in of_query]
            by_run[-1] += len(new)
            found.setdefault(query, Counter()).update(new)
            left_out.setdefault(query, set()).update(of_query.intersection(kept))
        if sum(map(len, found.values())) > MOST_PAIRS:
            raise PoolTooLarge(
                f"The pool has more than {MOST_PAIRS:,} pairs at depth {depth:,}. Choose fewer runs or a lesser depth."
            )
        if progress:
            progress(number / len(runs))
    return DrawnPool(
        pairs=_shuffled(found, seed),
        by_run=tuple(by_run),
        found_by=dict(Counter(count for of_query in found.values() for count in of_query.values())),
        judged=sum(map(len, left_out.values())),
        other_queries=len(others),
    )


def sole_finds(
    runs: Iterable[tuple[Hashable, Path, int]], target: ScoringTarget, before: Qrels | None = None
) -> dict[Hashable, Pairs]:
    """Return what is judged because of one team alone: pairs among the first documents of its runs and no other team's.

    `runs` are those that fed pools: (team, run, depth). Pairs that were judged `before` the first pool are
    no team's.
    Zobel (How reliable are the results of large-scale information retrieval experiments?, SIGIR 1998) leaves such
    pairs out to see whether a pool is fair to systems that had no part in it. Raises FileNotFoundError where a run is
    gone.
    """
    finders: dict[tuple[bytes, bytes], set[Hashable]] = {}
    judged, earlier = _judged(target.qrels), _judged(before)
    for team, run, depth in runs:
        for query, kept in _first(run, depth, replace(target, document_ids=None)).items():
            pooled = judged.get(query, frozenset()).intersection(kept) - earlier.get(query, frozenset())
            for document in pooled:
                finders.setdefault((query, document), set()).add(team)
    found: dict[Hashable, Pairs] = {}
    for (query, document), teams in finders.items():
        if len(teams) == 1:
            found.setdefault(teams.pop(), {}).setdefault(query, set()).add(document)
    return found


def _first(run: Path, depth: int, target: ScoringTarget) -> dict[bytes, list[bytes]]:
    """Return the first documents of each query of a run, but for those that the dataset does not have."""
    first = first_documents(run, depth, target.excluded, drop_self_matches=target.drop_self_matches)
    if target.document_ids is None:
        return first
    names = list({document for documents in first.values() for document in documents})
    there = target.document_ids.contain([document.decode() for document in names])
    strangers = {document for document, is_there in zip(names, there.tolist(), strict=True) if not is_there}
    return {query: [each for each in kept if each not in strangers] for query, kept in first.items()}


def _judged(qrels: Qrels | None) -> dict[bytes, frozenset[bytes]]:
    if qrels is None:
        return {}
    return {
        query.encode(): frozenset(document.encode() for document in qrels.graded(row))
        for row, query in enumerate(qrels.query_ids)
    }


def _shuffled(found: dict[bytes, Counter[bytes]], seed: int) -> tuple[tuple[str, str], ...]:
    """All pairs, sorted before they are shuffled, so that nothing is left of the order in which they were found."""
    generator = random.Random(seed)  # noqa: S311 - an order, not a secret
    queries = sorted(query for query, documents in found.items() if documents)
    generator.shuffle(queries)
    pairs = []
    for query in queries:
        documents = sorted(found[query])
        generator.shuffle(documents)
        pairs += [(query.decode(), document.decode()) for document in documents]
    return tuple(pairs)
