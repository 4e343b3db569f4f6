"""Profiles of corpora, computed in one pass: word frequencies and document lengths.

Words (unigrams) are segmented by UAX #29 and lowercased. They are not stemmed, and stop words are included, so that
all languages are treated alike. They are stored as 64-bit hashes, which are smaller, fast to compare, and do not reveal
text. Among a million words, the probability that any two share a hash is 3 in 100 million. `weighted_jaccard` measures
the overlap of two corpora (BEIR paper, Appendix F).

Length distributions are histograms over fixed edges: small, exact counts, and mergeable. Lengths count words separated
by white space in title and text together, as in Table 1 of the BEIR paper.
"""

from __future__ import annotations

import io
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from evaluation.collections.beir import Document, FileProblems, Progress, iterate_documents
from evaluation.text.words import lower_case, words

_COMPRESSION_LEVEL = 3
#: Description of the words for captions.
TOKENISATION = "words by UAX #29 in lower case, unstemmed, stop words kept"
#: Maximum number of different words stored for a corpus, the most frequent ones.
MAX_WORDS = 2**20
_HASH_BYTES = 8


@dataclass(frozen=True)
class Unigrams:
    """Word counts: `keys` (sorted hashes) and `counts`, both of shape (vocabulary,).

    `total` is the number of words in the corpus, including `dropped` occurrences of words that are too rare to store.
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    total: int
    dropped: int = 0

    @classmethod
    def from_counts(cls, word_counts: Mapping[str, int], dropped: int = 0) -> Unigrams:
        """Build from a mapping of words to counts; `dropped` is the number of occurrences of words omitted from it."""
        keys = np.fromiter(map(hash_word, word_counts), np.uint64, len(word_counts))
        counts = np.fromiter(word_counts.values(), np.uint64, len(word_counts))
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], counts[order], int(counts.sum()) + dropped, dropped)

    @property
    def vocabulary(self) -> int:
        return len(self.keys)

    @property
    def dropped_share(self) -> float:
        return self.dropped / self.total if self.total else 0.0


class UnigramCounter:
    """Counter of words in bounded memory.

    If there are more than twice `max_words` spellings, only the `max_words` most frequent words remain (equally
    frequent ones all or none), and the occurrences of other words are counted as dropped. `weighted_jaccard` describes
    the effect.
    """

    def __init__(self, max_words: int = MAX_WORDS) -> None:
        self._max_words = max_words
        self._spellings: Counter[str] = Counter()
        self._dropped = 0

    def add(self, text: str) -> None:
        self._spellings.update(words(text))
        if len(self._spellings) > 2 * self._max_words:
            self._prune()

    def result(self) -> Unigrams:
        """Return the counts so far."""
        self._prune()
        return Unigrams.from_counts(self._spellings, self._dropped)

    def _prune(self) -> None:
        """Merge spellings that differ only by case, and drop the rarest words if there are more than the maximum."""
        # Lowercasing here folds each distinct spelling once, however often it occurs.
        folded: Counter[str] = Counter()
        for spelling, count in self._spellings.items():
            if spelling.strip("_"):
                folded[lower_case(spelling)] += count
        if len(folded) > self._max_words:
            counts = np.fromiter(folded.values(), np.int64, len(folded))
            threshold = int(np.partition(counts, -self._max_words - 1)[-self._max_words - 1])
            self._dropped += int(counts[counts <= threshold].sum())
            folded = Counter({word: count for word, count in folded.items() if count > threshold})
        self._spellings = folded


def hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest(), "little")


class Bounds(NamedTuple):
    """Lower and upper bound of a similarity, equal if no words were dropped."""

    low: float
    high: float


def weighted_jaccard(first: Unigrams, second: Unigrams) -> float:
    """Return Σ min(a, b) / Σ max(a, b) over all words, where a and b are a word's shares of each corpus.

    BEIR paper (Thakur et al. 2021), Appendix F. Symmetric, from 0 to 1: 1 for equal shares, 0 if either corpus has no
    words. Dropped words count as not shared, so this is a lower bound: `jaccard_bounds` returns both bounds.
    """
    return jaccard_bounds(first, second).low


def jaccard_bounds(first: Unigrams, second: Unigrams) -> Bounds:
    """Return the smallest and largest weighted Jaccard similarity that the dropped words permit.

    Shares sum to 1 in both corpora, so Σ max = 2 - Σ min. If dropped occurrences were shared, Σ min would grow by at
    most the share of words that either corpus dropped.
    """
    if not first.total or not second.total:
        return Bounds(0.0, 0.0)
    indices = np.searchsorted(second.keys, first.keys)
    indices[indices == len(second.keys)] = 0
    shared = second.keys[indices] == first.keys if len(second.keys) else np.zeros(len(indices), np.bool_)
    common = np.minimum(
        first.counts[shared] / first.total,
        second.counts[indices[shared]] / second.total,
    )
    low = min(float(common.sum()), 1.0)
    high = min(low + first.dropped_share + second.dropped_share, 1.0)
    return Bounds(low / (2 - low), high / (2 - high))


#: Edges of the bins [edge, next edge): single lengths up to 8, then four bins per doubling. Lengths of 2**26
#: words or more, which the limit on lines rules out, would be in the last bin.
EDGES: tuple[int, ...] = tuple(sorted({0, *(round(2 ** (step / 4)) for step in range(26 * 4 + 1))}))
_EDGES = np.array(EDGES, np.int64)
#: Quantiles that are stored exactly.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class LengthDistribution:
    """Histogram of lengths; `counts` has one bin per edge of `EDGES`.

    `mean` and `quantiles` (for `QUANTILES`, each a length that occurs) are exact. After merging, the quantiles are
    estimated from the bins, and are lower than the exact ones by less than the width of a bin.
    """

    counts: NDArray[np.int64]
    mean: float
    quantiles: tuple[float, ...]

    @classmethod
    def from_lengths(cls, lengths: NDArray[np.integer[Any]] | Sequence[int]) -> LengthDistribution:
        """Build the distribution of these lengths in words, which may be empty."""
        values = np.asarray(lengths, np.int64)
        places = np.searchsorted(_EDGES, values, side="right") - 1
        counts = np.bincount(places, minlength=len(EDGES)).astype(np.int64)
        if not len(values):
            return cls(counts, 0.0, ())
        quantiles = np.quantile(values, QUANTILES, method="inverted_cdf")
        return cls(counts, float(values.mean()), tuple(float(value) for value in quantiles))

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """Return a stored quantile, or NaN without lengths. Raises ValueError if it is not in `QUANTILES`."""
        place = QUANTILES.index(share)
        return self.quantiles[place] if self.quantiles else float("nan")

    def as_data(self) -> dict[str, Any]:
        """Return plain values for JSON, without empty bins at either end.

        `edges` has one more value than `counts`: the upper edge of the last bin.
        """
        occupied_bins = np.flatnonzero(self.counts)
        first, last = (int(occupied_bins[0]), int(occupied_bins[-1])) if len(occupied_bins) else (0, -1)
        return {
            "edges": list(EDGES[first : last + 2]) if last >= first else [],
            "counts": self.counts[first : last + 1].tolist(),
            "mean": self.mean,
            "quantiles": list(self.quantiles),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> LengthDistribution:
        """Read the output of `as_data`. Raises ValueError for edges that are not in `EDGES`."""
        counts = np.zeros(len(EDGES), np.int64)
        for edge, count in zip(data["edges"], data["counts"], strict=False):
            counts[EDGES.index(edge)] = count
        return cls(counts, float(data["mean"]), tuple(data["quantiles"]))


def merge_distributions(distributions: Iterable[LengthDistribution]) -> LengthDistribution:
    """Return the distribution of the lengths in all distributions."""
    parts = list(distributions)
    if len(parts) == 1:
        return parts[0]
    counts = np.zeros(len(EDGES), np.int64)
    for each in parts:
        counts += each.counts
    if not counts.any():
        return LengthDistribution.from_lengths([])
    total = int(counts.sum())
    mean = sum(each.mean * each.total for each in parts) / total
    cumulative_counts = np.cumsum(counts)
    target_ranks = np.maximum(np.ceil(np.array(QUANTILES) * total), 1)
    bins = np.searchsorted(cumulative_counts, target_ranks)
    return LengthDistribution(counts, mean, tuple(float(EDGES[place]) for place in bins))


@dataclass(frozen=True)
class Share:
    """Share of the lengths from `low` up to, but not including, `high` words."""

    low: int
    high: int
    share: float


def shares(distribution: LengthDistribution, edges: Sequence[int]) -> list[Share]:
    """Return the share of all lengths in each range between adjacent `edges`, which must be in `EDGES`."""
    places = [EDGES.index(edge) for edge in edges]
    total = max(distribution.total, 1)
    return [
        Share(EDGES[low], EDGES[high], float(distribution.counts[low:high].sum()) / total)
        for low, high in pairwise(places)
    ]


def doublings(distributions: Iterable[LengthDistribution]) -> list[int]:
    """Return adjacent powers of two (or 0 and 1) as edges, from at most the shortest length to more than the longest.

    Returns no edges if there are no lengths.
    """
    occupied_bins = [np.flatnonzero(each.counts) for each in distributions if each.total]
    if not occupied_bins:
        return []
    shortest = EDGES[min(int(places[0]) for places in occupied_bins)]
    longest = EDGES[max(int(places[-1]) for places in occupied_bins)]
    edges = [0, *(2**power for power in range(27))]
    first_index = max(place for place, edge in enumerate(edges) if edge <= shortest)
    last = min((place for place, edge in enumerate(edges) if edge > longest), default=len(edges) - 1)
    return edges[first_index : last + 1]


@dataclass(frozen=True)
class DocumentLengths:
    """Document lengths in words by a hash of the id: `keys` (sorted) and `words`, both of shape (documents,)."""

    keys: NDArray[np.uint64]
    words: NDArray[np.uint32]

    def find(self, document_ids: Iterable[str]) -> NDArray[np.int64]:
        """Return the lengths of these documents in the given order, skipping documents that are not in the corpus."""
        requested_keys = np.fromiter(map(hash_word, document_ids), np.uint64)
        if not len(self.keys) or not len(requested_keys):
            return np.zeros(0, np.int64)
        places = np.minimum(np.searchsorted(self.keys, requested_keys), len(self.keys) - 1)
        is_present = self.keys[places] == requested_keys
        lengths: NDArray[np.int64] = self.words[places[is_present]].astype(np.int64)
        return lengths


@dataclass(frozen=True)
class CorpusProfile:
    """Profile of a corpus, with some `examples`: complete documents by id."""

    unigrams: Unigrams
    documents: DocumentLengths
    examples: dict[str, Document]

    @property
    def lengths(self) -> LengthDistribution:
        return LengthDistribution.from_lengths(self.documents.words)


def profile_corpus(path: Path, progress: Progress | None = None, *, examples: Iterable[str] = ()) -> CorpusProfile:
    """Compute the profile of a corpus in one pass.

    Memory is bounded by twice `MAX_WORDS` words and 12 bytes per document. `examples` are ids of documents to include;
    by default, the first document with a text is included. Invalid lines are skipped.
    """
    counter, keys, lengths = UnigramCounter(), array("Q"), array("I")
    example_ids, example_documents = set(examples), dict[str, Document]()
    for _, document in iterate_documents(path, FileProblems(path.name), progress):
        counter.add(f"{document.title}\n{document.text}")
        keys.append(hash_word(document.id))
        lengths.append(len(document.title.split()) + len(document.text.split()))
        if document.id in example_ids or (not example_ids and not example_documents and document.text.strip()):
            example_documents[document.id] = document
    key_array, length_array = np.array(keys, np.uint64), np.array(lengths, np.uint32)
    order = np.argsort(key_array, kind="stable")
    return CorpusProfile(counter.result(), DocumentLengths(key_array[order], length_array[order]), example_documents)


def write_profile(profile: CorpusProfile, path: Path) -> None:
    """Write words and lengths, compressed and deterministic. Examples are not written."""
    with (
        path.open("wb") as file,
        zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).stream_writer(file) as output,
    ):
        unigrams = profile.unigrams
        for values in (
            np.array([unigrams.total, unigrams.dropped], np.uint64),
            unigrams.keys,
            unigrams.counts,
            profile.documents.keys,
            profile.documents.words,
        ):
            block = io.BytesIO()
            np.save(block, values, allow_pickle=False)
            output.write(block.getbuffer())


def read_unigrams(path: Path) -> Unigrams:
    """Return the words of a stored profile."""
    totals, keys, counts = _read_arrays(path, 3)
    return Unigrams(keys, counts, int(totals[0]), int(totals[1]))


def read_document_lengths(path: Path) -> DocumentLengths:
    """Return the lengths of a stored profile."""
    *_, keys, words = _read_arrays(path, 5)
    return DocumentLengths(keys, words)


def _read_arrays(path: Path, number: int) -> list[NDArray[Any]]:
    """Return the first `number` arrays of the file."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as text:
        content = io.BytesIO(text.read())
    return [np.load(content, allow_pickle=False) for _ in range(number)]
