"""References for the measures that pytrec_eval does not have, each as its source writes it, one query at a time.

Answers are found by the plain loops of DPR's `has_answer`, in every text of every ranking.
"""

import gzip
import json
import sys
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import regex
from numpy import array, int64
from numpy.typing import NDArray

#: Seconds of the processor that a pattern may take in one text; and in all texts where it takes longer than `SLOW`.
IN_ONE_TEXT, ALTOGETHER, SLOW = 2.0, 30.0, 0.02
_GZIP_MAGIC = b"\x1f\x8b"

#: Of each document of a ranking, how many tokens are read until an answer ends (0: it has none), and all it has.
ReadTokens = tuple[NDArray[int64], NDArray[int64]]
NO_TEXTS: ReadTokens = (array([], int64), array([], int64))


class SlowAnswers(Exception):
    """A pattern on this line of the answers takes too long: the texts were not read to their end."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}")


class _Clock:
    """Searches for patterns, and the seconds that are left for slow ones."""

    def __init__(self) -> None:
        self.left = ALTOGETHER

    def search(self, pattern: Any, text: str, line: int) -> Any:
        begun = time.process_time()
        try:
            found = pattern.search(text, timeout=IN_ONE_TEXT)
        except TimeoutError as error:
            raise SlowAnswers(line) from error
        took = time.process_time() - begun
        self.left -= took if took > SLOW else 0
        if self.left < 0:
            raise SlowAnswers(line)
        return found


def _parsed(line: bytes) -> Any:
    """Parse a line of an accepted file, which may be nested 1,024 deep, more than Python's stack is by default."""
    try:
        return json.loads(line)
    except RecursionError:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + 2_000)
        try:
            return json.loads(line)
        finally:
            sys.setrecursionlimit(before)


def _words(text: str) -> list[str]:
    words, inside = list[str](), False
    for character in unicodedata.normalize("NFD", text).lower():
        kind = unicodedata.category(character)[0]
        if kind in "LNM" and inside:
            words[-1] += character
        elif kind not in "ZC":
            words.append(character)
        inside = kind in "LNM"
    return words


@dataclass(frozen=True)
class _Wanted:
    """The answers of one query, and their line in the file."""

    words: Sequence[Sequence[str]] = ()
    patterns: Sequence[Any] = ()
    line: int = 0

    @classmethod
    def of(cls, told: Mapping[str, Any], line: int) -> Self:
        flags = regex.IGNORECASE | regex.MULTILINE
        normal = [unicodedata.normalize("NFD", text) for text in told.get("patterns", ())]
        return cls(
            [_words(text) for text in told.get("answers", ())],
            [regex.compile(text, flags) for text in normal],
            line,
        )

    def first_end(self, text: str, words: Sequence[str], clock: _Clock) -> int:
        ends = []
        for answer in self.words:
            starts = range(len(words) - len(answer) + 1)
            ends += [start + len(answer) for start in starts if words[start : start + len(answer)] == answer][
                :1
            ]
        normal = unicodedata.normalize("NFD", text)
        for pattern in self.patterns:
            found = clock.search(pattern, normal, self.line)
            ends += [max(len(_words(normal[: found.end()])), 1)] if found else []
        return min(ends, default=0)


@dataclass(frozen=True)
class AnswerTexts:
    """Where the answers (`answers.jsonl`) and the texts (`corpus.jsonl`, perhaps gzip) are read."""

    answers: Path
    corpus: Path

    def read(
        self, rankings: Mapping[str, Sequence[str]], after_block: Callable[[], object]
    ) -> dict[str, ReadTokens]:
        """Read the texts of rankings (document ids by query). `after_block` is called now and then, and may raise.

        Raises SlowAnswers.
        """
        answers, clock = dict[str, _Wanted](), _Clock()
        for number, line in enumerate(self.answers.open("rb"), 1):
            if line.strip():
                each = _parsed(line)
                answers[str(each["_id"])] = _Wanted.of(each, number)
        asking: defaultdict[str, list[str]] = defaultdict(list)
        for query, names in rankings.items():
            for name in names:
                asking[name].append(query)
        ends, lengths = dict[tuple[str, str], int](), dict[str, int]()
        with self.corpus.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
        with gzip.open(self.corpus) if packed else self.corpus.open("rb") as lines:
            for number, line in enumerate(lines):
                if number % 10_000 == 0:
                    after_block()
                if not line.strip():
                    continue
                document = _parsed(line)
                if (name := str(document["_id"])) in asking:
                    text = document.get("text")
                    text = "" if text is None or text != text else str(text)  # null or NaN
                    words = _words(text)
                    lengths[name] = len(words)
                    for query in asking[name]:
                        ends[query, name] = answers.get(query, _Wanted()).first_end(text, words, clock)
        return {
            query: (
                array([ends.get((query, name), 0) for name in names], int64),
                array([lengths.get(name, 0) for name in names], int64),
            )
            for query, names in rankings.items()
        }


#: The largest difference that summing in another order may make.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class RankedQuery:
    """A query's ranking, best first: the grade of each document (-1 if it is not judged for the query), and whether
    it is judged for any query (empty where no measure asks). `judged` are all grades of the query, in no order,
    `in_use` those that the judgements of any query have, rising. `read` has, where a measure asks, how many tokens are
    read of each text until an answer ends, and how many it has."""

    grades: NDArray[np.int64]
    anywhere: NDArray[np.bool_]
    judged: NDArray[np.int64]
    read: ReadTokens = NO_TEXTS
    in_use: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


#: Value of a ranking at a cutoff (None for none), documents being relevant from a grade on.
Reference = Callable[[RankedQuery, int | None, int], float]


@dataclass(frozen=True, slots=True)
class PytrecEval:
    """pytrec_eval's names of a measure without and with a cutoff `{k}`, empty where the measure is never so.

    An `at_cutoff` without `{k}` is the reciprocal rank, which pytrec_eval has without a cutoff only: it is cut here.
    """

    whole: str = ""
    at_cutoff: str = ""


Verifier = PytrecEval | Reference


@dataclass(frozen=True, slots=True)
class VerifiedMeasure:
    """A measure to compute a second time.

    `level` is the lowest relevant grade, None for the dataset's. `depth` is the number of documents that it reads, None
    for all. `looks_elsewhere` and `reads_texts` say whether it needs `RankedQuery.anywhere` and `RankedQuery.read`.
    """

    name: str
    verifier: Verifier
    cutoff: int | None
    level: int | None
    depth: int | None
    looks_elsewhere: bool
    reads_texts: bool

    @property
    def trec_eval(self) -> str:
        """pytrec_eval's name, empty if a reference computes the measure."""
        if not isinstance(self.verifier, PytrecEval):
            return ""
        return self.verifier.at_cutoff.format(k=self.cutoff) if self.cutoff else self.verifier.whole

    @property
    def is_cut_here(self) -> bool:
        """Whether pytrec_eval's value is of the whole ranking, of which only the first documents count."""
        return bool(self.cutoff) and "{k}" not in getattr(self.verifier, "at_cutoff", "{k}")

    def reference_value(self, query: RankedQuery) -> float:
        """Return the value that the reference computes. Raises TypeError for a measure of pytrec_eval."""
        if isinstance(self.verifier, PytrecEval):
            raise TypeError(f"pytrec_eval computes {self.name}")
        return self.verifier(query, self.cutoff, self.level or 0)


def capped_recall(query: RankedQuery, k: int | None, level: int) -> float:
    """BEIR (Thakur et al., 2021), appendix G: R_cap@k = relevant documents among the first k / min(k, R)."""
    relevant = int((query.judged >= level).sum())
    possible = relevant if k is None else min(k, relevant)
    return float((query.grades[:k] >= level).sum()) / possible if possible else 0.0


def judged_share(query: RankedQuery, k: int | None, level: int) -> float:
    """ir_measures, Judged@k: documents judged for the query, of those among the first k."""
    return float((query.grades[:k] >= 0).mean()) if len(query.grades) else 0.0


def hole(query: RankedQuery, k: int | None, level: int) -> float:
    """Documents not judged for the query, of those among the first k."""
    return float((query.grades[:k] < 0).mean()) if len(query.grades) else 0.0


def hole_anywhere(query: RankedQuery, k: int | None, level: int) -> float:
    """BEIR, table 4: Hole@k = documents judged for no query, of those among the first k."""
    return float((~query.anywhere[:k]).mean()) if len(query.grades) else 0.0


def exponential_ndcg(query: RankedQuery, k: int | None, level: int) -> float:
    """Burges et al. (ICML 2005): DCG = Σ (2^g - 1) / log2(i + 1), divided by that of the ideal ranking."""

    def dcg(grades: NDArray[np.int64]) -> float:
        gains = 2.0 ** np.maximum(grades[:k], 0) - 1
        return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())

    ideal = dcg(np.sort(query.judged)[::-1])
    return dcg(query.grades) / ideal if ideal else 0.0


@dataclass(frozen=True)
class RankBiasedPrecision:
    """Moffat & Zobel (TOIS 27(1), 2008): RBP = (1 - p) Σ rel_i · p^(i - 1)."""

    persistence: float

    def __call__(self, query: RankedQuery, k: int | None, level: int) -> float:
        relevant = query.grades[:k] >= level
        discounts = self.persistence ** np.arange(len(relevant))
        return float((1 - self.persistence) * (relevant * discounts).sum())


def f1(query: RankedQuery, k: int | None, level: int) -> float:
    """Van Rijsbergen (1979): 2 P R / (P + R), P of k documents and R of all relevant ones."""
    found, relevant = float((query.grades[:k] >= level).sum()), float((query.judged >= level).sum())
    precision, recall = found / (k or 1), found / (relevant or 1)
    return 2 * precision * recall / (precision + recall) if found else 0.0


def answer(query: RankedQuery, k: int | None, level: int) -> float:
    """Karpukhin et al. (EMNLP 2020), section 5: whether one of the first k texts has an answer."""
    return float((query.read[0][:k] > 0).any())


def answer_within_tokens(query: RankedQuery, k: int | None, level: int) -> float:
    """Asai et al. (NAACL 2021), section 4.1: whether an answer is among the first k thousand tokens retrieved."""
    before = 0
    for end, length in zip(*query.read, strict=True):
        if end:
            return float(before + end <= 1000 * (k or 0))
        before += length
    return 0.0


def upper_ndcg(query: RankedQuery, k: int | None, level: int) -> float:
    """Return the highest nDCG@k over all grades of unjudged documents (`measures.formulas.upper_ndcg`), by bisection.

    A value v is reached where, summed over the grades in use, the most of gain − v · ideal gain is 0 or more.
    """
    head, in_use = query.grades[:k], query.in_use[query.in_use > 0]
    grades = in_use if len(in_use) else np.array([max(level, 1)])
    discounts = 1 / np.log2(np.arange(2, len(query.judged) + len(query.grades) + 3))
    sums, shown = np.concatenate([[0.0], np.cumsum(discounts[:k])]), discounts[: len(head)]
    added = np.concatenate([[0.0], np.cumsum(shown[head < 0])])
    steps = np.diff(grades, prepend=0)[:, None]
    gains = steps * np.array([shown[head >= grade].sum() + added for grade in grades])
    there = (query.judged >= grades[:, None]).sum(axis=1)
    ideals = steps * sums[np.minimum(there[:, None] + np.arange(len(added)), len(sums) - 1)]
    if len(grades) == 1:
        return float(np.divide(gains, ideals, out=np.zeros_like(gains), where=ideals > 0).max())
    low, high = 0.0, 1.0 if ideals[:, -1].any() else 0.0
    while high - low > TOLERANCE / 10:
        middle = (low + high) / 2
        low, high = (middle, high) if (gains - middle * ideals).max(axis=1).sum() >= 0 else (low, middle)
    return low


def upper_count(query: RankedQuery, k: int | None, level: int) -> RankedQuery:
    """Return the query with every unjudged document among the first k judged relevant."""
    head = query.grades[:k]
    found = np.where(head < 0, max(level, 0), head)
    return replace(query, grades=found, judged=np.concatenate([query.judged, found[head < 0]]))


def _found(query: RankedQuery, k: int | None, level: int) -> NDArray[np.bool_]:
    return query.grades[:k] >= level


def upper(measure: Reference) -> Reference:
    """Return the bound of a measure that no further relevant document lowers: all unjudged ones relevant."""
    return lambda query, k, level: measure(upper_count(query, k, level), k, level)


upper_capped_recall = upper(capped_recall)
upper_precision = upper(lambda query, k, level: float(_found(query, k, level).sum() / (k or 1)))
upper_recall = upper(
    lambda query, k, level: float(_found(query, k, level).sum() / max(1, (query.judged >= level).sum()))
)
upper_reciprocal_rank = upper(
    lambda query, k, level: float(max(_found(query, k, level) / np.arange(1, len(query.grades[:k]) + 1)))
)
upper_success = upper(lambda query, k, level: float(_found(query, k, level).any()))
