"""The judged queries of a hidden collection in two parts: a public one that the board shows, and a private one.

The split is fixed, secret and stratified. Queries fall into strata by how many relevant documents they have (0, 1,
2–3, 4–7, 8–15, …), because that moves measures most; of each stratum the public part has the same share. Strata are
filled in ascending order, what rounding left over being carried on, so that the public part of all n queries has
n · share of them, rounded, and that of any stratum differs from its share by less than one.

Within a stratum the order is that of HMAC-SHA256(secret, query id): whoever does not know the secret knows nothing of
it, and it does not depend on the order of queries. When judgements grow, a query that has a part keeps it; only new
ones are drawn.
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
#: Of a score of 0 to 1, for the strata of halves.
_FIFTHS = 5


@dataclass(frozen=True, slots=True)
class QueryParts:
    """Which queries are public: `public` by query id. `secret` drew them, and draws those that come later.

    Its repr tells nothing of either, so that no log line and no traceback can.
    """

    secret: bytes
    public: Mapping[str, bool]

    def __repr__(self) -> str:
        return f"Parts({len(self.public)} queries)"

    def mask(self, query_ids: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the queries are public, shape (queries,). Raises KeyError for one that was never drawn."""
        return np.fromiter((self.public[query] for query in query_ids), np.bool_, len(query_ids))


def relevant_counts(qrels: Qrels, relevance_level: int = 1) -> dict[str, int]:
    """How many relevant documents each judged query has: what strata are made by."""
    counts = np.bincount(qrels.rows[qrels.grades >= relevance_level], minlength=len(qrels.query_ids))
    return dict(zip(qrels.query_ids, counts.tolist(), strict=True))


def stratum(relevant: int) -> int:
    """Return the stratum of a query with so many relevant documents: 0, 1, 2–3, 4–7, … are 0, 1, 2, 3, …"""
    return relevant.bit_length()


def draw_parts(relevant: Mapping[str, int], share: float, earlier: QueryParts | None = None) -> QueryParts:
    """Draw the part of each query that has none yet; `relevant` counts the relevant documents by query id.

    `share` is the public part's, above 0 and below 1. What was drawn `earlier` stays, queries that are judged no longer
    included: they may come back. Raises ValueError for another share, and where either part would have no query.
    """
    if not 0 < share < 1:
        raise ValueError(f"the public share lies between 0 and 1, not {share}")
    secret = earlier.secret if earlier is not None else secrets.token_bytes(32)
    known = dict(earlier.public) if earlier is not None else {}
    strata = {query: (stratum(count), 0) for query, count in relevant.items()}
    return QueryParts(secret, _fill(strata, share, secret, known))


def draw_halves(
    relevant: Mapping[str, int], scores: Mapping[str, float], share: float, key: bytes
) -> set[str]:
    """The open half of a collection's judged queries, of which it has this share; the others are the hidden half.

    Strata are made by how many relevant documents a query has, and within these by BM25's score, 0 to 1, in fifths. The
    same `key` gives the same halves: it should have the judgements in it, so that nobody without them can tell by
    repeating the draw in which stratum a query is. Raises ValueError as `draw_parts`.
    """
    strata = {query: (stratum(count), ceil(scores[query] * _FIFTHS)) for query, count in relevant.items()}
    return {query for query, public in _fill(strata, share, key, {}).items() if public}


def _fill(
    stratum_of: Mapping[str, tuple[int, int]], share: float, secret: bytes, known: Mapping[str, bool]
) -> dict[str, bool]:
    """Whether each query is public, stratum by stratum; those that are `known` stay as they are."""
    found = dict(known)
    queries = public = 0
    strata: dict[tuple[int, int], list[str]] = {}
    for query, one in stratum_of.items():
        strata.setdefault(one, []).append(query)
    for _, members in sorted(strata.items()):
        queries += len(members)
        public += sum(known.get(query, False) for query in members)
        new = sorted(
            (query for query in members if query not in known),
            key=lambda query: hmac.digest(secret, query.encode(), hashlib.sha256),
        )
        rounded = int(share * queries + 0.5)  # half up, whatever the number before it
        wanted = min(max(rounded - public, 0), len(new))
        found.update({query: place < wanted for place, query in enumerate(new)})
        public += wanted
    if not 0 < public < queries:
        raise ValueError(f"{queries} judged queries cannot be parted: either part needs one at least")
    return found


def write_parts(parts: QueryParts, path: Path) -> None:
    """Keep the parts in a file: a header with the secret, then `query <tab> part` by line.

    The secret makes its checksum, which is no secret, tell nothing of what is in it.
    """
    lines = [f"{_HEADER}\t{parts.secret.hex()}"]
    lines += [f"{query}\t{_PUBLIC if public else _PRIVATE}" for query, public in sorted(parts.public.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_parts(path: Path) -> QueryParts:
    """Return the parts of a file that `write_parts` wrote. Raises ValueError for any other, never with its content."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    name, _, secret = header.partition("\t")
    if name != _HEADER:
        raise ValueError("not a file of parts")
    public = {}
    for number, line in enumerate(lines, 2):
        query, _, part = line.partition("\t")
        if part not in (_PUBLIC, _PRIVATE) or query in public:
            raise ValueError(f"line {number} of a file of parts is damaged")
        public[query] = part == _PUBLIC
    return QueryParts(bytes.fromhex(secret), public)


def part_means(
    per_query: NDArray[np.float64], measures: Sequence[str], public: NDArray[np.bool_]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the means over the public and over the private part, by measure, unrounded.

    `per_query` has the shape (queries, measures), `public` (queries,). Raises ValueError where a part has no query.
    """
    if not 0 < np.count_nonzero(public) < len(public):
        raise ValueError("either part needs a query at least")
    parts = (per_query[public], per_query[~public])
    first, second = (dict(zip(measures, part.mean(axis=0).tolist(), strict=True)) for part in parts)
    return first, second
