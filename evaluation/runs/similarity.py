"""Similarity of two runs by query, which separates probes of hidden judgments from new runs.

To read hidden judgments off scores, an attacker submits the same run again and again with small changes. Therefore,
two fingerprints of each run are stored for every topic: of its first ten documents in their order, and of the same
documents as a set. Changes below the tenth document, and queries that are not in the dataset, do not affect them.
Topics that only one of two runs answers are not compared.

Fingerprints are 64 bits of BLAKE2b: the probability that two of 10⁶ different lists agree by chance is 3·10⁻⁸
(n² / 2⁶⁵). They do not reveal documents or judgments.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.responses import normalize_answer
from evaluation.runs.forms import read_responses
from evaluation.runs.score import ScoringTarget
from evaluation.runs.top_documents import first_documents

#: Number of each query's first documents that are compared.
DEPTH = 10
#: Two runs are nearly the same if at most this share of the queries (or one query) has different first documents.
NEARLY_SAME_SHARE = 0.05
#: Two runs are linked if at least this share of the queries has the same first documents.
LINKED_SHARE = 0.8
#: Minimum number of common queries, and minimum share of the topics, for a comparison of runs.
MIN_QUERIES, MIN_SHARE = 5, 0.1

Fingerprints = NDArray[np.uint64]


@dataclass(frozen=True)
class Signature:
    """Fingerprints of a run: uint64 by topic, in the order of the topics' bytes; 0 for a topic without documents.

    `ordered` has fingerprints of the first documents in rank order, `sets` of the same documents sorted by id.
    """

    ordered: Fingerprints
    sets: Fingerprints

    def pack(self) -> bytes:
        """Return the bytes to store: both arrays, little-endian, `ordered` first, compressed with zlib."""
        return zlib.compress(np.concatenate([self.ordered, self.sets]).astype("<u8").tobytes())

    @classmethod
    def unpack(cls, packed: bytes) -> Signature:
        arrays = np.frombuffer(zlib.decompress(packed), "<u8").astype(np.uint64)
        ordered_fingerprints, sets = arrays.reshape(2, -1)
        return cls(ordered_fingerprints, sets)


@dataclass(frozen=True)
class RunFingerprints:
    """A run's signature and the number of its documents.

    `documents` is int64 by topic, in the signature's order, with at most `DEPTH` documents counted.
    """

    signature: Signature
    documents: NDArray[np.int64]

    @property
    def answered_share(self) -> float:
        """Share of the topics with a document in the run, from 0 to 1; 1 if there are no topics."""
        return float((self.documents > 0).mean()) if len(self.documents) else 1.0

    @property
    def median_documents(self) -> float:
        """Median of `documents` over the topics with documents; 0 if there are none."""
        nonempty = self.documents[self.documents > 0]
        return float(np.median(nonempty)) if len(nonempty) else 0.0


def fingerprint_run(path: Path, target: ScoringTarget) -> RunFingerprints:
    """Return the signature of an accepted run in any format and compression. Its topics are the target's queries.

    The signature of an answer run also depends on the answers, and each answered query counts as having `DEPTH`
    documents. Documents that the target drops from rankings are ignored. This needs about a microsecond per line.
    """
    first = first_documents(path, DEPTH, target.excluded, drop_self_matches=target.drop_self_matches)
    answer_run = read_responses(path)
    responses = answer_run.responses if answer_run is not None else {}
    names = sorted({query_id.encode() for query_id in target.query_ids})
    ordered, sets = np.zeros(len(names), np.uint64), np.zeros(len(names), np.uint64)
    documents = np.zeros(len(names), np.int64)
    for row, query in enumerate(names):
        top = first.get(query, [])
        documents[row] = len(top)
        if (response := responses.get(query.decode())) is not None:
            top, documents[row] = [*top, b"\n" + " ".join(normalize_answer(response.answer)).encode()], DEPTH
        if top:
            ordered[row], sets[row] = _fingerprint(top), _fingerprint(sorted(top))
    return RunFingerprints(Signature(ordered, sets), documents)


def _fingerprint(documents: Sequence[bytes]) -> int:
    """Return 64 bits that are not 0. Ids have no white space, so a newline separates them."""
    return int.from_bytes(hashlib.blake2b(b"\n".join(documents), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True)
class RunSimilarity:
    """Number of compared queries, and of queries with the same first documents, in any order and in the same order.

    `is_comparable` is true if enough queries were compared for a verdict.
    """

    compared: int
    same_documents: int
    same_order: int
    is_comparable: bool

    @property
    def share(self) -> float:
        """Share of the compared queries with the same first documents, in any order."""
        return self.same_documents / self.compared if self.compared else 0.0

    @property
    def is_nearly_same(self) -> bool:
        """Whether so few queries differ that an independent run is implausible."""
        tolerance = max(1, int(NEARLY_SAME_SHARE * self.compared))
        return self.is_comparable and self.compared - self.same_documents <= tolerance

    @property
    def is_linked(self) -> bool:
        """Whether the runs may be consecutive steps of one chain of small changes."""
        return self.is_comparable and self.share >= LINKED_SHARE


def compare(first: Signature, second: Signature) -> RunSimilarity:
    """Compare two runs of the same topics. Raises ValueError for signatures of different topics."""
    if len(first.sets) != len(second.sets):
        raise ValueError("the signatures are of different topics")
    answered_by_both = (first.sets != 0) & (second.sets != 0)
    query_count = int(answered_by_both.sum())
    return RunSimilarity(
        query_count,
        int((answered_by_both & (first.sets == second.sets)).sum()),
        int((answered_by_both & (first.ordered == second.ordered)).sum()),
        query_count >= max(MIN_QUERIES, MIN_SHARE * len(first.sets)),
    )


def linked_submissions(newest: Sequence[Signature], earlier_submissions: Sequence[Sequence[Signature]]) -> list[int]:
    """Return the indices of the earlier submissions that are linked with the newest, directly or through others.

    Each submission is a sequence of its runs' signatures, several for a set of seeds. Two submissions are linked if any
    two of their runs are. A sequence of small changes is therefore one chain even if its ends differ a lot, and each of
    several interleaved sequences is one too.
    """
    linked_places: list[int] = []
    pending, unlinked = [newest], list(range(len(earlier_submissions)))
    while pending:
        signatures = pending.pop()
        linked = [
            place
            for place in unlinked
            if any(compare(left, right).is_linked for left in signatures for right in earlier_submissions[place])
        ]
        unlinked = [place for place in unlinked if place not in linked]
        linked_places += linked
        pending += [earlier_submissions[place] for place in linked]
    return sorted(linked_places)
