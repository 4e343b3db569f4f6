"""Scores compared with what pytrec_eval and the references make of the same run and judgements."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import BinaryIO

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

from evaluation.verification.references import (
    NO_TEXTS,
    TOLERANCE,
    AnswerTexts,
    RankedQuery,
    ReadTokens,
    VerifiedMeasure,
)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Judgements:
    """The judgements of one file. Keep it between runs: pytrec_eval's own form of them is made once.

    `graded` is `{query id: {document id: grade}}`, queries sorted by their bytes. Negative grades mean unjudged and are
    left out; a query that has no others is judged all the same.
    """

    def __init__(self, text: bytes) -> None:
        """Read TREC qrels (four fields) or BEIR's (three, mostly under a header). Raises ValueError."""
        graded: dict[bytes, dict[str, int]] = {}
        for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split(b"\n")):
            fields = line.split()
            if not fields or (number == 0 and len(fields) == 3 and not fields[2].lstrip(b"+-").isdigit()):
                continue  # blank, or BEIR's header
            query, *_, document, grade = fields
            of_query = graded.setdefault(query, {})
            if int(grade) >= 0:
                of_query[document.decode()] = int(grade)
        self.graded: Mapping[str, dict[str, int]] = {
            query.decode(): graded[query] for query in sorted(graded)
        }
        self._evaluators: dict[tuple[frozenset[str], int], pytrec_eval.RelevanceEvaluator] = {}

    @cached_property
    def grades(self) -> dict[str, NDArray[np.int64]]:
        """By query all its grades, in no order."""
        return {query: np.array([*graded.values()], np.int64) for query, graded in self.graded.items()}

    @cached_property
    def grades_in_use(self) -> NDArray[np.int64]:
        """The different grades of all queries, rising."""
        found: NDArray[np.int64] = np.unique(np.concatenate([np.zeros(0, np.int64), *self.grades.values()]))
        return found

    @cached_property
    def documents(self) -> frozenset[str]:
        """Every document that is judged for any query."""
        return frozenset().union(*self.graded.values())

    def evaluator(self, measures: Iterable[str], level: int) -> pytrec_eval.RelevanceEvaluator:
        """pytrec_eval for these of its measures, documents being relevant from grade `level` on.

        It takes no level of 0, so grades go one up for that; of its measures only those without a level feel it.
        """
        key = frozenset(measures), level
        if key not in self._evaluators:
            graded: Mapping[str, dict[str, int]] = self.graded
            if level == 0:
                graded = {
                    query: {name: grade + 1 for name, grade in of_query.items()}
                    for query, of_query in self.graded.items()
                }
            self._evaluators[key] = pytrec_eval.RelevanceEvaluator(graded, set(key[0]), level or 1)
        return self._evaluators[key]

    def recompute(
        self,
        rankings: Rankings,
        measures: Sequence[VerifiedMeasure],
        read_texts: Callable[[Mapping[str, Sequence[str]]], dict[str, ReadTokens]],
    ) -> NDArray[np.float64]:
        """Return the values, queries × measures, of rankings by query. A query without documents scores 0."""
        values = np.zeros((len(rankings), len(measures)))
        present = {query: ranked for query, ranked in rankings.items() if ranked}
        rows = [row for row, ranked in enumerate(rankings.values()) if ranked]
        places: defaultdict[int | None, list[int]] = defaultdict(list)
        for place, each in enumerate(measures):
            places[each.level if each.trec_eval else None].append(place)
        references = places.pop(None, [])
        for level, same in places.items():
            names = [measures[place].trec_eval for place in same]
            found = self.evaluator(names, level or 0).evaluate(present)
            nothing = dict.fromkeys(
                names, 0.0
            )  # for queries with negative grades only, which pytrec_eval omits
            of_queries = [found.get(query, nothing) for query in present]
            for place, name in zip(same, names, strict=True):
                column = np.array([of_query[name] for of_query in of_queries], np.float64)
                if measures[place].is_cut_here:
                    column[column < 1 / (measures[place].cutoff or 1)] = 0.0
                values[rows, place] = column
        if references:
            values[np.ix_(rows, references)] = self._by_references(
                present, [measures[place] for place in references], read_texts
            )
        return values

    def _by_references(
        self,
        present: Rankings,
        measures: Sequence[VerifiedMeasure],
        read_texts: Callable[[Mapping[str, Sequence[str]]], dict[str, ReadTokens]],
    ) -> NDArray[np.float64]:
        """Return the values, queries × measures, that the references compute."""
        depths = {each.depth for each in measures}
        deepest = max(
            (len(ranked) if k is None else k for ranked in present.values() for k in depths), default=0
        )
        heads = {query: best_first(ranked, deepest) for query, ranked in present.items()}
        # a large set, which few measures read
        documents = self.documents if any(each.looks_elsewhere for each in measures) else None
        read = read_texts(heads) if any(each.reads_texts for each in measures) else {}
        values = np.zeros((len(heads), len(measures)))
        for row, (query, head) in enumerate(heads.items()):
            graded = self.graded[query]
            ranked_query = RankedQuery(
                np.array([graded.get(name, -1) for name in head], np.int64),
                np.array([] if documents is None else [name in documents for name in head], np.bool_),
                self.grades[query],
                read.get(query, NO_TEXTS),
                self.grades_in_use,
            )
            values[row] = [each.reference_value(ranked_query) for each in measures]
        return values


#: Runs of up to so many lines are verified whole, others for a tenth of the judged queries, at most `MOST_QUERIES`.
WHOLE_LINES = 200_000
MOST_QUERIES = 200


class ScoresDiffer(Exception):
    """Scores are not what pytrec_eval or a reference computes: a fault of ours, and nothing may be published.

    The message has values of single queries: it is for the operators of the site alone.
    """


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """How a dataset is scored: the lowest relevant grade, whether a document with its query's id is left out, how many
    documents of a query count, whether only those that are judged for it are candidates, and which documents are left
    out of the ranking of a query."""

    relevance_level: int = 1
    drop_self_matches: bool = False
    maximum_depth: int = 1000
    candidates_only: bool = False
    excluded: Mapping[str, Collection[str]] = field(default_factory=dict)


def parse_excluded(text: bytes) -> dict[str, set[str]]:
    """Return the documents that are left out, by query, of the text of an accepted `excluded.tsv`."""
    excluded: dict[str, set[str]] = {}
    for line in filter(bytes.strip, text.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
        query, document = line.split()
        excluded.setdefault(query.decode(), set()).add(document.decode())
    return excluded


@dataclass(frozen=True, slots=True)
class ClaimedScores:
    """The scores to verify. `per_query` has the shape (judged queries, measures), the queries sorted by their bytes;
    `lines` is how long the run is."""

    measures: Sequence[VerifiedMeasure]
    query_ids: Sequence[str]
    per_query: NDArray[np.float64]
    means: dict[str, float]
    missing_queries: int
    lines: int

    def compare(self, queries: Sequence[str], expected: NDArray[np.float64]) -> None:
        """Raise ScoresDiffer, which names the first value that differs."""
        place = {query: row for row, query in enumerate(self.query_ids)}
        rows = [place[query] for query in queries]
        found = self.per_query[rows]
        wrong = np.argwhere(~(np.abs(found - expected) <= TOLERANCE))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise ScoresDiffer(
                f"{self.measures[column].name} of judged query {rows[row] + 1} of {len(place)}: "
                f"{float(found[row, column])!r} was scored, {float(expected[row, column])!r} is right; "
                f"{len(wrong)} of {expected.size} values differ"
            )
        for measure, column_values in zip(self.measures, self.per_query.T, strict=True):
            name = measure.name
            mean = float(np.sum(column_values)) / len(place)
            if not abs(self.means[name] - mean) <= TOLERANCE:
                raise ScoresDiffer(f"the mean of {name}: {self.means[name]!r} was scored, {mean!r} is right")


def verify(
    text: BinaryIO,
    judgements: Judgements,
    claimed: ClaimedScores,
    rules: ScoringRules,
    sha256: str,
    after_block: Callable[[], object] = lambda: None,
    texts: AnswerTexts | None = None,
) -> None:
    """Compute scores from the text of a run and compare them. `sha256` of the run draws queries where it is long.

    `after_block` is called now and then, and may raise to stop. `texts` are what measures of answers read. Raises
    ScoresDiffer where a value differs by more than 1e-9, and where the text cannot be read.
    """
    if list(judgements.graded) != list(claimed.query_ids):
        raise ScoresDiffer(
            f"{len(claimed.query_ids)} queries were scored, {len(judgements.graded)} are judged"
        )

    def read_texts(heads: Mapping[str, Sequence[str]]) -> dict[str, ReadTokens]:
        if texts is None:
            raise ScoresDiffer("the texts and answers that measures read are not here")
        return texts.read(heads, after_block)

    whole = claimed.lines <= WHOLE_LINES
    queries = list(judgements.graded) if whole else _draw(list(judgements.graded), sha256)
    try:
        rankings = read_rankings(text, queries, rules, few=not whole, after_block=after_block)
        if rules.candidates_only:
            for query, ranked in rankings.items():
                of_query = judgements.graded[query]
                rankings[query] = {name: score for name, score in ranked.items() if name in of_query}
        measures = [
            replace(each, level=rules.relevance_level) if each.level is None else each
            for each in claimed.measures
        ]
        expected = judgements.recompute(rankings, measures, read_texts)
    except ValueError as error:
        raise ScoresDiffer("the stored run was scored, and cannot be read") from error
    claimed.compare(queries, expected)
    missing = sum(not ranked for ranked in rankings.values())
    if whole and missing != claimed.missing_queries:
        raise ScoresDiffer(f"{claimed.missing_queries} queries were counted as missing, {missing} are")


def _draw(queries: list[str], sha256: str) -> list[str]:
    """Return a tenth of the queries, at most `MOST_QUERIES`: those whose id hashes lowest together with the run's."""
    count = min(MOST_QUERIES, -(-len(queries) // 10))
    lowest = sorted(queries, key=lambda query: hashlib.sha256(f"{sha256} {query}".encode()).digest())[:count]
    return sorted(lowest)


#: `{query id: {document id: score}}`.
Rankings = dict[str, dict[str, float]]

#: Bytes read at once: small pieces stay in the processor's cache while they are split, large ones pay for arrays.
_BLOCK, _FILTERED_BLOCK = 1 << 14, 1 << 20
#: A query's lines are cut to its best so many times its depth while they are read, to bound memory.
_DEPTHS_KEPT = 4


def best_first(ranked: dict[str, float], count: int) -> list[str]:
    """Return the first `count` documents in trec_eval's order: float32 scores descending, then ids descending.

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
    rules: ScoringRules,
    *,
    few: bool,
    after_block: Callable[[], object] = lambda: None,
) -> Rankings:
    """Return the rankings of these queries, each cut to its depth, of TREC lines without comments.

    `few`: most lines are of other queries, and are passed over without being split. `after_block` is called now and
    then, and may raise. Raises ValueError for text that is no run, and for a document that a query has twice.
    """
    rankings: Rankings = {query: {} for query in queries}

    def cut(query: str) -> None:
        if rules.drop_self_matches:
            rankings[query].pop(query, None)
        for document in rules.excluded.get(query, ()):
            rankings[query].pop(document, None)
        if len(rankings[query]) > rules.maximum_depth:
            kept = best_first(rankings[query], rules.maximum_depth)
            rankings[query] = {name: rankings[query][name] for name in kept}

    for lines in _lines(text, _LineFilter(rankings) if few else None):
        for query in _add_lines(lines, rankings):
            if len(rankings[query]) > _DEPTHS_KEPT * rules.maximum_depth:
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
        """Return a number for the first field of each line, made of its bytes up to the first one below `!`."""
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
