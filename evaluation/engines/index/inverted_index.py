"""Inverted indexes on disk, mapped into memory: of terms and their frequencies, and of weights.

Files of an index of terms, in numpy's format unless they end in .bin or .json:
`terms.bin`: sorted terms, UTF-8, one behind the other, and `terms_offsets`: where each starts; `offsets`: the
postings of term t are [offsets[t]:offsets[t + 1]] of `documents` (numbers in the corpus's order) and
`frequencies`; `lengths` (fields × documents): encoded in one byte as below; identifiers as in `ordered_ids.py`;
`statistics.json`.

Document lengths are kept in one byte, as Lucene keeps them (SmallFloat.intToByte4). Lengths up to 40 are exact; above,
what exceeds 24 keeps four significant bits and is otherwise rounded down. BM25 equals Lucene's only with lengths
rounded in this way.

`IndexBuilder` builds an index from a stream of documents, in shards, so that no corpus is too large for memory. Tokens
are gathered as term numbers until a shard is full; a shard is inverted in memory and, if it is not the only one,
written to disk; at the end the shards' vocabularies are merged as sorted streams and their postings copied one behind
the other. What grows with the corpus in memory is one byte a document and field, the sorting of identifiers, and one
number for each distinct term of each shard.

An index of weights is for learned sparse retrieval: a document's score is the dot product with the query. An encoded
shard holds its documents as rows: document d has the terms and weights at [offsets[d]:offsets[d + 1]] of `terms`
(int32, ascending) and `weights` (float32), and its id in `ids` (see `strings`). The index holds the same by term:
postings [offsets[t]:offsets[t + 1]] of `documents` (uint32, ascending) and `weights`; ids as in `ordered_ids`.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evaluation.core.strings import Strings, StringsWriter, map_array
from evaluation.core.writing import new_map
from evaluation.engines import operations
from evaluation.engines.base import Floats, Numbers, Progress, Ranks, SearchResult, ignore
from evaluation.engines.index import kernels
from evaluation.engines.index.ordered_ids import OrderedIds, OrderedIdsWriter
from evaluation.text import Analyser
from evaluation.text.words import MAX_WORD_LENGTH, words_by_classes

#: Raise it when files, or what analysers make of a text, change: indexes that were kept are built again then.
FORMAT = 2

Number = TypeVar("Number", np.int32, np.int64)

#: A shard is inverted once it has this many tokens: 64 MiB of them, and about four times that at work.
TOKENS_IN_SHARD = 2**24

#: For documents that come as terms.
NO_ANALYSER = Analyser(name="none", description="terms as they are")

#: Stands before a term once for each field before its own, so that fields share one sorted vocabulary.
FIELD_MARK = "\x01"


class _TermNumbers(dict[str, int]):
    """Word of one field → number of its term in the shard, -1 for stop words; analysed once for each distinct word.

    Words too long to be kept whole are not entered: they count as -1, and `long_word_met` is set.
    """

    def __init__(self, analyser: Analyser, field: int, numbers: dict[str, int]) -> None:
        self._analyser = analyser
        self._mark = FIELD_MARK * field
        self._numbers = numbers
        self.long_word_met = False

    def __missing__(self, word: str) -> int:
        if len(word) > MAX_WORD_LENGTH:
            self.long_word_met = True
            return -1
        term = self._analyser.term(word)
        number = -1 if term is None else self._numbers.setdefault(self._mark + term, len(self._numbers))
        self[word] = number
        return number


@dataclass(frozen=True, slots=True)
class _Postings:
    """Postings of a shard by sorted term; documents are numbered over the whole corpus."""

    terms: list[str]
    offsets: Numbers
    documents: Ranks
    frequencies: NDArray[np.uint16]

    def save(self, folder: Path) -> None:
        """Write all but the terms."""
        np.save(folder / "offsets.npy", self.offsets)
        np.save(folder / "documents.npy", self.documents)
        np.save(folder / "frequencies.npy", self.frequencies)


class _PostingsWriter:
    """Writes the postings of an index in a folder, shard by shard. `values` names what a posting has, of a type."""

    def __init__(
        self, folder: Path, offsets: Numbers, values: str, dtype: type[np.uint16 | np.float32]
    ) -> None:
        np.save(folder / "offsets.npy", offsets)
        self._cursors, size = offsets[:-1].copy(), (int(offsets[-1]),)
        self._documents = new_map(folder / "documents.npy", np.uint32, size)
        self._values = new_map(folder / f"{values}.npy", dtype, size)

    def append(
        self, numbers: NDArray[np.int32], offsets: Numbers, documents: Ranks, values: NDArray[Any]
    ) -> None:
        """Write a shard's postings by term; `numbers` are those that its terms have in the whole index."""
        kernels.append_postings(
            numbers,
            offsets,
            documents,
            values,
            self._cursors,
            np.asarray(self._documents),
            np.asarray(self._values),
        )

    def close(self) -> None:
        """Have everything on disk."""
        self._documents.flush()
        self._values.flush()


class IndexBuilder:
    """Takes documents one by one, and leaves an index in `folder` (see `inverted_index` for its files)."""

    def __init__(
        self,
        folder: Path,
        analyser: Analyser = NO_ANALYSER,
        fields: int = 1,
        tokens_in_shard: int = TOKENS_IN_SHARD,
    ) -> None:
        self._folder = folder
        self._analyser = analyser
        self._fields = fields
        self._tokens_in_shard = tokens_in_shard
        self._ids = OrderedIdsWriter(folder)
        self._lengths: list[NDArray[np.int32]] = []  # of each shard: documents × fields
        self._shards = 0
        self._first_document = 0
        self._start_shard()

    def _start_shard(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words = [_TermNumbers(self._analyser, field, self._numbers) for field in range(self._fields)]
        self._tokens = array("i")
        self._ends = array("q")

    def add(self, identifier: str, texts: Sequence[str]) -> None:
        """Index a document: one text for each field."""
        self._ids.write(identifier)
        for text, numbers in zip(texts, self._words, strict=True):
            found = self._analyser.cut(text)
            start = len(self._tokens)
            self._tokens.extend(map(numbers.__getitem__, found))
            if numbers.long_word_met:
                numbers.long_word_met = False
                del self._tokens[start:]
                self._tokens.extend(numbers[piece] for word in found for piece in words_by_classes(word))
            self._ends.append(len(self._tokens))
        self._end_document()

    def add_counts(self, identifier: str, counts: Mapping[str, int]) -> None:
        """Index a document of one field by its terms, taken as they are, and how often each counts."""
        self._ids.write(identifier)
        numbers = self._numbers
        for term, count in counts.items():
            self._tokens.extend([numbers.setdefault(term, len(numbers))] * count)
        self._ends.append(len(self._tokens))
        self._end_document()

    def _end_document(self) -> None:
        """Write the shard if it is full."""
        if len(self._tokens) >= self._tokens_in_shard:
            self._write_shard(self._invert())
            self._start_shard()

    def finish(self) -> None:
        """Write the index."""
        last = self._invert()
        if self._shards == 0:
            with StringsWriter(self._folder, "terms") as writer:
                for term in last.terms:
                    writer.write(term)
            last.save(self._folder)
        else:
            self._write_shard(last)
            del last
            self._merge()
        self._write_documents()

    def _invert(self) -> _Postings:
        """Return the postings of the shard gathered so far."""
        terms = sorted(self._numbers)
        sorted_numbers = np.empty(len(terms) + 1, dtype=np.int32)
        sorted_numbers[-1] = -1  # stop words stay what they are
        sorted_numbers[[self._numbers[term] for term in terms]] = np.arange(len(terms), dtype=np.int32)
        tokens = sorted_numbers[_as_array(self._tokens, np.int32)]
        ends = _as_array(self._ends, np.int64)
        offsets = np.zeros(len(terms) + 1, dtype=np.int64)
        lengths = np.empty(len(ends), dtype=np.int32)
        kernels.count_postings(tokens, ends, self._fields, offsets[1:], lengths)
        np.cumsum(offsets, out=offsets)
        documents = np.empty(offsets[-1], dtype=np.uint32)
        frequencies = np.empty(offsets[-1], dtype=np.uint16)
        kernels.fill_postings(
            tokens, ends, self._fields, self._first_document, offsets, documents, frequencies
        )
        self._lengths.append(lengths.reshape(-1, self._fields))
        self._first_document += len(self._lengths[-1])
        return _Postings(terms, offsets, documents, frequencies)

    def _write_shard(self, postings: _Postings) -> None:
        folder = self._shard_folder(self._shards)
        folder.mkdir()
        (folder / "terms.txt").write_text("".join(f"{term}\n" for term in postings.terms), "utf-8")
        postings.save(folder)
        self._shards += 1

    def _shard_folder(self, number: int) -> Path:
        return self._folder / f"shard-{number}"

    def _merge(self) -> None:
        """Merge the shards into the index, and remove them."""
        numbers, offsets = self._merge_vocabularies()
        writer = _PostingsWriter(self._folder, offsets, "frequencies", np.uint16)
        for shard in range(self._shards):
            folder = self._shard_folder(shard)
            arrays = (np.load(folder / f"{name}.npy") for name in ("offsets", "documents", "frequencies"))
            writer.append(_as_array(numbers[shard], np.int32), *arrays)
            rmtree(folder)
        writer.close()

    def _merge_vocabularies(self) -> tuple[list[array[int]], Numbers]:
        """Write the sorted terms of all shards; return each shard's term numbers, and the postings' offsets."""
        frequencies = [np.diff(np.load(self._shard_folder(n) / "offsets.npy")) for n in range(self._shards)]
        numbers = [array("i") for _ in range(self._shards)]
        counts = array("q", [0])
        with ExitStack() as stack:
            writer = stack.enter_context(StringsWriter(self._folder, "terms"))
            paths = [self._shard_folder(n) / "terms.txt" for n in range(self._shards)]
            files = [stack.enter_context(path.open(encoding="utf-8")) for path in paths]
            streams = [zip((line[:-1] for line in file), repeat(n)) for n, file in enumerate(files)]
            for number, (term, group) in enumerate(groupby(merge(*streams), key=itemgetter(0))):
                writer.write(term)
                count = 0
                for _, shard in group:
                    count += int(frequencies[shard][len(numbers[shard])])
                    numbers[shard].append(number)
                counts.append(count)
        return numbers, np.cumsum(np.frombuffer(counts, dtype=np.int64))

    def _write_documents(self) -> None:
        """Write identifiers, lengths, and the order that breaks ties."""
        lengths = np.concatenate(self._lengths)
        np.save(self._folder / "lengths.npy", np.ascontiguousarray(encode_lengths(lengths).T))
        self._ids.close()
        statistics = {
            "documents": len(self._ids),
            "fields": self._fields,
            "documents_with_field": np.count_nonzero(lengths, axis=0).tolist(),
            "tokens": lengths.sum(axis=0, dtype=np.int64).tolist(),
        }
        (self._folder / "statistics.json").write_text(json.dumps(statistics), "utf-8")


def _as_array(values: array[int], kind: type[Number]) -> NDArray[Number]:
    """Return the values where they lie, as a numpy array; numpy itself refuses to do this for none."""
    return np.frombuffer(values, kind) if values else np.empty(0, kind)


#: Codes below this stand for themselves.
_EXACT = 24


def _decode(code: int) -> int:
    """SmallFloat.byte4ToInt."""
    if code < _EXACT:
        return code
    bits, shift = (code - _EXACT) & 7, ((code - _EXACT) >> 3) - 1
    return _EXACT + (bits if shift < 0 else (bits | 8) << shift)


#: Code → length: 256 ascending values.
DECODED_LENGTHS: Numbers = np.array([_decode(code) for code in range(256)], dtype=np.int64)


def encode_lengths(lengths: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Return the codes of lengths ≥ 0, in the same shape: the greatest decoded length not above each."""
    return (np.searchsorted(DECODED_LENGTHS, lengths, side="right") - 1).astype(np.uint8)


#: How many terms' places are remembered; a lookup takes a few microseconds, a remembered one a tenth.
_TERMS_REMEMBERED = 100_000


class _MappedPostings:
    """Postings of an index, opened for searching; `values` names what a posting has beside its document.

    Arrays are mapped copy-on-write, so that nothing can change the files.
    """

    def __init__(self, folder: Path, values: str) -> None:
        self.folder = folder
        self.offsets: Numbers = map_array(folder / "offsets.npy")
        self.documents: Ranks = map_array(folder / "documents.npy")
        self._values = map_array(folder / f"{values}.npy")
        self._ids = OrderedIds(folder)
        self.ranks = self._ids.ranks
        self._sums = np.zeros(kernels.BLOCK_SIZE, np.float64)
        self._keys = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._ids)

    def identifiers(self, ranks: Ranks) -> list[str]:
        """Return the identifiers at these places of the descending order."""
        return self._ids.at(ranks)

    def best(
        self,
        terms: NDArray[np.integer],
        weights: Floats,
        depth: int,
        norms: kernels.Norms | None = None,
        mask: np.uint64 = kernels.DESCENDING,
    ) -> tuple[Ranks, Floats]:
        """Return the best `depth` documents for weighted terms as (places in the order of identifiers, scores).

        See `kernels.search` for `norms` and `mask`.
        """
        if len(self._keys) < 2 * depth + kernels.SPARE_KEYS:
            self._keys = np.empty(2 * depth + kernels.SPARE_KEYS, np.uint64)
        starts, ends = self.offsets[terms], self.offsets[terms + 1]
        operations.add(lambda: int((ends - starts).sum()))
        found = kernels.search(
            self.documents,
            self._values,
            starts.astype(np.uint64),
            ends.astype(np.uint64),
            weights,
            norms,
            self.ranks,
            depth,
            self._sums,
            self._keys,
            mask,
        )
        return kernels.read_keys(self._keys[:found], mask)


class InvertedIndex(_MappedPostings):
    """An index of terms, opened for searching."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "frequencies")
        self.frequencies: NDArray[np.uint16] = self._values
        statistics = json.loads((folder / "statistics.json").read_text("utf-8"))
        self.document_count: int = statistics["documents"]
        #: By field: how many documents have a token in it, and how many tokens they have together.
        self.documents_with_field: list[int] = statistics["documents_with_field"]
        self.tokens: list[int] = statistics["tokens"]
        self.lengths: NDArray[np.uint8] = map_array(folder / "lengths.npy")
        self._terms = Strings(folder, "terms")
        self._places: dict[str, int] = {}

    @property
    def fields(self) -> int:
        """How many fields are indexed apart."""
        return len(self.tokens)

    def place(self, term: str) -> int:
        """Return the number of a term (with its field's mark), -1 if no document has it."""
        place = self._places.get(term)
        if place is None:
            key = term.encode("utf-8", "replace")
            place = bisect_left(self._terms, key)
            if place == len(self._terms) or self._terms[place] != key:
                place = -1
            if len(self._places) >= _TERMS_REMEMBERED:
                self._places.clear()
            self._places[term] = place
        return place

    def terms(self) -> Iterator[str]:
        """Yield all terms (with their fields' marks) in the order of their numbers."""
        return (str(term, "utf-8") for term in self._terms)


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse vectors: row r has the terms and weights at [offsets[r]:offsets[r + 1]], terms ascending."""

    offsets: Numbers
    terms: NDArray[np.int32]
    weights: Floats

    def row(self, number: int) -> tuple[NDArray[np.int32], Floats]:
        """Terms and weights of one row."""
        here = slice(self.offsets[number], self.offsets[number + 1])
        return self.terms[here], self.weights[here]


def write_sparse_shard(folder: Path, ids: Sequence[str], rows: SparseRows) -> None:
    """Write the encoded documents of a shard, one row each."""
    with StringsWriter(folder, "ids") as writer:
        for identifier in ids:
            writer.write(identifier)
    np.save(folder / "offsets.npy", rows.offsets)
    np.save(folder / "terms.npy", rows.terms)
    np.save(folder / "weights.npy", rows.weights)


def write_weighted_index(
    shards: Sequence[Path], folder: Path, dimension: int, progress: Progress = ignore
) -> None:
    """Index shards, in corpus order, for `dimension` terms. In memory at once: one shard, and the ids."""
    counts = np.zeros(dimension, np.int64)
    for shard in shards:
        counts += np.bincount(map_array(shard / "terms.npy"), minlength=dimension)
    writer = _PostingsWriter(folder, _starts(counts), "weights", np.float32)
    ids, all_terms = OrderedIdsWriter(folder), np.arange(dimension, dtype=np.int32)
    for number, shard in enumerate(shards, 1):
        terms, lengths = map_array(shard / "terms.npy"), np.diff(map_array(shard / "offsets.npy"))
        documents = np.repeat(np.arange(len(ids), len(ids) + len(lengths), dtype=np.uint32), lengths)
        by_term, weights = np.argsort(terms, kind="stable"), map_array(shard / "weights.npy")
        starts = _starts(np.bincount(terms, minlength=dimension))
        writer.append(all_terms, starts, documents[by_term], weights[by_term])
        for identifier in Strings(shard, "ids"):
            ids.write(str(identifier, "utf-8"))
        progress(number / len(shards))
    writer.close()
    ids.close()


def _starts(counts: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


class WeightedIndex(_MappedPostings):
    """An index of weights, opened for searching."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "weights")
        kernels.load()

    @property
    def nonzeros(self) -> int:
        """Weights of all documents together."""
        return len(self._values)

    def search(self, query: str, terms: NDArray[np.int32], weights: Floats, depth: int) -> SearchResult:
        """Return the best `depth` documents with a positive score for the query of this id and these terms."""
        ranks, scores = self.best(terms, weights, depth)
        return SearchResult(query, self.identifiers(ranks), scores)
