"""Split of a hidden collection's judged queries into a public part, with scores on boards, and a private part.

The split is fixed, secret, and stratified. Strata are defined by the number of relevant documents (0, 1, 2–3, 4–7,
8–15, …), because it affects measures most. The public part has the same share of each stratum. Strata are processed in
ascending order and rounding errors are carried over. The public part of all n queries therefore has n · share queries,
rounded, and its size in each stratum differs from the share by less than one.

Queries of a stratum are ordered by HMAC-SHA256(secret, query id), which cannot be computed without the secret and does
not depend on the order of queries. If judgments are added, existing queries remain in their part, and only new ones are
drawn.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.qrels import Qrels

_HEADER = "runboard-parts 1"
_PUBLIC, _PRIVATE = "public", "private"
#: Number of strata by score (0 to 1) for halves.
_FIFTHS = 5


@dataclass(frozen=True, slots=True)
class QueryParts:
    """Public and private queries. `public` is true for public query ids, and `secret` determines the draw.

    The repr reveals neither, so that they do not appear in logs and tracebacks.
    """

    secret: bytes
    public: Mapping[str, bool]

    def __repr__(self) -> str:
        return f"Parts({len(self.public)} queries)"

    def mask(self, query_ids: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the public queries, shape (queries,). Raises KeyError for a query that was never drawn."""
        return np.fromiter((self.public[query] for query in query_ids), np.bool_, len(query_ids))


def relevant_counts(qrels: Qrels, relevance_level: int = 1) -> dict[str, int]:
    """Return the number of relevant documents of each judged query, which defines its stratum."""
    counts = np.bincount(qrels.rows[qrels.grades >= relevance_level], minlength=len(qrels.query_ids))
    return dict(zip(qrels.query_ids, counts.tolist(), strict=True))


def stratum(relevant: int) -> int:
    """Return the stratum by number of relevant documents: 0 for 0, 1 for 1, 2 for 2–3, 3 for 4–7, and so on."""
    return relevant.bit_length()


def draw_parts(relevant: Mapping[str, int], share: float, earlier: QueryParts | None = None) -> QueryParts:
    """Draw the part of each new query. `relevant` is the number of relevant documents by query id.

    `share` is the share of the public part, above 0 and below 1. Queries drawn `earlier` remain in their part, even if
    they are no longer judged, because they may be judged again. Raises ValueError for an invalid share, or if a part
    would be empty.
    """
    if not 0 < share < 1:
        raise ValueError(f"the public share must be between 0 and 1, not {share}")
    secret = earlier.secret if earlier is not None else secrets.token_bytes(32)
    known_parts = dict(earlier.public) if earlier is not None else {}
    strata = {query: (stratum(count), 0) for query, count in relevant.items()}
    return QueryParts(secret, _assign_parts(strata, share, secret, known_parts))


def draw_halves(relevant: Mapping[str, int], scores: Mapping[str, float], share: float, key: bytes) -> set[str]:
    """Return the open half of a collection's judged queries, which has this share. The others are the hidden half.

    Strata are defined by the number of relevant documents of a query and, within these, by fifths of BM25's score (0 to
    1). The same `key` produces the same halves. Derive it from the judgments, so that only users with access to the
    judgments can repeat the draw to find a query's stratum. Raises ValueError if a half would be empty.
    """
    strata = {query: (stratum(count), ceil(scores[query] * _FIFTHS)) for query, count in relevant.items()}
    return {query for query, public in _assign_parts(strata, share, key, {}).items() if public}


def _assign_parts(
    strata_by_query: Mapping[str, tuple[int, int]],
    share: float,
    secret: bytes,
    known_parts: Mapping[str, bool],
) -> dict[str, bool]:
    """Return for each query whether it is public, stratum by stratum; `known_parts` are unchanged.

    Raises ValueError if all of the queries, or none of them, would be public.
    """
    parts = dict(known_parts)
    queries = public = 0
    strata: dict[tuple[int, int], list[str]] = {}
    for query, query_stratum in strata_by_query.items():
        strata.setdefault(query_stratum, []).append(query)
    for _, members in sorted(strata.items()):
        queries += len(members)
        public += sum(known_parts.get(query, False) for query in members)
        new_queries = sorted(
            (query for query in members if query not in known_parts),
            key=lambda query: hmac.digest(secret, query.encode(), hashlib.sha256),
        )
        rounded = int(share * queries + 0.5)  # Unlike `round`, this rounds halves up.
        new_public = min(max(rounded - public, 0), len(new_queries))
        parts.update({query: position < new_public for position, query in enumerate(new_queries)})
        public += new_public
    if not 0 < public < queries:
        raise ValueError(f"{queries} judged queries cannot be split: each part needs at least one")
    return parts


def write_parts(parts: QueryParts, path: Path) -> None:
    """Write the parts to a file: a header with the secret, then `query <tab> part` per line.

    The file's checksum is public. Because of the secret, it does not reveal the content.
    """
    lines = [f"{_HEADER}\t{parts.secret.hex()}"]
    lines += [f"{query}\t{_PUBLIC if public else _PRIVATE}" for query, public in sorted(parts.public.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_parts(path: Path) -> QueryParts:
    """Read a file written by `write_parts`. Raises ValueError for other files, without quoting their content."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    name, _, secret = header.partition("\t")
    if name != _HEADER:
        raise ValueError("not a file of query parts")
    public = {}
    for number, line in enumerate(lines, 2):
        query, _, part = line.partition("\t")
        if part not in (_PUBLIC, _PRIVATE) or query in public:
            raise ValueError(f"line {number} of a file of query parts is damaged")
        public[query] = part == _PUBLIC
    return QueryParts(bytes.fromhex(secret), public)


def part_means(
    per_query: NDArray[np.float64], measures: Sequence[str], public: NDArray[np.bool_]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the unrounded means over the public and the private part, by measure.

    `per_query` has the shape (queries, measures), `public` (queries,). Raises ValueError if a part is empty.
    """
    if not 0 < np.count_nonzero(public) < len(public):
        raise ValueError("each part needs at least one query")
    parts = (per_query[public], per_query[~public])
    public_means, private_means = (dict(zip(measures, part.mean(axis=0).tolist(), strict=True)) for part in parts)
    return public_means, private_means
