"""Comparison of scores with the results of pytrec_eval and the references for the same run and judgments."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from evaluation.verification.references import (
    NO_TEXTS,
    TOLERANCE,
    AnswerTexts,
    RankedQuery,
    ReadTokens,
    ResponseReference,
    VerifiedMeasure,
)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Judgements:
    """Judgments of one file. Reuse an instance, because pytrec_eval's form of them is built once.

    `graded` is `{query id: {document id: grade}}`, with queries sorted by their bytes. Negative grades mean unjudged
    and are only in `pooled`, but a query with only negative grades is still judged. `subtopics` is
    `{query id: {document id: {subtopic: grade}}}`.
    """

    def __init__(self, text: bytes, subtopics: bytes = b"") -> None:
        """Read TREC qrels (four fields) or BEIR's (three, usually with a header). Raises ValueError.

        The second fields of `subtopics` are subtopics.
        """
        graded: dict[bytes, dict[str, int]] = {}
        self.pooled: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split(b"\n")):
            fields = line.split()
            if not fields or (number == 0 and len(fields) == 3 and not fields[2].lstrip(b"+-").isdigit()):
                continue  # A blank line or BEIR's header.
            query, *_, document, grade = fields
            grades = graded.setdefault(query, {})
            target = grades if int(grade) >= 0 else self.pooled[query.decode()]
            target[document.decode()] = int(grade)
        self.graded: Mapping[str, dict[str, int]] = {query.decode(): graded[query] for query in sorted(graded)}
        self.subtopics: defaultdict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        for line in filter(bytes.strip, subtopics.split(b"\n")):
            query_id, subtopic, name, grade_text = line.decode().split()
            if int(grade_text) >= 0:
                self.subtopics[query_id].setdefault(name, {})[subtopic] = int(grade_text)
        self._evaluators: dict[tuple[frozenset[str], int], Any] = {}

    @cached_property
    def grades(self) -> dict[str, NDArray[np.int64]]:
        """Grades of each query, in arbitrary order."""
        return {query: np.array([*graded.values()], np.int64) for query, graded in self.graded.items()}

    @cached_property
    def grades_in_use(self) -> NDArray[np.int64]:
        """Distinct grades of all queries, ascending."""
        grades: NDArray[np.int64] = np.unique(np.concatenate([np.zeros(0, np.int64), *self.grades.values()]))
        return grades

    @cached_property
    def documents(self) -> frozenset[str]:
        """Documents that are judged for any query."""
        return frozenset().union(*self.graded.values())

    def evaluator(self, measures: Iterable[str], level: int) -> Any:
        """Return pytrec_eval's evaluator for these measures, with documents relevant from grade `level` on.

        pytrec_eval does not accept level 0, so all grades are raised by one instead. This affects only measures without
        a level.
        """
        import pytrec_eval  # Imported on first use, because it requires scipy.

        key = frozenset(measures), level
        if key not in self._evaluators:
            graded: Mapping[str, dict[str, int]] = self.graded
            if "infAP" in key[0]:  # pytrec_eval crashes for a query with only negative grades.
                graded = {query: grades and grades | self.pooled.get(query, {}) for query, grades in graded.items()}
            if level == 0:
                graded = {
                    query: {name: grade + (grade >= 0) for name, grade in grades.items()}
                    for query, grades in graded.items()
                }
            self._evaluators[key] = pytrec_eval.RelevanceEvaluator(graded, set(key[0]), level or 1)
        return self._evaluators[key]

    def recompute(
        self,
        rankings: Rankings,
        measures: Sequence[VerifiedMeasure],
        read_texts: Callable[[Mapping[str, Sequence[str]]], dict[str, ReadTokens]],
    ) -> NDArray[np.float64]:
        """Return the values (queries × measures) of rankings by query. A query without documents scores 0.

        `read_texts` maps document ids by query to the tokens of their texts. It is called only if a measure
        needs texts.
        """
        values = np.zeros((len(rankings), len(measures)))
        non_empty = {query: ranked for query, ranked in rankings.items() if ranked}
        rows = [row for row, ranked in enumerate(rankings.values()) if ranked]
        places: defaultdict[int | None, list[int]] = defaultdict(list)
        for place, measure in enumerate(measures):
            places[measure.level if measure.trec_eval else None].append(place)
        references = places.pop(None, [])
        for level, columns in places.items():
            names = [measures[place].trec_eval for place in columns]
            results = self.evaluator(names, level or 0).evaluate(non_empty)
            zeros = dict.fromkeys(names, 0.0)  # pytrec_eval omits queries without grades ≥ 0.
            results_by_row = [results.get(query, zeros) for query in non_empty]
            for place, name in zip(columns, names, strict=True):
                column = np.array([result[name] for result in results_by_row], np.float64)
                if measures[place].is_cut_here:
                    column[column < 1 / (measures[place].cutoff or 1)] = 0.0
                values[rows, place] = column
        if references:
            values[np.ix_(rows, references)] = self._compute_references(
                non_empty, [measures[place] for place in references], read_texts
            )
        return values

    def _compute_references(
        self,
        rankings: Rankings,
        measures: Sequence[VerifiedMeasure],
        read_texts: Callable[[Mapping[str, Sequence[str]]], dict[str, ReadTokens]],
    ) -> NDArray[np.float64]:
        """Return the values, queries × measures, that the references compute."""
        depths = {measure.depth for measure in measures}
        deepest = max((len(ranked) if k is None else k for ranked in rankings.values() for k in depths), default=0)
        heads = {query: best_first(ranked, deepest) for query, ranked in rankings.items()}
        # Built only if a measure needs it, because the set is large.
        documents = self.documents if any(measure.looks_elsewhere for measure in measures) else None
        read_tokens = read_texts(heads) if any(measure.reads_texts for measure in measures) else {}
        values = np.zeros((len(heads), len(measures)))
        for row, (query, head) in enumerate(heads.items()):
            graded = self.graded[query]
            subtopics = self.subtopics.get(query, {})
            ranked_query = RankedQuery(
                np.array([graded.get(name, -1) for name in head], np.int64),
                np.array([] if documents is None else [name in documents for name in head], np.bool_),
                self.grades[query],
                read_tokens.get(query, NO_TEXTS),
                self.grades_in_use,
                [subtopics.get(name, {}) for name in head] if subtopics else (),
                [subtopics[name] for name in sorted(subtopics, key=str.encode)],
            )
            values[row] = [measure.reference_value(ranked_query) for measure in measures]
        return values


#: Runs of at most this many lines are verified completely, and others for a tenth of the judged queries, at most
#: `MAX_QUERIES`.
WHOLE_LINES = 200_000
MAX_QUERIES = 200


class ScoresDiffer(Exception):
    """Error for scores that differ from pytrec_eval or a reference. They must not be published.

    The message contains values of single queries: show it only to the operators of the site.
    """


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Scoring rules of a dataset.

    Attributes:
        relevance_level: Lowest relevant grade.
        drop_self_matches: Whether to drop a document with its query's id.
        maximum_depth: Maximum number of documents per query that are scored.
        candidates_only: Whether only documents judged for the query are candidates.
        excluded: Documents to drop from the ranking of each query.
    """

    relevance_level: int = 1
    drop_self_matches: bool = False
    maximum_depth: int = 1000
    candidates_only: bool = False
    excluded: Mapping[str, Collection[str]] = field(default_factory=dict)


def parse_excluded(text: bytes) -> dict[str, set[str]]:
    """Return the excluded documents by query from the text of an accepted `excluded.tsv`."""
    excluded: dict[str, set[str]] = {}
    for line in filter(bytes.strip, text.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
        query, document = line.split()
        excluded.setdefault(query.decode(), set()).add(document.decode())
    return excluded


@dataclass(frozen=True, slots=True)
class ClaimedScores:
    """Scores to verify.

    `per_query` has the shape (judged queries, measures), with queries sorted by their bytes; `lines` is the number of
    lines of the run.
    """

    measures: Sequence[VerifiedMeasure]
    query_ids: Sequence[str]
    per_query: NDArray[np.float64]
    means: dict[str, float]
    missing_queries: int
    lines: int

    def compare(self, queries: Sequence[str], expected: NDArray[np.float64]) -> None:
        """Raise ScoresDiffer if a value differs from the expected one, or a mean from the mean of the scores.

        `expected` has the shape (queries, measures). The error reports the first difference.
        """
        row_by_query = {query: row for row, query in enumerate(self.query_ids)}
        rows = [row_by_query[query] for query in queries]
        claimed = self.per_query[rows]
        differences = np.argwhere(~(np.abs(claimed - expected) <= TOLERANCE))
        if len(differences):
            row, column = differences[0].tolist()
            raise ScoresDiffer(
                f"{self.measures[column].name} of judged query {rows[row] + 1} of {len(row_by_query)}: "
                f"{float(claimed[row, column])!r} was scored, {float(expected[row, column])!r} is correct; "
                f"{len(differences)} of {expected.size} values differ"
            )
        for measure, column_values in zip(self.measures, self.per_query.T, strict=True):
            name = measure.name
            mean = float(np.sum(column_values)) / len(row_by_query)
            if not abs(self.means[name] - mean) <= TOLERANCE:
                raise ScoresDiffer(f"the mean of {name}: {self.means[name]!r} was scored, {mean!r} is correct")


@dataclass(frozen=True, slots=True)
class StatedResponses:
    """Responses of an answer run by query, TREC lines of their citations, and the records of labels, if any.

    For `hidden` judgments, figures that responses state are means over all responses.
    """

    responses: Mapping[str, Any]
    citations: BinaryIO
    labels: Sequence[Mapping[str, Any]] = ()
    hidden: bool = False

    def recompute(
        self, verifiers: Sequence[object], queries: Sequence[str], texts: AnswerTexts | None
    ) -> NDArray[np.float64]:
        """Return values of shape (queries, verifiers), which are 0 if no reference computes them from responses."""
        answers, values = texts.read_answers() if texts is not None else {}, np.zeros((len(queries), len(verifiers)))
        for column, verifier in enumerate(verifiers):
            if isinstance(verifier, ResponseReference):
                facts = self.labels if verifier.reads_labels else answers
                counts_all = self.hidden and verifier.is_stated
                computed = verifier.compute(list(self.responses) if counts_all else queries, self.responses, facts)
                values[:, column] = np.mean(computed) if counts_all else computed
        return values


def verify(
    text: BinaryIO,
    judgements: Judgements,
    claimed: ClaimedScores,
    rules: ScoringRules,
    sha256: str,
    after_block: Callable[[], object] = lambda: None,
    texts: AnswerTexts | None = None,
    stated_responses: StatedResponses | None = None,
) -> None:
    """Compute scores from the text of a run and compare them.

    Raises ScoresDiffer if a value differs by more than 1e-9 or the text cannot be read.

    Args:
        text: The run.
        judgements: Judgments of the dataset.
        claimed: The scores to verify.
        rules: Scoring rules of the dataset.
        sha256: Checksum of the run, which selects the queries to verify if the run is long.
        after_block: Called periodically; may raise to stop.
        texts: Texts for measures of answers.
        stated_responses: Responses, for measures of answer runs.
    """
    if list(judgements.graded) != list(claimed.query_ids):
        raise ScoresDiffer(f"{len(claimed.query_ids)} queries were scored, {len(judgements.graded)} are judged")

    def read_texts(heads: Mapping[str, Sequence[str]]) -> dict[str, ReadTokens]:
        if texts is None:
            raise ScoresDiffer("the texts and answers for the measures are missing")
        return texts.read(heads, after_block)

    is_complete = claimed.lines <= WHOLE_LINES
    queries = list(judgements.graded) if is_complete else _draw(list(judgements.graded), sha256)
    measures = [replace(item, level=rules.relevance_level) if item.level is None else item for item in claimed.measures]
    expected = np.zeros((len(queries), len(measures)))

    def recompute(lines: BinaryIO, columns: Sequence[int]) -> Rankings:
        """Compute the measures in these columns from TREC lines, and return the rankings."""
        rankings = read_rankings(lines, queries, rules, few_queries=not is_complete, after_block=after_block)
        if rules.candidates_only:
            for query, ranked in rankings.items():
                judged_documents = judgements.graded[query]
                rankings[query] = {name: score for name, score in ranked.items() if name in judged_documents}
        expected[:, columns] = judgements.recompute(rankings, [measures[column] for column in columns], read_texts)
        return rankings

    try:
        rankings = recompute(text, [n for n, measure in enumerate(measures) if not measure.reads_responses])
        missing_queries = sum(not ranked for ranked in rankings.values())
        if stated_responses is not None:
            expected += stated_responses.recompute([measure.verifier for measure in measures], queries, texts)
            of_citations = [n for n, measure in enumerate(measures) if measure.reads_responses and measure.trec_eval]
            recompute(stated_responses.citations, of_citations)
            missing_queries = sum(query not in stated_responses.responses for query in queries)
    except ValueError as error:
        raise ScoresDiffer("the stored run was scored but cannot be read") from error
    claimed.compare(queries, expected)
    if is_complete and missing_queries != claimed.missing_queries:
        raise ScoresDiffer(f"{claimed.missing_queries} queries were counted as missing, {missing_queries} are")


def _draw(queries: list[str], sha256: str) -> list[str]:
    """Return the tenth of the queries with the lowest hashes of run and query id, at most `MAX_QUERIES`."""
    count = min(MAX_QUERIES, -(-len(queries) // 10))
    lowest_queries = sorted(queries, key=lambda query: hashlib.sha256(f"{sha256} {query}".encode()).digest())[:count]
    return sorted(lowest_queries)


#: `{query id: {document id: score}}`.
Rankings = dict[str, dict[str, float]]

#: Number of bytes to read at a time: small blocks fit into the processor's cache, and large ones amortize array
#: operations.
_BLOCK, _FILTERED_BLOCK = 1 << 14, 1 << 20
#: While reading, rankings are cut to their best documents when they exceed this multiple of the depth, to
#: bound memory.
_DEPTHS_IN_MEMORY = 4


def best_first(ranked: dict[str, float], count: int) -> list[str]:
    """Return the first `count` documents in trec_eval's order: float32 scores descending, then ids descending.

    Raises ValueError for a score that is not finite in single precision.
    """
    with np.errstate(over="ignore"):
        scores = np.fromiter(ranked.values(), np.float64, len(ranked)).astype(np.float32)
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    positions = np.arange(len(scores))
    if 0 < count < len(scores):
        last = np.partition(scores, len(scores) - count)[len(scores) - count]
        positions = np.flatnonzero(scores >= last)
    names = list(ranked)
    pairs = sorted(
        [(score, names[place]) for score, place in zip(scores[positions].tolist(), positions.tolist(), strict=True)]
    )
    return [name for _, name in pairs[::-1][:count]]


def read_rankings(
    text: BinaryIO,
    queries: Iterable[str],
    rules: ScoringRules,
    *,
    few_queries: bool,
    after_block: Callable[[], object] = lambda: None,
) -> Rankings:
    """Return the rankings of these queries, cut to the maximum depth, from TREC lines without comments.

    `few_queries` means that most lines belong to other queries; they are skipped without being split. `after_block` is
    called periodically and may raise. Raises ValueError for text that is not a run, and for a repeated document.
    """
    rankings: Rankings = {query: {} for query in queries}

    def cut_ranking(query: str) -> None:
        """Remove a query's excluded documents, and all but its best documents up to the maximum depth."""
        if rules.drop_self_matches:
            rankings[query].pop(query, None)
        for document in rules.excluded.get(query, ()):
            rankings[query].pop(document, None)
        if len(rankings[query]) > rules.maximum_depth:
            best = best_first(rankings[query], rules.maximum_depth)
            rankings[query] = {name: rankings[query][name] for name in best}

    for lines in _read_lines(text, _LineFilter(rankings) if few_queries else None):
        for query in _add_lines(lines, rankings):
            if len(rankings[query]) > _DEPTHS_IN_MEMORY * rules.maximum_depth:
                cut_ranking(query)
        after_block()
    for query in rankings:
        cut_ranking(query)
    return rankings


def _add_lines(lines: bytes, rankings: Rankings) -> set[str]:
    """Add the scores in the lines to the rankings of their queries, and return the queries that changed.

    Lines of other queries are skipped. Raises ValueError for an invalid line or a repeated document.
    """
    changed_queries = set()
    fields = lines.split()
    if len(fields) % 6:
        raise ValueError("a line does not have six fields")
    documents, scores, start = fields[2::6], list(map(float, fields[4::6])), 0
    for query, query_lines in groupby(fields[::6]):
        end = start + len(list(query_lines))
        ranked = rankings.get(query.decode())
        if ranked is not None:
            changed_queries.add(query.decode())
            count = len(ranked) + end - start
            ranked.update(zip(map(bytes.decode, documents[start:end]), scores[start:end], strict=True))
            if len(ranked) < count:
                raise ValueError("a query has a document twice")
        start = end
    return changed_queries


def _read_lines(text: BinaryIO, line_filter: _LineFilter | None) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines, without the lines that a given filter rejects."""
    size = _BLOCK if line_filter is None else _FILTERED_BLOCK
    rest = b""
    while True:
        block = rest + text.read(size)
        is_last = len(block) == len(rest)
        end = len(block) if is_last else block.rfind(b"\n") + 1
        if end:
            yield block[:end] if line_filter is None else b"".join(line_filter.pick(block, end))
        if is_last:
            return
        rest = block[end:]


class _LineFilter:
    """Filter for the lines of some queries, which compares the first bytes of all lines of a block at once.

    Lines of other queries with the same first bytes also pass, so the reader must compare the complete field.
    """

    #: Maximum number of 8-byte words that are compared.
    _MAX_WORDS = 4

    def __init__(self, queries: Iterable[str]) -> None:
        names = [query.encode() for query in queries]
        max_bytes = max(map(len, names), default=0)
        self.words = min(self._MAX_WORDS, max_bytes // 8 + 1)
        text = b"\n".join([*names, bytes(8 * self.words)])
        starts = _line_starts(text, len(text) - 8 * self.words)
        self.keys = {0, *self._compute_keys(text, starts).tolist()}  # 0 for lines that begin with white space.

    def pick(self, block: bytes, end: int) -> Iterator[bytes]:
        """Yield the lines of `block[:end]` that pass the filter, in stretches of consecutive lines."""
        starts = _line_starts(block, end)
        if len(block) < end + 8 * self.words:
            block += bytes(8 * self.words)
        keys = self._compute_keys(block, starts)
        first = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])  # Stretch starts.
        edges = [*starts[first].tolist(), end]
        for number, key in enumerate(keys[first].tolist()):
            if key in self.keys:
                yield block[edges[number] : edges[number + 1]]

    def _compute_keys(self, text: bytes, starts: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return a number for the first field of each line, from its bytes before the first byte below `!`."""
        words = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))  # The eight bytes from each position on.
        keys = np.zeros(len(starts), np.uint64)
        active_bits = np.full(len(starts), _ALL)  # All bits until the field ends, then none.
        for word in range(self.words):
            word_bytes = words[starts + 8 * word]
            # The lowest bit set marks the first byte below `!`, because subtracting borrows from later bytes
            # only.
            low_bits = (word_bytes - _EACH_BYTE * _LOWEST) & ~word_bytes & (_EACH_BYTE * _UPPER_BIT)
            mark = low_bits & (~low_bits + _ONE)
            preceding_bits = (mark >> _SEVEN) - _ONE  # Bits of the bytes before the mark, or all bits.
            keys = keys * _MULTIPLIER + (word_bytes & preceding_bits & active_bits)
            active_bits[low_bits != 0] = 0
        return keys


_ALL, _ONE, _SEVEN = ~np.uint64(0), np.uint64(1), np.uint64(7)
_LOWEST, _UPPER_BIT = np.uint64(0x21), np.uint64(0x80)
_EACH_BYTE = np.uint64(0x0101010101010101)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def _line_starts(text: bytes, end: int) -> NDArray[np.int64]:
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8, end - 1) == 10)
    return np.concatenate([[0], newlines + 1])
