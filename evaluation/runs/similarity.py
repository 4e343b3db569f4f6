"""How alike two runs are, query by query: what tells a run that was probed with from one that was made anew.

Who reads hidden judgements off the scores sends the same run again and again, with a little changed. So of each run
two fingerprints are kept for every topic: of its first ten documents in their order, and of the same as a set. What is
padded, permuted or cut below the tenth document, and queries that are none of the dataset's, leave them as they are;
topics that only one of two runs answers are not compared.

Fingerprints are 64 bits of BLAKE2b: that two of 10⁶ different lists agree by chance has a probability of 3·10⁻⁸
(n² / 2⁶⁵). They tell nothing of the documents, and nothing of judgements.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.runs.score import ScoringTarget
from evaluation.runs.top_documents import first_documents

#: So many of each query's first documents are looked at.
DEPTH = 10
#: Two runs are nearly the same where at most this share of the queries (or one query) has other first documents.
NEARLY = 0.05
#: Runs are links of a chain where at least this share of the queries has the same first documents.
LINKED = 0.8
#: Fewer queries than this, or than this share of the topics, are too few to compare.
LEAST_QUERIES, LEAST_SHARE = 5, 0.1

Fingerprints = NDArray[np.uint64]


@dataclass(frozen=True)
class Signature:
    """What is kept of a run: uint64 by topic, in the order of the topics' bytes; 0 where it has no document.

    `ordered` is of the first documents in their order, `sets` of the same in the order of their ids.
    """

    ordered: Fingerprints
    sets: Fingerprints

    def pack(self) -> bytes:
        """Return the bytes to keep: zlib of both, little-endian, `ordered` first."""
        return zlib.compress(np.concatenate([self.ordered, self.sets]).astype("<u8").tobytes())

    @classmethod
    def unpack(cls, kept: bytes) -> Signature:
        """Read the bytes that `pack` returned."""
        both = np.frombuffer(zlib.decompress(kept), "<u8").astype(np.uint64)
        ordered, sets = both.reshape(2, -1)
        return cls(ordered, sets)


@dataclass(frozen=True)
class RunFingerprints:
    """A run's signature, and how much it has.

    `documents`: int64 by topic, in the signature's order: how many documents it has for it, `DEPTH` at most.
    """

    signature: Signature
    documents: NDArray[np.int64]

    @property
    def answered(self) -> float:
        """The share of the topics for which the run has a document, 0 to 1; of no topics 1."""
        return float((self.documents > 0).mean()) if len(self.documents) else 1.0

    @property
    def usual_documents(self) -> float:
        """The median of `documents` over the topics that it answers; 0 where it answers none."""
        present = self.documents[self.documents > 0]
        return float(np.median(present)) if len(present) else 0.0


def fingerprint_run(path: Path, target: ScoringTarget) -> RunFingerprints:
    """Return the signature of an accepted run (any form, any compression); its topics are the target's queries.

    Documents that the target leaves out of rankings are not first documents. About a microsecond a line.
    """
    first = first_documents(path, DEPTH, target.excluded, drop_self_matches=target.drop_self_matches)
    names = sorted({topic.encode() for topic in target.query_ids})
    ordered, sets = np.zeros(len(names), np.uint64), np.zeros(len(names), np.uint64)
    documents = np.zeros(len(names), np.int64)
    for row, query in enumerate(names):
        kept = first.get(query, [])
        documents[row] = len(kept)
        if kept:
            ordered[row], sets[row] = _fingerprint(kept), _fingerprint(sorted(kept))
    return RunFingerprints(Signature(ordered, sets), documents)


def _fingerprint(documents: Sequence[bytes]) -> int:
    """64 bits that are not 0; ids have no white space, so that a newline parts them."""
    digest = hashlib.blake2b(b"\n".join(documents), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


@dataclass(frozen=True)
class RunSimilarity:
    """How many queries were compared, and of these how many have the same first documents, and in the same order."""

    compared: int
    same_documents: int
    same_order: int
    enough: bool

    @property
    def share(self) -> float:
        """The share of compared queries with the same first documents, in whatever order."""
        return self.same_documents / self.compared if self.compared else 0.0

    @property
    def nearly_the_same(self) -> bool:
        """Whether so few queries differ that a run made anew would hardly come out so."""
        allowed = max(1, int(NEARLY * self.compared))
        return self.enough and self.compared - self.same_documents <= allowed

    @property
    def linked(self) -> bool:
        """Whether the two may be steps of one walk."""
        return self.enough and self.share >= LINKED


def compare(one: Signature, other: Signature) -> RunSimilarity:
    """How alike two runs of the same topics are. Raises ValueError for signatures of other topics."""
    if len(one.sets) != len(other.sets):
        raise ValueError("the signatures are of different topics")
    both = (one.sets != 0) & (other.sets != 0)
    compared = int(both.sum())
    return RunSimilarity(
        compared,
        int((both & (one.sets == other.sets)).sum()),
        int((both & (one.ordered == other.ordered)).sum()),
        compared >= max(LEAST_QUERIES, LEAST_SHARE * len(one.sets)),
    )


def linked_submissions(newest: Sequence[Signature], earlier: Sequence[Sequence[Signature]]) -> list[int]:
    """Which earlier submissions, by their places, are linked with the newest, directly or through others.

    A submission is the signatures of its runs, several of a seed set; two are linked where any two of their runs are.
    So a walk of small steps is one chain, though its ends are far apart, and so is each of several walks in turns.
    """
    found: list[int] = []
    reached, left = [newest], list(range(len(earlier)))
    while reached:
        here = reached.pop()
        linked = [
            place
            for place in left
            if any(compare(one, other).linked for one in here for other in earlier[place])
        ]
        left = [place for place in left if place not in linked]
        found += linked
        reached += [earlier[place] for place in linked]
    return sorted(found)
