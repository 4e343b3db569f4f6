"""The text of a run read by plain means: lines split at white space, scores by `float`, a dictionary for each query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

#: `{query id: {document id: score}}`.
Rankings = dict[str, dict[str, float]]

#: Bytes read at once: small pieces stay in the processor's cache while they are split, large ones pay for arrays.
_BLOCK, _FILTERED_BLOCK = 1 << 14, 1 << 20
#: A query's lines are cut to its best so many times its depth while they are read, to bound memory.
_DEPTHS_KEPT = 4


def best_first(ranked: dict[str, float], count: int) -> list[str]:
    """The first `count` documents in trec_eval's order: scores in single precision descending, then ids descending.

    Raises ValueError for a score that is not finite in single precision.
    """
    with np.errstate(over="ignore"):
        scores = np.fromiter(ranked.values(), np.float64, len(ranked)).astype(np.float32)
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    places = np.arange(len(scores))
    if 0 < count < len(scores):
        last = np.partition(scores, len(scores) - count)[len(scores) - count]
        places = np.flatnonzero(scores >= last)
    names = list(ranked)
    pairs = sorted(
        [(score, names[place]) for score, place in zip(scores[places].tolist(), places.tolist(), strict=True)]
    )
    return [name for _, name in pairs[::-1][:count]]


def read_rankings(
    text: BinaryIO,
    queries: Iterable[str],
    *,
    few: bool,
    drop_self_matches: bool,
    maximum_depth: int,
    after_block: Callable[[], object],
    excluded: Mapping[str, Collection[str]] | None = None,
) -> Rankings:
    """The rankings of these queries, each cut to its depth, of TREC lines without comments.

    `few`: most lines are of other queries, and are passed over without being split. `excluded` documents of a query
    are left out. `after_block` is called now and then, and may raise. Raises ValueError for text that is no run, and
    for a document that a query has twice.
    """
    rankings: Rankings = {query: {} for query in queries}
    left_out = excluded or {}

    def cut(query: str) -> None:
        if drop_self_matches:
            rankings[query].pop(query, None)
        for document in left_out.get(query, ()):
            rankings[query].pop(document, None)
        if len(rankings[query]) > maximum_depth:
            kept = best_first(rankings[query], maximum_depth)
            rankings[query] = {name: rankings[query][name] for name in kept}

    for lines in _lines(text, _LineFilter(rankings) if few else None):
        for query in _add_lines(lines, rankings):
            if len(rankings[query]) > _DEPTHS_KEPT * maximum_depth:
                cut(query)
        after_block()
    for query in rankings:
        cut(query)
    return rankings


def _add_lines(lines: bytes, rankings: Rankings) -> set[str]:
    """Add the scores of lines; the queries that got any."""
    touched = set()
    current, ranked = b"", None
    # one at a time: lists of fields that are kept would wake the garbage collector
    for query, _, document, _, score, _ in filter(None, map(bytes.split, lines.split(b"\n"))):
        if query != current:
            current, name = query, query.decode()
            ranked = rankings.get(name)
            if ranked is not None:
                touched.add(name)
        if ranked is None:
            continue
        key = document.decode()
        if key in ranked:
            raise ValueError("a query has a document twice")
        ranked[key] = float(score)
    return touched


def _lines(text: BinaryIO, wanted: _LineFilter | None) -> Iterator[bytes]:
    """Yield pieces of whole lines, all of them or those wanted."""
    size = _BLOCK if wanted is None else _FILTERED_BLOCK
    rest = b""
    while True:
        block = rest + text.read(size)
        ended = len(block) == len(rest)
        end = len(block) if ended else block.rfind(b"\n") + 1
        if end:
            yield block[:end] if wanted is None else b"".join(wanted.pick(block, end))
        if ended:
            return
        rest = block[end:]


class _LineFilter:
    """Picks the lines that may be of some queries, by the first bytes of their first field, all lines of a block at
    once. Lines of other queries that begin alike are picked too: who splits the lines looks at the whole field."""

    #: Bytes that are looked at: so many words of eight.
    _MOST_WORDS = 4

    def __init__(self, queries: Iterable[str]) -> None:
        names = [query.encode() for query in queries]
        longest = max(map(len, names), default=0)
        self.words = min(self._MOST_WORDS, longest // 8 + 1)
        text = b"\n".join([*names, bytes(8 * self.words)])
        starts = _line_starts(text, len(text) - 8 * self.words)
        self.keys = {0, *self._keys(text, starts).tolist()}  # 0: of a line whose first byte is white space

    def pick(self, block: bytes, end: int) -> Iterator[bytes]:
        """Stretches of whole lines of `block[:end]`."""
        starts = _line_starts(block, end)
        if len(block) < end + 8 * self.words:
            block += bytes(8 * self.words)
        keys = self._keys(block, starts)
        first = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])  # of lines that begin alike
        edges = [*starts[first].tolist(), end]
        for number, key in enumerate(keys[first].tolist()):
            if key in self.keys:
                yield block[edges[number] : edges[number + 1]]

    def _keys(self, text: bytes, starts: NDArray[np.int64]) -> NDArray[np.uint64]:
        """A number for the first field of each line, made of its bytes up to the first one below `!`."""
        every = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))  # the eight bytes from each place on
        keys = np.zeros(len(starts), np.uint64)
        inside = np.full(len(starts), _ALL)  # no bits once the field has ended
        for word in range(self.words):
            taken = every[starts + 8 * word]
            # the lowest bit set marks the first byte below `!`: subtracting borrows from later bytes only
            low = (taken - _EACH * _LOWEST) & ~taken & (_EACH * _UPPER_BIT)
            mark = low & (~low + _ONE)
            before = (mark >> _SEVEN) - _ONE  # the bits of the bytes before it, all of them without a mark
            keys = keys * _MULTIPLIER + (taken & before & inside)
            inside[low != 0] = 0
        return keys


_ALL, _ONE, _SEVEN = ~np.uint64(0), np.uint64(1), np.uint64(7)
_LOWEST, _UPPER_BIT = np.uint64(0x21), np.uint64(0x80)
_EACH = np.uint64(0x0101010101010101)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def _line_starts(text: bytes, end: int) -> NDArray[np.int64]:
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8, end - 1) == 10)
    return np.concatenate([[0], newlines + 1])
