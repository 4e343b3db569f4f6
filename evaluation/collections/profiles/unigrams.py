"""How often a corpus uses each word, and how much two corpora have in common (BEIR paper, Appendix F).

A word (unigram) is one by UAX #29, in lower case, of any language: neither stemmed nor are stop words left out, so
that every corpus is read alike. Words are kept as 64-bit hashes: smaller, quickly compared, and no text. Among a
million words the chance that any two share a hash is 3 in 100 million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.text.words import lower_case, words

#: What is counted, for captions.
TOKENISATION = "words by UAX #29 in lower case, unstemmed, stop words kept"
#: So many different words are kept of a corpus, the most frequent ones.
MOST_WORDS = 2**20
_HASH_BYTES = 8


@dataclass(frozen=True)
class Unigrams:
    """Counts of words: `keys` (sorted hashes) and `counts`, both of the shape (vocabulary,).

    `total` counts every word of the corpus. `dropped` of them were of words too rare to keep.
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    total: int
    dropped: int = 0

    @classmethod
    def of(cls, counted: Mapping[str, int], dropped: int = 0) -> Unigrams:
        """The counts of these words, and of `dropped` further occurrences."""
        keys = np.fromiter(map(key_of, counted), np.uint64, len(counted))
        counts = np.fromiter(counted.values(), np.uint64, len(counted))
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], counts[order], int(counts.sum()) + dropped, dropped)

    @property
    def vocabulary(self) -> int:
        """How many different words are kept."""
        return len(self.keys)

    @property
    def dropped_share(self) -> float:
        """The share of the corpus's words that were dropped."""
        return self.dropped / self.total if self.total else 0.0


class UnigramCounter:
    """Counts words as texts come, in bounded memory.

    When more than twice `most` spellings are held, all but the `most` most frequent words are dropped (of equally
    frequent ones all or none), and their occurrences counted as dropped: see `weighted_jaccard` for what that costs.
    """

    def __init__(self, most: int = MOST_WORDS) -> None:
        self._most = most
        self._spellings: Counter[str] = Counter()
        self._dropped = 0

    def add(self, text: str) -> None:
        """Count the words of a text."""
        self._spellings.update(words(text))
        if len(self._spellings) > 2 * self._most:
            self._prune()

    def result(self) -> Unigrams:
        """What was counted so far."""
        self._prune()
        return Unigrams.of(self._spellings, self._dropped)

    def _prune(self) -> None:
        # Lower case last: a distinct spelling is folded once, however often it occurs.
        folded: Counter[str] = Counter()
        for spelling, count in self._spellings.items():
            if spelling.strip("_"):
                folded[lower_case(spelling)] += count
        if len(folded) > self._most:
            counts = np.fromiter(folded.values(), np.int64, len(folded))
            threshold = int(np.partition(counts, -self._most - 1)[-self._most - 1])
            self._dropped += int(counts[counts <= threshold].sum())
            folded = Counter({word: count for word, count in folded.items() if count > threshold})
        self._spellings = folded


def key_of(word: str) -> int:
    """The word's 64-bit hash."""
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little")


class Bounds(NamedTuple):
    """Between which values a similarity lies; equal where no word was dropped."""

    low: float
    high: float


def weighted_jaccard(first: Unigrams, second: Unigrams) -> float:
    """Σ min(a, b) / Σ max(a, b) over the words of both, a and b their shares of all words of each corpus; 0 to 1.

    BEIR paper (Thakur et al. 2021), Appendix F. Symmetric; 1 for equal shares; 0 where either corpus has no words.
    Dropped words count as shared by nobody, so this is never too high: `jaccard_bounds` says how much too low.
    """
    return jaccard_bounds(first, second).low


def jaccard_bounds(first: Unigrams, second: Unigrams) -> Bounds:
    """The least and the greatest weighted Jaccard similarity that the dropped words leave possible.

    Shares sum to 1 in both corpora, so Σ max = 2 - Σ min. Were a dropped occurrence shared, Σ min would grow by at
    most the share of words that either corpus dropped.
    """
    if not first.total or not second.total:
        return Bounds(0.0, 0.0)
    places = np.searchsorted(second.keys, first.keys)
    places[places == len(second.keys)] = 0
    shared = second.keys[places] == first.keys if len(second.keys) else np.zeros(len(places), np.bool_)
    common = np.minimum(
        first.counts[shared] / first.total,
        second.counts[places[shared]] / second.total,
    )
    low = min(float(common.sum()), 1.0)
    high = min(low + first.dropped_share + second.dropped_share, 1.0)
    return Bounds(low / (2 - low), high / (2 - high))
