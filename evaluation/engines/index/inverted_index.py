"""Memory-mapped inverted indexes of term frequencies and of weights.

Files of a term index, in .npy format unless they end in .bin or .json:

- `terms.bin`: sorted terms in UTF-8, concatenated, and `terms_offsets`: their starts;
- `offsets`: the postings of term t are [offsets[t]:offsets[t + 1]] of `documents` and `frequencies`;
- `documents`: document numbers in corpus order;
- `lengths` (fields × documents): lengths encoded in one byte as below;
- `statistics.json`, and the ids as described in `ordered_ids`.

Document lengths are encoded in one byte as in Lucene (SmallFloat.intToByte4). Lengths up to 40 are exact; of larger
ones, the excess over 24 is rounded down to four significant bits. BM25 equals Lucene's only with this rounding.

`IndexBuilder` builds an index from a stream of documents in shards, so that the corpus need not fit into memory. Tokens
are collected as term numbers until a shard is full. A shard is inverted in memory and, unless it is the only one,
written to disk. Finally, the vocabularies of the shards are merged as sorted streams and their postings concatenated.
Memory grows with the corpus by one byte per document and field, the sorting of ids, and one number for each distinct
term of each shard.

A weighted index is for learned sparse retrieval, where the score of a document is its dot product with the query. An
encoded shard stores documents as rows: document d has the terms and weights at [offsets[d]:offsets[d + 1]] of `terms`
(int32, ascending) and `weights` (float32), and its id in `ids` (see `core.strings`). The index stores the same data by
term: postings [offsets[t]:offsets[t + 1]] of `documents` (uint32, ascending) and `weights`, with ids as in
`ordered_ids`.
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
from evaluation.engines.base import Floats, Norms, Numbers, Progress, Ranks, SearchResult, ignore
from evaluation.engines.index.ordered_ids import OrderedIds, OrderedIdsWriter
from evaluation.text import Analyser
from evaluation.text.words import MAX_WORD_LENGTH, words_by_classes

#: Version of the index. Increase it when files or analyzers change, so that stored indexes are rebuilt.
FORMAT = 2

Number = TypeVar("Number", np.int32, np.int64)

#: Number of tokens at which a shard is inverted: 64 MiB, and about four times that during inversion.
TOKENS_IN_SHARD = 2**24

#: Analyzer for documents that consist of terms.
NO_ANALYSER = Analyser(name="none", description="terms as they are")

#: Prefix of a term, repeated once for each preceding field, so that fields share one sorted vocabulary.
FIELD_MARK = "\x01"


class _TermNumbers(dict[str, int]):
    """Cache that maps the words of a field to term numbers in the shard, and stop words to -1.

    Overlong words are not cached: they yield -1, and set `has_long_word`.
    """

    def __init__(self, analyser: Analyser, field: int, numbers: dict[str, int]) -> None:
        self._analyser = analyser
        self._mark = FIELD_MARK * field
        self._numbers = numbers
        self.has_long_word = False

    def __missing__(self, word: str) -> int:
        if len(word) > MAX_WORD_LENGTH:
            self.has_long_word = True
            return -1
        term = self._analyser.term(word)
        number = -1 if term is None else self._numbers.setdefault(self._mark + term, len(self._numbers))
        self[word] = number
        return number


@dataclass(frozen=True, slots=True)
class _Postings:
    """Postings of a shard, sorted by term. Documents are numbered over the whole corpus."""

    terms: list[str]
    offsets: Numbers
    documents: Ranks
    frequencies: NDArray[np.uint16]

    def save(self, folder: Path) -> None:
        """Write everything except the terms."""
        np.save(folder / "offsets.npy", self.offsets)
        np.save(folder / "documents.npy", self.documents)
        np.save(folder / "frequencies.npy", self.frequencies)


class _PostingsWriter:
    """Writes the postings of an index shard by shard.

    `values` is the name of the second array, such as "frequencies".
    """

    def __init__(self, folder: Path, offsets: Numbers, values: str, dtype: type[np.uint16 | np.float32]) -> None:
        np.save(folder / "offsets.npy", offsets)
        self._cursors, size = offsets[:-1].copy(), (int(offsets[-1]),)
        self._documents = new_map(folder / "documents.npy", np.uint32, size)
        self._values = new_map(folder / f"{values}.npy", dtype, size)

    def append(self, numbers: NDArray[np.int32], offsets: Numbers, documents: Ranks, values: NDArray[Any]) -> None:
        """Append a shard's postings. `numbers` maps the shard's terms to their numbers in the whole index."""
        from evaluation.engines.index import kernels

        outputs = np.asarray(self._documents), np.asarray(self._values)
        kernels.append_postings(numbers, offsets, documents, values, self._cursors, *outputs)

    def close(self) -> None:
        self._documents.flush()
        self._values.flush()


class IndexBuilder:
    """Builds an index from single documents; see the module for its files."""

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
        self._lengths: list[NDArray[np.int32]] = []  # one array per shard, documents × fields
        self._shards = 0
        self._first_document = 0
        self._start_shard()

    def _start_shard(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words = [_TermNumbers(self._analyser, field, self._numbers) for field in range(self._fields)]
        self._tokens = array("i")
        self._ends = array("q")

    def add(self, identifier: str, texts: Sequence[str]) -> None:
        """Index a document with one text for each field."""
        self._ids.write(identifier)
        for text, numbers in zip(texts, self._words, strict=True):
            words = self._analyser.cut(text)
            start = len(self._tokens)
            self._tokens.extend(map(numbers.__getitem__, words))
            if numbers.has_long_word:
                numbers.has_long_word = False
                del self._tokens[start:]
                self._tokens.extend(numbers[piece] for word in words for piece in words_by_classes(word))
            self._ends.append(len(self._tokens))
        self._flush_if_full()

    def add_counts(self, identifier: str, counts: Mapping[str, int]) -> None:
        """Index a document with a single field from its term frequencies."""
        self._ids.write(identifier)
        numbers = self._numbers
        for term, count in counts.items():
            self._tokens.extend([numbers.setdefault(term, len(numbers))] * count)
        self._ends.append(len(self._tokens))
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        """Write the current shard and start a new one if it is full."""
        if len(self._tokens) >= self._tokens_in_shard:
            self._write_shard(self._invert())
            self._start_shard()

    def finish(self) -> None:
        """Write the index of all added documents, merging the shards on disk if there are any."""
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
        """Return the postings of the current shard, and record the lengths and the number of its documents."""
        from evaluation.engines.index import kernels

        terms = sorted(self._numbers)
        sorted_numbers = np.empty(len(terms) + 1, dtype=np.int32)
        sorted_numbers[-1] = -1  # maps stop words to -1
        sorted_numbers[[self._numbers[term] for term in terms]] = np.arange(len(terms), dtype=np.int32)
        tokens = sorted_numbers[_as_array(self._tokens, np.int32)]
        ends = _as_array(self._ends, np.int64)
        offsets = np.zeros(len(terms) + 1, dtype=np.int64)
        lengths = np.empty(len(ends), dtype=np.int32)
        kernels.count_postings(tokens, ends, self._fields, offsets[1:], lengths)
        np.cumsum(offsets, out=offsets)
        documents = np.empty(offsets[-1], dtype=np.uint32)
        frequencies = np.empty(offsets[-1], dtype=np.uint16)
        kernels.fill_postings(tokens, ends, self._fields, self._first_document, offsets, documents, frequencies)
        self._lengths.append(lengths.reshape(-1, self._fields))
        self._first_document += len(self._lengths[-1])
        return _Postings(terms, offsets, documents, frequencies)

    def _write_shard(self, postings: _Postings) -> None:
        """Write the terms and postings of a shard to a new numbered folder."""
        folder = self._shard_folder(self._shards)
        folder.mkdir()
        (folder / "terms.txt").write_text("".join(f"{term}\n" for term in postings.terms), "utf-8")
        postings.save(folder)
        self._shards += 1

    def _shard_folder(self, number: int) -> Path:
        return self._folder / f"shard-{number}"

    def _merge(self) -> None:
        """Merge the shards into the index and remove them."""
        numbers, offsets = self._merge_vocabularies()
        writer = _PostingsWriter(self._folder, offsets, "frequencies", np.uint16)
        for shard in range(self._shards):
            folder = self._shard_folder(shard)
            arrays = (np.load(folder / f"{name}.npy") for name in ("offsets", "documents", "frequencies"))
            writer.append(_as_array(numbers[shard], np.int32), *arrays)
            rmtree(folder)
        writer.close()

    def _merge_vocabularies(self) -> tuple[list[array[int]], Numbers]:
        """Write the sorted terms of all shards. Return each shard's term numbers and the offsets of all postings."""
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
        """Write lengths, statistics, and ids with their ranks."""
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
    """Return a NumPy view of the values. `np.frombuffer` does not accept empty arrays."""
    return np.frombuffer(values, kind) if values else np.empty(0, kind)


#: Lengths below this value are their own codes.
_EXACT_LENGTHS = 24


def _decode_length(code: int) -> int:
    """Decode a length as Lucene's SmallFloat.byte4ToInt."""
    if code < _EXACT_LENGTHS:
        return code
    bits, shift = (code - _EXACT_LENGTHS) & 7, ((code - _EXACT_LENGTHS) >> 3) - 1
    return _EXACT_LENGTHS + (bits if shift < 0 else (bits | 8) << shift)


#: Lengths of the 256 codes, ascending.
DECODED_LENGTHS: Numbers = np.array([_decode_length(code) for code in range(256)], dtype=np.int64)


def encode_lengths(lengths: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Return the codes of non-negative lengths, in the same shape. Lengths are rounded down."""
    return (np.searchsorted(DECODED_LENGTHS, lengths, side="right") - 1).astype(np.uint8)


#: Maximum number of cached term numbers. An uncached lookup needs a few microseconds, ten times more.
_MAX_CACHED_TERMS = 100_000


class _MappedPostings:
    """Postings of an index that is open for searching.

    Arrays are mapped copy-on-write, so that the files cannot be changed.
    """

    #: Name of the second array.
    values_name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets: Numbers = map_array(folder / "offsets.npy")
        self.documents: Ranks = map_array(folder / "documents.npy")
        self._values = map_array(folder / f"{self.values_name}.npy")
        self._ids = OrderedIds(folder)
        self.ranks = self._ids.ranks
        # Buffers of `find_best`.
        self._sums, self._keys = np.empty(0, np.float64), np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._ids)

    def identifiers(self, ranks: Ranks) -> list[str]:
        return self._ids.get_ids_at(ranks)

    def find_best(
        self,
        terms: NDArray[np.integer],
        weights: Floats,
        depth: int,
        norms: Norms | None = None,
        ascending: bool = False,
    ) -> tuple[Ranks, Floats]:
        """Return ranks and scores of the best `depth` documents for weighted terms.

        See `kernels.search` for `norms`. `ascending` is the order of ids among equal scores.
        """
        from evaluation.engines.index import kernels

        mask = kernels.ASCENDING if ascending else kernels.DESCENDING
        if not len(self._sums):
            self._sums = np.zeros(kernels.BLOCK_SIZE, np.float64)
        if len(self._keys) < 2 * depth + kernels.SPARE_KEYS:
            self._keys = np.empty(2 * depth + kernels.SPARE_KEYS, np.uint64)
        starts, ends = self.offsets[terms].astype(np.uint64), self.offsets[terms + 1].astype(np.uint64)
        operations.add(lambda: int((ends - starts).sum()))
        key_count = kernels.search(
            self.documents,
            self._values,
            starts,
            ends,
            weights,
            norms,
            self.ranks,
            depth,
            self._sums,
            self._keys,
            mask,
        )
        return kernels.read_keys(self._keys[:key_count], mask)


class InvertedIndex(_MappedPostings):
    """A term index that is open for searching."""

    values_name = "frequencies"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.frequencies: NDArray[np.uint16] = self._values
        statistics = json.loads((folder / "statistics.json").read_text("utf-8"))
        self.document_count: int = statistics["documents"]
        #: Number of documents with a token in each field, and number of tokens in each field.
        self.documents_with_field: list[int] = statistics["documents_with_field"]
        self.tokens: list[int] = statistics["tokens"]
        self.lengths: NDArray[np.uint8] = map_array(folder / "lengths.npy")
        self._terms = Strings(folder, "terms")
        self._term_numbers: dict[str, int] = {}

    @property
    def fields(self) -> int:
        return len(self.tokens)

    def get_term_number(self, term: str) -> int:
        """Return the number of a term (including its field's mark), or -1 if no document contains it."""
        number = self._term_numbers.get(term)
        if number is None:
            key = term.encode("utf-8", "replace")
            number = bisect_left(self._terms, key)
            if number == len(self._terms) or self._terms[number] != key:
                number = -1
            if len(self._term_numbers) >= _MAX_CACHED_TERMS:
                self._term_numbers.clear()
            self._term_numbers[term] = number
        return number

    def terms(self) -> Iterator[str]:
        """Yield all terms (including their fields' marks) in the order of their numbers."""
        return (str(term, "utf-8") for term in self._terms)


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse vectors: row r has the terms and weights at [offsets[r]:offsets[r + 1]], with ascending terms."""

    offsets: Numbers
    terms: NDArray[np.int32]
    weights: Floats

    def row(self, number: int) -> tuple[NDArray[np.int32], Floats]:
        positions = slice(self.offsets[number], self.offsets[number + 1])
        return self.terms[positions], self.weights[positions]


def write_sparse_shard(folder: Path, ids: Sequence[str], rows: SparseRows) -> None:
    """Write the ids and the weighted terms of consecutive documents as one shard."""
    with StringsWriter(folder, "ids") as writer:
        for identifier in ids:
            writer.write(identifier)
    np.save(folder / "offsets.npy", rows.offsets)
    np.save(folder / "terms.npy", rows.terms)
    np.save(folder / "weights.npy", rows.weights)


def write_weighted_index(shards: Sequence[Path], folder: Path, dimension: int, progress: Progress = ignore) -> None:
    """Write a weighted index of `dimension` terms to `folder`, from encoded shards in corpus order.

    One shard and all ids are in memory at a time.
    """
    counts = np.zeros(dimension, np.int64)
    for shard in shards:
        counts += np.bincount(map_array(shard / "terms.npy"), minlength=dimension)
    writer = _PostingsWriter(folder, _starts(counts), "weights", np.float32)
    ids, all_terms = OrderedIdsWriter(folder), np.arange(dimension, dtype=np.int32)
    for number, shard in enumerate(shards, 1):
        terms, lengths = map_array(shard / "terms.npy"), np.diff(map_array(shard / "offsets.npy"))
        documents = np.repeat(np.arange(len(ids), len(ids) + len(lengths), dtype=np.uint32), lengths)
        order, weights = np.argsort(terms, kind="stable"), map_array(shard / "weights.npy")
        starts = _starts(np.bincount(terms, minlength=dimension))
        writer.append(all_terms, starts, documents[order], weights[order])
        for identifier in Strings(shard, "ids"):
            ids.write(str(identifier, "utf-8"))
        progress(number / len(shards))
    writer.close()
    ids.close()


def _starts(counts: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


class WeightedIndex(_MappedPostings):
    """A weighted index that is open for searching."""

    values_name = "weights"

    def __init__(self, folder: Path) -> None:
        from evaluation.engines.index import kernels

        super().__init__(folder)
        kernels.load()

    @property
    def nonzeros(self) -> int:
        """Total number of weights of all documents."""
        return len(self._values)

    def search(self, query: str, terms: NDArray[np.int32], weights: Floats, depth: int) -> SearchResult:
        """Return the best `depth` documents with a positive score for a query."""
        ranks, scores = self.find_best(terms, weights, depth)
        return SearchResult(query, self.identifiers(ranks), scores)
