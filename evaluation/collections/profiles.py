"""Profiles of corpora, made in one pass: the words that they use, and the lengths of their documents.

A word (unigram) is one by UAX #29, in lower case, of any language: neither stemmed nor are stop words left out, so
that every corpus is read alike. Words are kept as 64-bit hashes: smaller, quickly compared, and no text. Among a
million words the chance that any two share a hash is 3 in 100 million. `weighted_jaccard` says how much two corpora
have in common (BEIR paper, Appendix F).

Distributions of lengths are histograms over fixed edges: small, exact to count, and mergeable. A word of a length is
what white space separates in title and text together, as in Table 1 of the BEIR paper.
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
        """Return the counts of these words, and of `dropped` further occurrences."""
        keys = np.fromiter(map(key_of, counted), np.uint64, len(counted))
        counts = np.fromiter(counted.values(), np.uint64, len(counted))
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], counts[order], int(counts.sum()) + dropped, dropped)

    @property
    def vocabulary(self) -> int:
        """Number of different words."""
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
        """Return the counts so far."""
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
    """Return the word's 64-bit hash."""
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
    """Return the least and the greatest weighted Jaccard similarity that the dropped words leave possible.

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


#: Lengths are counted in bins [edge, next edge): single lengths up to 8, then four bins to every doubling. A length of
#: 2**26 words or more, longer than any line that is accepted, would fall into the last one.
EDGES: tuple[int, ...] = tuple(sorted({0, *(round(2 ** (step / 4)) for step in range(26 * 4 + 1))}))
_EDGES = np.array(EDGES, np.int64)
#: The quantiles that are kept exactly.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class LengthDistribution:
    """How many lengths fall between each edge and the next. `counts` has one place per edge of `EDGES`.

    `mean` and `quantiles` (of `QUANTILES`, each a length that occurs) are of the lengths themselves; of a merged
    distribution the quantiles are read from the bins, and so lower than the true ones by less than a bin's width.
    """

    counts: NDArray[np.int64]
    mean: float
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, lengths: NDArray[np.integer[Any]] | Sequence[int]) -> LengthDistribution:
        """Return the distribution of these lengths, in words; none at all is possible."""
        values = np.asarray(lengths, np.int64)
        places = np.searchsorted(_EDGES, values, side="right") - 1
        counts = np.bincount(places, minlength=len(EDGES)).astype(np.int64)
        if not len(values):
            return cls(counts, 0.0, ())
        quantiles = np.quantile(values, QUANTILES, method="inverted_cdf")
        return cls(counts, float(values.mean()), tuple(float(value) for value in quantiles))

    @property
    def total(self) -> int:
        """How many lengths there are."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """One of the kept quantiles; nan of no lengths at all. Raises ValueError for one that is not kept."""
        place = QUANTILES.index(share)
        return self.quantiles[place] if self.quantiles else float("nan")

    def as_data(self) -> dict[str, Any]:
        """Plain values: edges and counts from the first bin with a length to the last, the edge after it included."""
        filled = np.flatnonzero(self.counts)
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, -1)
        return {
            "edges": list(EDGES[first : last + 2]) if last >= first else [],
            "counts": self.counts[first : last + 1].tolist(),
            "mean": self.mean,
            "quantiles": list(self.quantiles),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> LengthDistribution:
        """Read the data of `as_data`. Raises ValueError for edges that are not in `EDGES`."""
        counts = np.zeros(len(EDGES), np.int64)
        for edge, count in zip(data["edges"], data["counts"], strict=False):
            counts[EDGES.index(edge)] = count
        return cls(counts, float(data["mean"]), tuple(data["quantiles"]))


def merge_distributions(distributions: Iterable[LengthDistribution]) -> LengthDistribution:
    """Return the distribution of all lengths together."""
    several = list(distributions)
    if len(several) == 1:
        return several[0]
    counts = np.zeros(len(EDGES), np.int64)
    for each in several:
        counts += each.counts
    if not counts.any():
        return LengthDistribution.of([])
    total = int(counts.sum())
    mean = sum(each.mean * each.total for each in several) / total
    reached = np.cumsum(counts)
    wanted = np.maximum(np.ceil(np.array(QUANTILES) * total), 1)
    places = np.searchsorted(reached, wanted)
    return LengthDistribution(counts, mean, tuple(float(EDGES[place]) for place in places))


@dataclass(frozen=True)
class Share:
    """A range of lengths, from `low` words to `high` (not included), and the share of lengths in it."""

    low: int
    high: int
    share: float


def shares(distribution: LengthDistribution, edges: Sequence[int]) -> list[Share]:
    """Return the share of all lengths in each range between neighbouring `edges`, which are among `EDGES`."""
    places = [EDGES.index(edge) for edge in edges]
    total = max(distribution.total, 1)
    return [
        Share(EDGES[low], EDGES[high], float(distribution.counts[low:high].sum()) / total)
        for low, high in pairwise(places)
    ]


def doublings(distributions: Iterable[LengthDistribution]) -> list[int]:
    """Edges that double, from the one at or below the shortest length to the one above the longest."""
    filled = [np.flatnonzero(each.counts) for each in distributions if each.total]
    if not filled:
        return []
    shortest = EDGES[min(int(places[0]) for places in filled)]
    longest = EDGES[max(int(places[-1]) for places in filled)]
    edges = [0, *(2**power for power in range(27))]
    first = max(place for place, edge in enumerate(edges) if edge <= shortest)
    last = min((place for place, edge in enumerate(edges) if edge > longest), default=len(edges) - 1)
    return edges[first : last + 1]


@dataclass(frozen=True)
class DocumentLengths:
    """Words per document, by a 64-bit hash of the document's id: `keys` (sorted) and `words`, shape (documents,)."""

    keys: NDArray[np.uint64]
    words: NDArray[np.uint32]

    @classmethod
    def of(cls, keys: NDArray[np.uint64], words: NDArray[np.uint32]) -> DocumentLengths:
        """Return the lengths in the order of the keys."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], words[order])

    def find(self, document_ids: Iterable[str]) -> NDArray[np.int64]:
        """Return the lengths of these documents, in their order; those that the corpus does not have are left out."""
        wanted = np.fromiter(map(key_of, document_ids), np.uint64)
        if not len(self.keys) or not len(wanted):
            return np.zeros(0, np.int64)
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = self.keys[places] == wanted
        lengths: NDArray[np.int64] = self.words[places[found]].astype(np.int64)
        return lengths


@dataclass(frozen=True)
class CorpusProfile:
    """What figures need of a corpus. `examples`: documents by id, as they stand there."""

    unigrams: Unigrams
    documents: DocumentLengths
    examples: dict[str, Document]

    @property
    def lengths(self) -> LengthDistribution:
        """The distribution of the documents' lengths."""
        return LengthDistribution.of(self.documents.words)


def profile_corpus(
    path: Path, progress: Progress | None = None, *, examples: Iterable[str] = ()
) -> CorpusProfile:
    """Read a corpus once, as a stream: at most twice `MOST_WORDS` words and 12 bytes per document are held.

    `examples` are ids of documents to bring along; with none of them, the first document that has a text comes.
    Lines that are not documents are left out.
    """
    counter, keys, lengths = UnigramCounter(), array("Q"), array("I")
    wanted, found = set(examples), dict[str, Document]()
    for _, document in iterate_documents(path, FileProblems(path.name), progress):
        counter.add(f"{document.title}\n{document.text}")
        keys.append(key_of(document.id))
        lengths.append(len(document.title.split()) + len(document.text.split()))
        if document.id in wanted or (not wanted and not found and document.text.strip()):
            found[document.id] = document
    return CorpusProfile(
        counter.result(),
        DocumentLengths.of(np.array(keys, np.uint64), np.array(lengths, np.uint32)),
        found,
    )


def write_profile(profile: CorpusProfile, path: Path) -> None:
    """Write words and lengths, compressed; the same profile gives the same bytes. Examples are not written."""
    with (
        path.open("wb") as file,
        zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).stream_writer(file) as out,
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
            out.write(block.getbuffer())


def read_unigrams(path: Path) -> Unigrams:
    """Return the words of a written profile."""
    totals, keys, counts = _read(path, 3)
    return Unigrams(keys, counts, int(totals[0]), int(totals[1]))


def read_document_lengths(path: Path) -> DocumentLengths:
    """Return the lengths of a written profile."""
    *_, keys, words = _read(path, 5)
    return DocumentLengths(keys, words)


def _read(path: Path, number: int) -> list[NDArray[Any]]:
    """Return the first arrays of the file."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as text:
        whole = io.BytesIO(text.read())
    return [np.load(whole, allow_pickle=False) for _ in range(number)]
