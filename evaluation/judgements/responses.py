"""Responses of systems to queries, and their comparison with the correct answers.

Exact match and token F1 follow SQuAD 1.1 (Rajpurkar et al., EMNLP 2016, section 6.1): both texts are compared in lower
case, without ASCII punctuation and English articles. Containment compares the tokens of Answer@k.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.answers import Answers, PatternSearch, join_tokens, tokenize
from evaluation.judgements.labels import Labels, score_labels
from evaluation.judgements.pattern_check import TEXT_LENGTH

Values = NDArray[np.float64]
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Number of bins of equal width for the calibration error.
CALIBRATION_BINS = 10
#: Measures of stated figures, and the attributes of `Response` that they read.
STATED_FIGURES = {"SearchCalls": "search_calls", "Tokens": "tokens", "Seconds": "seconds", "Cost": "cost"}


@dataclass(frozen=True, slots=True)
class Response:
    """A system's response to one query.

    Attributes:
        answer: The answer, empty if the system gave none.
        citations: Cited documents in order of their first citation.
        confidence: Probability from 0 to 1 that the answer is correct, as stated by the system.
        search_calls: Number of searches.
        tokens: Number of tokens that the model read and wrote.
        seconds: Time from the query to the answer.
        cost: Price in US dollars.

    Figures are None if they are not stated.
    """

    answer: str
    citations: tuple[str, ...] = ()
    confidence: float | None = None
    search_calls: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    cost: float | None = None


def normalize_answer(text: str) -> list[str]:
    """Return the words of an answer that exact match and F1 compare."""
    return _ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split()


def token_f1(words: Sequence[str], correct_words: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of the normalized words of an answer."""
    common = (Counter(words) & Counter(correct_words)).total()
    return 2 * common / (len(words) + len(correct_words)) if common else 0.0


def score_responses(
    query_ids: Sequence[str],
    responses: Mapping[str, Response],
    answers: Mapping[str, Answers] | None,
    labels: Labels | None = None,
    hidden: bool = False,
) -> dict[str, Values]:
    """Return a value per query for each measure that the responses allow, by name of the measure.

    Measures of correctness need `answers`, measures of judges labels of all answers, and other measures a figure in
    every response. A query without response or without answers scores 0, and an empty answer without a confidence has
    the confidence 0. If judgments are `hidden`, stated figures are means over all responses of the run, so that they do
    not reveal which queries are judged. Raises EndlessPattern.
    """
    given = [responses.get(query) for query in query_ids]
    stated_responses = [*responses.values()] if hidden else given
    scores = {
        name: np.array([getattr(response, figure) if response else 0.0 for response in stated_responses], np.float64)
        for name, figure in STATED_FIGURES.items()
        if all(getattr(response, figure) is not None for response in stated_responses if response)
    }
    if hidden:
        scores = {name: np.full(len(query_ids), column.mean()) for name, column in scores.items()}
    if labels is not None:
        texts = {query: response.answer for query, response in responses.items()}
        scores |= score_labels(query_ids, texts, labels)
    if answers is None:
        return scores
    search, rows = PatternSearch(), []
    for query, response in zip(query_ids, given, strict=True):
        rows.append(_compare(response.answer, answers.get(query, Answers()), search) if response else (0.0, 0.0, 0.0))
    exact, f1, contained = np.array(rows, np.float64).reshape(-1, 3).T
    scores |= {"EM": exact, "AnswerF1": f1, "AnswerIn": contained}
    confidences = [each.confidence if each and (each.answer.strip() or each.confidence) else 0.0 for each in given]
    if all(confidence is not None for confidence in confidences):
        scores["ECE"] = calibration_gaps(np.array(confidences, np.float64), contained)
    return scores


def _compare(answer: str, correct: Answers, search: PatternSearch) -> tuple[float, float, float]:
    """Return exact match, token F1, and containment. A pattern matches exactly if its first match is the whole answer.

    The F1 of a pattern is its exact match. Patterns are searched in the first `TEXT_LENGTH` characters, for which they
    were tested, so that no answer makes them slow.
    """
    if correct.patterns:
        text = unicodedata.normalize("NFD", answer[:TEXT_LENGTH])
        matches = [search.search(pattern, text, correct.line) for pattern in correct.patterns]
        spans = [match.span() for match in matches if match]
        exact = (0, len(text)) in spans and len(answer) <= TEXT_LENGTH
        return float(exact), float(exact), float(bool(spans))
    contained = correct.count_tokens_until(answer, join_tokens(tokenize(answer)), search) > 0
    words, correct_words = normalize_answer(answer), [normalize_answer(text) for text in correct.texts]
    f1 = max((token_f1(words, each) for each in correct_words), default=0.0)
    return float(words in correct_words), f1, float(contained)


def calibration_gaps(confidences: Values, is_correct: Values) -> Values:
    """Return the gap between mean confidence and share of correct answers in each query's bin.

    The mean of the gaps is the expected calibration error of Guo et al. (ICML 2017), equation 3, over ten bins of equal
    width.
    """
    bins = np.maximum(np.ceil(confidences * CALIBRATION_BINS).astype(np.int64) - 1, 0)
    counts, differences = np.bincount(bins), np.bincount(bins, confidences - is_correct)
    gaps: Values = np.abs(differences[bins]) / counts[bins]
    return gaps
