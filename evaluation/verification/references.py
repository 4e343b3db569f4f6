"""References for measures that pytrec_eval lacks, each written as in its source, one query at a time.

Answers are found by simple loops like DPR's `has_answer`, in every text of every ranking.
"""

import functools
import gzip
import json
import re
import string
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

#: Maximum processor seconds of a pattern in one text, maximum for all slow searches together, and minimum for a slow
#: search.
TEXT_SECONDS, RUN_SECONDS, SLOW_SECONDS = 2.0, 30.0, 0.02
#: Number of characters of an answer in which patterns are searched; equals `pattern_check.TEXT_LENGTH`.
PATTERN_LENGTH = 1_000
_GZIP_MAGIC = b"\x1f\x8b"

#: Numbers of tokens for each document of a ranking: up to the end of an answer (0 without one), and in all.
ReadTokens = tuple[NDArray[int64], NDArray[int64]]
NO_TEXTS: ReadTokens = (array([], int64), array([], int64))


class SlowAnswers(Exception):
    """Error for a pattern that is too slow, on this line of the answers."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}")


class _Clock:
    """Pattern searches with a common time limit."""

    def __init__(self) -> None:
        self.remaining_seconds = RUN_SECONDS

    def search(self, pattern: Any, text: str, line: int) -> Any:
        """Return the pattern's first match in a text, or None.

        Raises SlowAnswers with the line if the search, or all slow searches together, take too long.
        """
        start = time.process_time()
        try:
            match = pattern.search(text, timeout=TEXT_SECONDS)
        except TimeoutError as error:
            raise SlowAnswers(line) from error
        seconds = time.process_time() - start
        self.remaining_seconds -= seconds if seconds > SLOW_SECONDS else 0
        if self.remaining_seconds < 0:
            raise SlowAnswers(line)
        return match


def _parse_line(line: bytes) -> Any:
    """Parse a line of JSON in an accepted file. It may be nested 1,024 deep, which exceeds Python's default stack."""
    try:
        return json.loads(line)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 2_000)
        try:
            return json.loads(line)
        finally:
            sys.setrecursionlimit(limit)


@functools.cache
def _category(character: str) -> str:
    """Return the first letter of the character's general category in the regex package, as in DPR's tokenizer.

    The package's version of Unicode is newer than Python's. Returns P for symbols too.
    """
    return next((kind for kind in "LNMZC" if regex.match(rf"\p{{{kind}}}", character)), "P")


def _split_words(text: str) -> list[str]:
    """Return the words of a text in lower case after NFD normalization, without white space and controls.

    A word is a run of letters, digits, and marks, or another single character, such as a punctuation mark.
    """
    words, is_in_word = list[list[str]](), False
    for character in unicodedata.normalize("NFD", text).lower():
        kind = _category(character)
        if kind in "LNM" and is_in_word:
            words[-1].append(character)
        elif kind not in "ZC":
            words.append([character])
        is_in_word = kind in "LNM"
    return ["".join(word) for word in words]


@dataclass(frozen=True)
class _Answers:
    """Answers of one query, and their line in the file."""

    words: Sequence[Sequence[str]] = ()
    patterns: Sequence[Any] = ()
    line: int = 0
    texts: Sequence[str] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any], line: int) -> Self:
        """Return the question's answers as words, and its patterns, compiled after NFD normalization."""
        flags = regex.IGNORECASE | regex.MULTILINE
        normalized = [unicodedata.normalize("NFD", text) for text in record.get("patterns", ())]
        return cls(
            [_split_words(text) for text in record.get("answers", ())],
            [regex.compile(text, flags) for text in normalized],
            line,
            record.get("answers", ()),
        )

    def first_end(self, text: str, words: Sequence[str], clock: _Clock) -> int:
        """Return the number of the text's words up to the end of the first answer, or 0 if there is none.

        `words` are the words of the text. Raises SlowAnswers.
        """
        ends = []
        for answer in self.words:
            starts = range(len(words) - len(answer) + 1)
            ends += [start + len(answer) for start in starts if words[start : start + len(answer)] == answer][:1]
        normalized = unicodedata.normalize("NFD", text)
        for pattern in self.patterns:
            match = clock.search(pattern, normalized, self.line)
            ends += [max(len(_split_words(normalized[: match.end()])), 1)] if match else []
        return min(ends, default=0)


_AnswersByQuery = Mapping[str, _Answers]


@dataclass(frozen=True)
class AnswerTexts:
    """Files of the answers (`answers.jsonl`) and, for measures that read texts, `corpus.jsonl` (optionally gzip)."""

    answers: Path
    corpus: Path | None

    def read_answers(self) -> dict[str, _Answers]:
        """Return the answers by query."""
        answers = {}
        for number, line in enumerate(self.answers.open("rb"), 1):
            if line.strip():
                record = _parse_line(line)
                answers[str(record["_id"])] = _Answers.from_record(record, number)
        return answers

    def read(self, rankings: Mapping[str, Sequence[str]], after_block: Callable[[], object]) -> dict[str, ReadTokens]:
        """Return the numbers of tokens of the texts in each query's ranking: up to the end of an answer, and in all.

        `rankings` maps queries to document ids. `after_block` is called periodically and may raise. Raises
        SlowAnswers.
        """
        assert self.corpus is not None
        answers, clock = self.read_answers(), _Clock()
        queries_by_document: defaultdict[str, list[str]] = defaultdict(list)
        for query, names in rankings.items():
            for name in names:
                queries_by_document[name].append(query)
        ends, lengths = dict[tuple[str, str], int](), dict[str, int]()
        with self.corpus.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
        with gzip.open(self.corpus) if packed else self.corpus.open("rb") as lines:
            for number, line in enumerate(lines):
                if number % 10_000 == 0:
                    after_block()
                if not line.strip():
                    continue
                document = _parse_line(line)
                if (name := str(document["_id"])) in queries_by_document:
                    text = document.get("text")
                    text = "" if text is None or text != text else str(text)  # The text is null or NaN.
                    words = _split_words(text)
                    lengths[name] = len(words)
                    for query in queries_by_document[name]:
                        ends[query, name] = answers.get(query, _Answers()).first_end(text, words, clock)
        return {
            query: (
                array([ends.get((query, name), 0) for name in names], int64),
                array([lengths.get(name, 0) for name in names], int64),
            )
            for query, names in rankings.items()
        }


#: Maximum difference due to another order of summation.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class RankedQuery:
    """A query's ranking, best first, and its judgments.

    Attributes:
        grades: Grade of each document, -1 if it is not judged for the query.
        judged_anywhere: Whether each document is judged for any query; empty if no measure needs it.
        judged_grades: Grades of the query, in arbitrary order.
        token_counts: Numbers of tokens of each text, up to the end of an answer and in all, if a measure needs them.
        grades_in_use: Distinct grades of all queries, ascending.
        subtopics: Grades by subtopic of each document, if a measure needs them.
        judged_subtopics: The same for all documents judged by subtopic, in order of their ids' bytes.
    """

    grades: NDArray[np.int64]
    judged_anywhere: NDArray[np.bool_]
    judged_grades: NDArray[np.int64]
    token_counts: ReadTokens = NO_TEXTS
    grades_in_use: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    subtopics: Sequence[Mapping[str, int]] = ()
    judged_subtopics: Sequence[Mapping[str, int]] = ()


#: Function from a ranking, a cutoff (None for none), and the lowest relevant grade to a value.
Reference = Callable[[RankedQuery, int | None, int], float]


@dataclass(frozen=True, slots=True)
class PytrecEval:
    """pytrec_eval's names of a measure without and with a cutoff `{k}`, empty if there is no such variant.

    An `at_cutoff` without `{k}` is the reciprocal rank: pytrec_eval has no cutoff for it, so its values are cut here.
    """

    whole: str = ""
    at_cutoff: str = ""


@dataclass(frozen=True, slots=True)
class ResponseReference:
    """Reference that computes values from query ids, responses by query, and correct answers.

    Responses have the form of `evaluation.judgements.responses`. If the reference `reads_labels`, its last argument is
    the list of records of the labels instead. `is_stated` marks values that do not depend on judgments.
    """

    compute: Callable[[Sequence[str], Mapping[str, Any], Any], Sequence[float]]
    reads_labels: bool = False
    is_stated: bool = False


Verifier = PytrecEval | Reference | ResponseReference


@dataclass(frozen=True, slots=True)
class VerifiedMeasure:
    """A measure to compute a second time.

    Attributes:
        level: Lowest relevant grade, None for the dataset's.
        depth: Number of documents that it reads, None for all.
        looks_elsewhere: Whether it needs `RankedQuery.judged_anywhere`.
        reads_texts: Whether it needs `RankedQuery.token_counts`.
        reads_responses: Whether it needs an answer run: the citations for pytrec_eval, otherwise the responses.
    """

    name: str
    verifier: Verifier
    cutoff: int | None
    level: int | None
    depth: int | None
    looks_elsewhere: bool
    reads_texts: bool
    reads_responses: bool = False

    @property
    def trec_eval(self) -> str:
        """Name of the measure in pytrec_eval, or an empty string if a reference implementation computes it."""
        if not isinstance(self.verifier, PytrecEval):
            return ""
        return self.verifier.at_cutoff.format(k=self.cutoff) if self.cutoff else self.verifier.whole

    @property
    def is_cut_here(self) -> bool:
        """Whether pytrec_eval's value is for the whole ranking, and the cutoff is applied afterwards."""
        return bool(self.cutoff) and "{k}" not in getattr(self.verifier, "at_cutoff", "{k}")

    def reference_value(self, query: RankedQuery) -> float:
        """Return the value computed by the reference. Raises TypeError for a measure of pytrec_eval."""
        if isinstance(self.verifier, PytrecEval | ResponseReference):
            raise TypeError(f"{self.name} is not a function of one ranking")
        return self.verifier(query, self.cutoff, self.level or 0)


def capped_recall(query: RankedQuery, k: int | None, level: int) -> float:
    """Return R_cap@k, the number of relevant documents among the first k, divided by min(k, R).

    R is the number of all relevant documents: BEIR (Thakur et al., 2021), appendix G.
    """
    relevant = int((query.judged_grades >= level).sum())
    possible = relevant if k is None else min(k, relevant)
    return float((query.grades[:k] >= level).sum()) / possible if possible else 0.0


def judged_share(query: RankedQuery, k: int | None, level: int) -> float:
    """Return Judged@k as in ir_measures, the share of the first k documents that are judged for the query."""
    return float((query.grades[:k] >= 0).mean()) if len(query.grades) else 0.0


def hole(query: RankedQuery, k: int | None, level: int) -> float:
    """Return the share of the first k documents that are not judged for the query."""
    return float((query.grades[:k] < 0).mean()) if len(query.grades) else 0.0


def hole_anywhere(query: RankedQuery, k: int | None, level: int) -> float:
    """Return Hole@k as in BEIR, table 4, the share of the first k documents that are not judged for any query."""
    return float((~query.judged_anywhere[:k]).mean()) if len(query.grades) else 0.0


def exponential_ndcg(query: RankedQuery, k: int | None, level: int) -> float:
    """Return DCG = Σ (2^g - 1) / log2(i + 1), divided by that of the ideal ranking: Burges et al. (ICML 2005)."""

    def dcg(grades: NDArray[np.int64]) -> float:
        gains = 2.0 ** np.maximum(grades[:k], 0) - 1
        return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())

    ideal = dcg(np.sort(query.judged_grades)[::-1])
    return dcg(query.grades) / ideal if ideal else 0.0


def expected_reciprocal_rank(query: RankedQuery, k: int | None, level: int) -> float:
    """Return ERR@k by the loop of algorithm 2 in Chapelle et al. (CIKM 2009), with the constants of gdeval.pl."""
    highest, continues, value = max([4, *query.grades_in_use.tolist()]), 1.0, 0.0
    for rank, grade in enumerate(query.grades[:k].tolist(), 1):
        satisfied = (2 ** max(grade, 0) - 1) / 2**highest
        value += continues * satisfied / rank
        continues *= 1 - satisfied
    return value


@dataclass(frozen=True)
class RankBiasedPrecision:
    """RBP = (1 - p) Σ rel_i · p^(i - 1): Moffat & Zobel (TOIS 27(1), 2008)."""

    persistence: float

    def __call__(self, query: RankedQuery, k: int | None, level: int) -> float:
        relevant = query.grades[:k] >= level
        discounts = self.persistence ** np.arange(len(relevant))
        return float((1 - self.persistence) * (relevant * discounts).sum())


def f1(query: RankedQuery, k: int | None, level: int) -> float:
    """Return 2 P R / (P + R), with P over k documents and R over all relevant ones: Van Rijsbergen (1979)."""
    retrieved, relevant = float((query.grades[:k] >= level).sum()), float((query.judged_grades >= level).sum())
    precision, recall = retrieved / (k or 1), retrieved / (relevant or 1)
    return 2 * precision * recall / (precision + recall) if retrieved else 0.0


def answer(query: RankedQuery, k: int | None, level: int) -> float:
    """Return 1 if one of the first k texts has an answer, otherwise 0: Karpukhin et al. (EMNLP 2020), section 5."""
    return float((query.token_counts[0][:k] > 0).any())


def answer_within_tokens(query: RankedQuery, k: int | None, level: int) -> float:
    """Return 1 if an answer ends within the first k thousand tokens, otherwise 0.

    The texts are read from the first document on: Asai et al. (NAACL 2021), section 4.1.
    """
    token_count = 0
    for end, length in zip(*query.token_counts, strict=True):
        if end:
            return float(token_count + end <= 1000 * (k or 0))
        token_count += length
    return 0.0


def upper_ndcg(query: RankedQuery, k: int | None, level: int) -> float:
    """Return the highest nDCG@k over all grades of unjudged documents (`measures.formulas.upper_ndcg`).

    A value v is attainable if, summed over the grades in use, the maxima of gain − v · ideal gain are at least 0. The
    highest one is found in nested intervals.
    """
    head, used_grades = query.grades[:k], query.grades_in_use[query.grades_in_use > 0]
    grades = used_grades if len(used_grades) else np.array([max(level, 1)])
    discounts = 1 / np.log2(np.arange(2, (k or len(query.judged_grades) + len(query.grades)) + 3))
    sums, head_discounts = np.concatenate([[0.0], np.cumsum(discounts[:k])]), discounts[: len(head)]
    unjudged_discounts = np.concatenate([[0.0], np.cumsum(head_discounts[head < 0])])
    steps = np.diff(grades, prepend=0)[:, None]
    gains = steps * np.array([head_discounts[head >= grade].sum() + unjudged_discounts for grade in grades])
    relevant_counts = (query.judged_grades >= grades[:, None]).sum(axis=1)
    ideals = steps * sums[np.minimum(relevant_counts[:, None] + np.arange(len(unjudged_discounts)), len(sums) - 1)]
    if len(grades) == 1:
        return float(np.divide(gains, ideals, out=np.zeros_like(gains), where=ideals > 0).max())
    value, width = 0.0, 1.0 if ideals[:, -1].any() else 0.0
    while width > TOLERANCE / 10:
        width /= 32
        candidates = (value + width * np.arange(1, 33))[:, None, None]
        value += width * int(((gains - candidates * ideals).max(axis=2).sum(axis=1) >= 0).sum())
    return value


def assume_relevant(query: RankedQuery, k: int | None, level: int) -> RankedQuery:
    """Return the query with all unjudged documents among the first k judged relevant."""
    head = query.grades[:k]
    grades = np.where(head < 0, max(level, 0), head)
    return replace(query, grades=grades, judged_grades=np.concatenate([query.judged_grades, grades[head < 0]]))


def _is_relevant(query: RankedQuery, k: int | None, level: int) -> NDArray[np.bool_]:
    return query.grades[:k] >= level


def upper(measure: Reference) -> Reference:
    """Return a measure's upper bound, for measures that never decrease if unjudged documents become relevant."""
    return lambda query, k, level: measure(assume_relevant(query, k, level), k, level)


upper_capped_recall = upper(capped_recall)
upper_precision = upper(lambda query, k, level: float(_is_relevant(query, k, level).sum() / (k or 1)))
upper_recall = upper(
    lambda query, k, level: float(_is_relevant(query, k, level).sum() / max(1, (query.judged_grades >= level).sum()))
)
upper_reciprocal_rank = upper(
    lambda query, k, level: float(max(_is_relevant(query, k, level) / np.arange(1, len(query.grades[:k]) + 1)))
)
upper_rbp = upper(RankBiasedPrecision(0.8))
upper_success = upper(lambda query, k, level: float(_is_relevant(query, k, level).any()))


def _squad_words(text: str) -> list[str]:
    """Return the words of a text without ASCII punctuation and articles, in lower case: Rajpurkar et al. (2016)."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return [word for word in re.split(r"\s+|(?<!\w)(?:a|an|the)(?!\w)", kept) if word]


def exact_match(queries: Sequence[str], responses: Mapping[str, Any], answers: _AnswersByQuery) -> list[float]:
    """Return 1 for an answer that equals a correct one after normalization, otherwise 0: Rajpurkar et al. (2016)."""
    pairs = ((responses.get(query), answers.get(query)) for query in queries)
    return [_best_match(*pair, lambda left, right: float(left == right)) for pair in pairs]


def answer_f1(queries: Sequence[str], responses: Mapping[str, Any], answers: _AnswersByQuery) -> list[float]:
    """Return the highest F1 of words over the correct answers: Rajpurkar et al. (2016), section 6.1."""

    def overlap(left: list[str], right: list[str]) -> float:
        rest, common = list(right), 0
        for word in left:
            if word in rest:
                rest.remove(word)
                common += 1
        if not common:
            return 0.0
        precision, recall = common / len(left), common / len(right)
        return 2 * precision * recall / (precision + recall)

    return [_best_match(responses.get(query), answers.get(query), overlap) for query in queries]


def _best_match(response: Any, correct: _Answers | None, compare: Callable[[list[str], list[str]], float]) -> float:
    """Return the highest value over the correct answers; a pattern must match the whole answer."""
    if response is None or correct is None:
        return 0.0
    text, clock = unicodedata.normalize("NFD", response.answer[:PATTERN_LENGTH]), _Clock()
    matches = [clock.search(pattern, text, correct.line) for pattern in correct.patterns]
    if len(response.answer) <= PATTERN_LENGTH and any(match and match.group() == text for match in matches):
        return 1.0
    words = _squad_words(response.answer)
    return max((compare(words, _squad_words(each)) for each in correct.texts), default=0.0)


def answer_containment(queries: Sequence[str], responses: Mapping[str, Any], answers: _AnswersByQuery) -> list[float]:
    """Return, for each query, 1 if the answer contains a correct one, otherwise 0.

    Source: Karpukhin et al. (EMNLP 2020), section 5.
    """
    clock, values = _Clock(), []
    for query in queries:
        text, correct = responses[query].answer if query in responses else "", answers.get(query, _Answers())
        text = text[:PATTERN_LENGTH] if correct.patterns else text
        values.append(float(correct.first_end(text, _split_words(text), clock) > 0))
    return values


def calibration_error(queries: Sequence[str], responses: Mapping[str, Any], answers: _AnswersByQuery) -> list[float]:
    """Return |accuracy - confidence| of each query's bin, over ten bins of confidence: Guo et al. (2017).

    The confidence of an empty answer is 0 unless it is stated.
    """
    correct = answer_containment(queries, responses, answers)
    given = (responses.get(query) for query in queries)
    stated = [each.confidence if each and (each.confidence or each.answer.strip()) else 0.0 for each in given]
    bins = [next(number for number in range(1, 11) if confidence * 10 <= number) for confidence in stated]
    gaps = {}
    for own_bin in set(bins):
        members = [number for number, each in enumerate(bins) if each == own_bin]
        accuracy = sum(correct[number] for number in members) / len(members)
        gaps[own_bin] = abs(accuracy - sum(stated[number] for number in members) / len(members))
    return [gaps[own_bin] for own_bin in bins]


def stated_figure(figure: str) -> ResponseReference:
    """Return the reference of a figure that responses state."""
    return ResponseReference(
        lambda queries, responses, answers: [
            float(getattr(responses[query], figure)) if query in responses else 0.0 for query in queries
        ],
        is_stated=True,
    )


def read_records(text: bytes) -> list[dict[str, Any]]:
    """Return the records of a file of labels."""
    return [_parse_line(line) for line in text.split(b"\n") if line]


@dataclass(frozen=True)
class LabeledAnswers:
    """A measure of the labels of a judge, by the definitions of Pradeep et al. (2024); NaN for an unlabeled answer."""

    measure: str
    judge: str

    def __call__(self, queries: Sequence[str], responses: Mapping[str, Any], records: Sequence[Any]) -> list[float]:
        """Return the values of the queries by the records of the file of labels."""
        rows = [row for row in records if row.get("judge") == self.judge and "answer" in row]
        labels = {(row["query_id"], row["answer"]): row for row in rows}
        nuggets = {row["query_id"]: row["nuggets"] for row in records if "judge" not in row}
        texts = [responses[query].answer if query in responses else "" for query in queries]
        return [
            self._score(labels.get((query, text), {}), nuggets.get(query, [])) if text.strip() else 0.0
            for query, text in zip(queries, texts, strict=True)
        ]

    def _score(self, label: Mapping[str, Any], nuggets: Sequence[Mapping[str, Any]]) -> float:
        support = label.get("nuggets", {})
        if self.measure == "Correct":
            return float(label.get("correct", "nan"))
        if not nuggets or {nugget["id"] for nugget in nuggets} != set(support):
            return float("nan")
        counted = [support[nugget["id"]] for nugget in nuggets if self.measure == "NuggetR" or nugget["vital"]]
        return (counted.count("support") + counted.count("partial_support") / 2) / max(len(counted), 1)
