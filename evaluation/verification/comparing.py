"""Scores compared with what pytrec_eval and the references make of the same run and judgements."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import BinaryIO

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

from evaluation.verification.answer_texts import NO_TEXTS, AnswerTexts, ReadTokens
from evaluation.verification.references import (
    ANSWERS,
    HOLE_ANYWHERE,
    TOLERANCE,
    RankedQuery,
    reference_of,
)
from evaluation.verification.run_text import Rankings, best_first, read_rankings

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


#: Runs of up to so many lines are verified whole, others for a tenth of the judged queries, at most `MOST_QUERIES`.
WHOLE_LINES = 200_000
MOST_QUERIES = 200

_NAME = re.compile(r"(?P<family>\w+(?:\([^()]*\))?)(?:@(?P<cutoff>\d+)(?P<unit>kt)?)?")
_LEVEL = re.compile(r",?rel=(\d+)")
#: pytrec_eval's names, without and with a cutoff. It has RR without one only: what it gives is cut.
_TREC_EVAL = {
    "nDCG": ("ndcg", "ndcg_cut_{k}"),
    "AP": ("map", "map_cut_{k}"),
    "RR": ("recip_rank", "recip_rank"),
    "P": ("", "P_{k}"),
    "R": ("", "recall_{k}"),
    "Success": ("", "success_{k}"),
    "Rprec": ("Rprec", ""),
    "Bpref": ("bpref", ""),
}


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
    """The documents that are left out, by query, of the text of an accepted `excluded.tsv`."""
    excluded: dict[str, set[str]] = {}
    for line in filter(bytes.strip, text.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
        query, document = line.split()
        excluded.setdefault(query.decode(), set()).add(document.decode())
    return excluded


@dataclass(frozen=True, slots=True)
class ClaimedScores:
    """The scores to verify. `per_query` has the shape (judged queries, measures), the queries sorted by their bytes;
    `lines` is how long the run is."""

    measures: Sequence[str]
    query_ids: Sequence[str]
    per_query: NDArray[np.float64]
    means: dict[str, float]
    missing_queries: int
    lines: int


@dataclass(frozen=True, slots=True)
class _Measure:
    name: str
    family: str
    cutoff: int | None
    level: int
    #: pytrec_eval's name, empty where it has none.
    trec_eval: str

    @classmethod
    def of(cls, name: str, level: int) -> _Measure:
        """The measure of a canonical name. Raises ScoresDiffer where nothing here can compute it."""
        own_level = _LEVEL.search(name)
        match = _NAME.fullmatch(_LEVEL.sub("", name).replace("()", ""))
        family = match["family"] + (f"@{match['unit']}" if match["unit"] else "") if match else ""
        if match is None or (family not in _TREC_EVAL and reference_of(family) is None):
            raise ScoresDiffer(
                f"{name} cannot be verified: pytrec_eval has no such measure, and no reference is there"
            )
        cutoff = int(match["cutoff"]) if match["cutoff"] else None
        if family == "nDCG":  # grades count, so that no level matters
            level = 1
        trec_eval = _TREC_EVAL.get(family, ("", ""))[cutoff is not None].format(k=cutoff)
        return cls(name, family, cutoff, int(own_level[1]) if own_level else level, trec_eval)


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
    whole = claimed.lines <= WHOLE_LINES
    queries = list(judgements.graded) if whole else _draw(list(judgements.graded), sha256)
    try:
        rankings = read_rankings(
            text,
            queries,
            few=not whole,
            drop_self_matches=rules.drop_self_matches,
            excluded=rules.excluded,
            maximum_depth=rules.maximum_depth,
            after_block=after_block,
        )
        if rules.candidates_only:
            for query, ranked in rankings.items():
                of_query = judgements.graded[query]
                rankings[query] = {name: score for name, score in ranked.items() if name in of_query}
        measures = [_Measure.of(name, rules.relevance_level) for name in claimed.measures]
        expected = _recomputed(rankings, judgements, measures, partial(_read_texts, texts, after_block))
    except ValueError as error:
        raise ScoresDiffer("the stored run was scored, and cannot be read") from error
    _compare(claimed, queries, expected)
    missing = sum(not ranked for ranked in rankings.values())
    if whole and missing != claimed.missing_queries:
        raise ScoresDiffer(f"{claimed.missing_queries} queries were counted as missing, {missing} are")


def _draw(queries: list[str], sha256: str) -> list[str]:
    """A tenth of the queries, at most `MOST_QUERIES`: those whose id hashes lowest together with the run's."""
    count = min(MOST_QUERIES, -(-len(queries) // 10))
    lowest = sorted(queries, key=lambda query: hashlib.sha256(f"{sha256} {query}".encode()).digest())[:count]
    return sorted(lowest)


def _read_texts(
    texts: AnswerTexts | None, after_block: Callable[[], object], heads: Mapping[str, Sequence[str]]
) -> dict[str, ReadTokens]:
    if texts is None:
        raise ScoresDiffer("the texts and answers that measures read are not here")
    return texts.read(heads, after_block)


def _recomputed(
    rankings: Rankings,
    judgements: Judgements,
    measures: Sequence[_Measure],
    read_texts: Callable[[Mapping[str, Sequence[str]]], dict[str, ReadTokens]],
) -> NDArray[np.float64]:
    """The values, queries × measures, of rankings by query. A query without documents scores 0."""
    values = np.zeros((len(rankings), len(measures)))
    present = {query: ranked for query, ranked in rankings.items() if ranked}
    rows = [row for row, ranked in enumerate(rankings.values()) if ranked]
    cutoffs = [
        None if measure.family.endswith("kt") else measure.cutoff
        for measure in measures
        if not measure.trec_eval
    ]
    deepest = max(
        (len(ranked) if k is None else k for ranked in present.values() for k in set(cutoffs)), default=0
    )
    heads = {query: best_first(ranked, deepest) for query, ranked in present.items()}
    for level in {measure.level for measure in measures if measure.trec_eval}:
        same = [each for each in measures if each.trec_eval and each.level == level]
        names = [each.trec_eval for each in same]
        found = judgements.evaluator(names, level).evaluate(present)
        nothing = dict.fromkeys(
            names, 0.0
        )  # of a query whose grades are all negative, which pytrec_eval leaves out
        of_queries = [found.get(query, nothing) for query in present]
        for each, name in zip(same, names, strict=True):
            column = np.array([of_query[name] for of_query in of_queries], np.float64)
            if each.family == "RR" and each.cutoff is not None:
                column[column < 1 / each.cutoff] = 0.0  # the first relevant document stands behind the cutoff
            values[rows, measures.index(each)] = column
    references = [
        (place, each, reference_of(each.family)) for place, each in enumerate(measures) if not each.trec_eval
    ]
    # a large set, and made for one measure alone
    asked = any(each.family == HOLE_ANYWHERE for _, each, _ in references)
    documents = judgements.documents if asked else None
    reads = any(each.family in ANSWERS for _, each, _ in references)
    read = read_texts(heads) if reads else {}
    for row, (query, head) in zip(rows, heads.items(), strict=True):
        graded = judgements.graded[query]
        ranked_query = RankedQuery(
            np.array([graded.get(name, -1) for name in head], np.int64),
            np.array([] if documents is None else [name in documents for name in head], np.bool_),
            judgements.grades[query],
            read.get(query, NO_TEXTS),
            judgements.grades_in_use,
        )
        for place, measure, reference in references:
            assert reference is not None, measure.name  # `_Measure.of` refused it else
            values[row, place] = reference(ranked_query, measure.cutoff, measure.level)
    return values


def _compare(claimed: ClaimedScores, queries: Sequence[str], expected: NDArray[np.float64]) -> None:
    """Raises ScoresDiffer, which names the first value that differs."""
    place = {query: row for row, query in enumerate(claimed.query_ids)}
    rows = [place[query] for query in queries]
    found = claimed.per_query[rows]
    wrong = np.argwhere(~(np.abs(found - expected) <= TOLERANCE))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise ScoresDiffer(
            f"{claimed.measures[column]} of judged query {rows[row] + 1} of {len(place)}: "
            f"{float(found[row, column])!r} was scored, {float(expected[row, column])!r} is right; "
            f"{len(wrong)} of {expected.size} values differ"
        )
    for name, column_values in zip(claimed.measures, claimed.per_query.T, strict=True):
        mean = float(np.sum(column_values)) / len(place)
        if not abs(claimed.means[name] - mean) <= TOLERANCE:
            raise ScoresDiffer(f"the mean of {name}: {claimed.means[name]!r} was scored, {mean!r} is right")
