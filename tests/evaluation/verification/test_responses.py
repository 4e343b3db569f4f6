"""Measures of answers: the implementation and the references agree on random texts, and with published examples."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.judgements.answers import tokenize
from evaluation.judgements.pattern_check import check_patterns
from evaluation.judgements.qrels import Qrels
from evaluation.runs.answer_runs import MAX_LINES
from evaluation.runs.forms import read_responses
from evaluation.runs.score import ScoredRun, ScoringTarget, score_run
from evaluation.verification import comparing
from evaluation.verification.comparing import Judgements, ScoresDiffer, ScoringRules, StatedResponses, verify
from evaluation.verification.references import AnswerTexts
from tests.evaluation.verification.verified import RESPONSE_MEASURES, claimed_of, scored_of, verified

QUIET = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
RULES = ScoringRules()
QUERIES = [f"q{number}" for number in range(6)]
DOCUMENTS = [f"d{number}" for number in range(8)]

#: Words that normalization changes or must not change, in any script, and characters between them.
WORD = st.sampled_from(
    ["the", "The", "a", "AN", "Paris", "paris", "U.S.", "don't", "Straße", "STRASSE", "İstanbul", "ﬁn", "é",
     "e\u0301", "東京", "東 京", "नमस्ते", "٣", "３", "x²", "🙂", "the.", "(an)", "a-b", "athe", "_the_", "thé", "",
     "!", "“q”", "\0", "\u1c8a", "\U00033479"]
)  # fmt: skip
GAP = st.sampled_from([" ", " ", "  ", "\t", "\n", "", "-", ".", ", ", "\xa0", "\u200b", "\u2028", "\x1c", "\u0301"])
TEXT = st.one_of(
    st.lists(st.tuples(WORD, GAP), max_size=6).map(lambda pairs: "".join(word + gap for word, gap in pairs)),
    st.text(max_size=12),
)
PATTERN = st.sampled_from(
    ["par.s", "(?i)THE", "^a", "a$", ".+", r"\d+", "[é]", "e\u0301", r"\bthe\b", "x?y*z", r"^\w+$"]
)
#: Correct answers that an import accepts, so none is empty.
CORRECT = st.one_of(
    st.lists(TEXT.filter(tokenize), min_size=1, max_size=3).map(lambda texts: {"answers": texts}),
    st.lists(PATTERN, min_size=1, max_size=2).map(lambda patterns: {"patterns": patterns}),
)
CONFIDENCE = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 0.9999999999999999]), st.floats(0, 1))
RESPONSE = st.fixed_dictionaries(
    {
        "answer": TEXT, "citations": st.lists(st.sampled_from(DOCUMENTS), max_size=6), "confidence": CONFIDENCE,
        "search_calls": st.integers(0, 100), "tokens": st.integers(0, 10**9), "seconds": st.floats(0, 1e6),
        "cost": st.floats(0, 1e6),
    }
)  # fmt: skip
GRADES = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 2), min_size=1)


def write(path: Path, key: str, records: Mapping[str, Mapping[str, Any]]) -> Path:
    lines = (json.dumps({key: query, **record}) + "\n" for query, record in records.items())
    path.write_text("".join(lines), "utf-8")
    return path


def score(
    folder: Path,
    responses: Mapping[str, Mapping[str, Any]],
    correct: Mapping[str, Mapping[str, Any]],
    measures: Iterable[str] = RESPONSE_MEASURES,
    grades: Mapping[str, Mapping[str, int]] | None = None,
) -> ScoredRun:
    """Score an answer run, and verify the scores. Without grades, one document is relevant for each answered query."""
    run = write(folder / "run.jsonl", "query_id", responses)
    texts = AnswerTexts(write(folder / "answers.jsonl", "_id", correct), folder / "corpus.jsonl")
    grades = grades or {query: {"d0": 1} for query in correct}
    judged = [f"{query} 0 {document} {grade}\n" for query, each in grades.items() for document, grade in each.items()]
    qrels = folder / "qrels.txt"
    qrels.write_text("".join(judged))
    scored = scored_of(run, qrels, measures, RULES, texts)
    verified(run, qrels, claimed_of(scored), RULES, answers=texts)
    return scored


@given(st.data())
@QUIET
def test_implementation_and_reference_agree_on_random_texts(tmp_path: Path, data: st.DataObject) -> None:
    grades = {query: data.draw(GRADES) for query in QUERIES[:5]}
    correct = {query: data.draw(CORRECT) for query in QUERIES[:4]}
    answered = ["q0", *data.draw(st.lists(st.sampled_from(QUERIES[1:]), unique=True))]
    responses = {query: data.draw(RESPONSE) for query in answered}
    for query in set(answered) & set(correct):
        texts = correct[query].get("answers", ())
        if texts and data.draw(st.booleans()):  # Otherwise, hardly any answer would be correct.
            changed = data.draw(st.sampled_from([str, str.upper, "The {}!".format, "{} more".format, "“{}”".format]))
            responses[query]["answer"] = changed(texts[0])
    score(tmp_path, responses, correct, grades=grades)


@pytest.mark.parametrize(
    ("answer", "correct", "exact", "f1"),
    [
        # Figure 1 and the example of section 4 of Rajpurkar et al. (2016), and section 6.1 on articles and punctuation.
        ("gravity", ["gravity"], 1, 1),
        ("Graupel", ["graupel"], 1, 1),
        ("a cloud", ["within a cloud"], 0, 2 / 3),
        ("The Denver Broncos!", ["Denver Broncos"], 1, 1),
        ("Denver Broncos won", ["Denver Broncos", "Broncos"], 0, 4 / 5),
        ("Santa Clara, California", ["Levi's Stadium in Santa Clara, California"], 0, 2 * 3 / (3 + 6)),
        ("Super Bowl 50 champions Denver", ["Denver Denver"], 0, 2 / 7),
        ("Levis Stadium", ["Levi's Stadium"], 1, 1),
        ("well-known", ["wellknown"], 1, 1),
        ("New\u2028 York\n", ["new york"], 1, 1),
        ("Athens the Great", ["Athens Great"], 1, 1),
        ("theory", ["ory"], 0, 0),
        ("the", ["a"], 1, 0),
        ("", ["a"], 1, 0),
        ("“Paris”", ["Paris"], 0, 0),
        ("Café", ["Cafe\u0301"], 0, 0),
    ],
)  # fmt: skip
def test_normalization_follows_squad(answer: str, correct: list[str], exact: float, f1: float, tmp_path: Path) -> None:
    scored = score(tmp_path, {"q0": {"answer": answer}}, {"q0": {"answers": correct}}, ["EM", "AnswerF1"])
    assert scored.means == pytest.approx({"EM": exact, "AnswerF1": f1})


@pytest.mark.parametrize(
    ("answer", "pattern", "exact", "contained"),
    [
        ("1999", r"\d{4}", 1, 1),
        ("in 1999", r"\d{4}", 0, 1),
        ("PARIS", "paris", 1, 1),
        ("", ".*", 1, 1),
        ("x", "y", 0, 0),
    ],
)
def test_a_pattern_matches_the_whole_answer_or_a_part(
    answer: str, pattern: str, exact: float, contained: float, tmp_path: Path
) -> None:
    correct = {"q0": {"patterns": [pattern]}}
    scored = score(tmp_path, {"q0": {"answer": answer}}, correct, ["EM", "AnswerF1", "AnswerIn"])
    assert scored.means == {"EM": exact, "AnswerF1": exact, "AnswerIn": contained}


@pytest.mark.parametrize(("answer", "contained"), [("paris" + "a c " * 24_000, 1), ("a c " * 24_000 + "paris", 0)])
def test_patterns_are_searched_in_the_first_characters_of_an_answer(
    answer: str, contained: float, tmp_path: Path
) -> None:
    """An import accepts this pattern, which takes minutes in such an answer as a whole."""
    patterns = ["(a|b).*c.*d", "par.s"]
    assert check_patterns({1: patterns}) == {}
    scored = score(tmp_path, {"q0": {"answer": answer}}, {"q0": {"patterns": patterns}}, ("EM", "AnswerIn"))
    assert (scored.means["EM"], scored.means["AnswerIn"]) == (0, contained)


@pytest.mark.parametrize("letter", ["\u1c8a", "\U00033479"])
def test_letters_newer_than_python_are_words(letter: str, tmp_path: Path) -> None:
    """Unicode 16 and 17 contain these letters. The regex package knows them, Python 3.11 does not."""
    scored = score(tmp_path, {"q0": {"answer": f"x {letter}"}}, {"q0": {"answers": [letter]}}, ["AnswerIn"])
    assert scored.means == {"AnswerIn": 1}


def test_calibration_by_hand(tmp_path: Path) -> None:
    """Two answers with 0.9, of which one is wrong, one with 0.25 that is right, and two queries without an answer."""
    responses = {
        "q0": {"answer": "yes", "confidence": 0.9}, "q1": {"answer": "no", "confidence": 0.9},
        "q2": {"answer": "yes", "confidence": 0.25}, QUERIES[3]: {"answer": " "},
    }  # fmt: skip
    scored = score(tmp_path, responses, {query: {"answers": ["yes"]} for query in QUERIES[:5]}, ["ECE"])
    assert scored.per_query[:, 0] == pytest.approx([0.4, 0.4, 0.75, 0, 0])
    assert scored.means["ECE"] == pytest.approx((2 * 0.4 + 0.75) / 5)


def test_stated_figures_do_not_reveal_which_queries_of_a_hidden_target_are_judged(tmp_path: Path) -> None:
    """A team states another power of two for each query, and leaves a figure of an unjudged query out."""
    figures = {
        query: {"answer": "", "search_calls": 2**row, "cost": 2.0**-row} for row, query in enumerate(QUERIES[:4])
    }
    run = write(tmp_path / "run.jsonl", "query_id", {**figures, "q4": {"answer": "", "search_calls": 16}})
    answers = read_responses(run)
    assert answers is not None
    for judged in (["q0"], ["q1", "q3"], ["q2", "q5"]):
        qrels = {query: {"d0": 1} for query in judged}
        target = ScoringTarget(Qrels.from_dict(qrels), QUERIES, hidden=True)
        scored = score_run(run, target, ["SearchCalls", "Cost"])
        assert scored.means == {"SearchCalls": 31 / 5}
        text = "".join(f"{query} 0 d0 1\n" for query in judged).encode()
        for hidden in (True, False):
            stated = StatedResponses(answers.responses, io.BytesIO(), hidden=hidden)
            claimed = scored.as_claimed_scores()
            with nullcontext() if hidden else pytest.raises(ScoresDiffer):
                verify(io.BytesIO(), Judgements(text), claimed, RULES, "", stated_responses=stated)


def test_a_wrong_value_of_a_response_is_noticed(tmp_path: Path) -> None:
    responses = {query: {"answer": "yes", "confidence": 0.5, "citations": ["d0"], "cost": 1} for query in QUERIES[:3]}
    scored = score(tmp_path, responses, {query: {"answers": ["yes"]} for query in QUERIES[:4]})
    texts = AnswerTexts(tmp_path / "answers.jsonl", tmp_path / "corpus.jsonl")
    right = claimed_of(scored)
    for column in range(len(right.measures)):
        wrong = np.array(right.per_query)
        wrong[0, column] += 1e-6
        with pytest.raises(ScoresDiffer):
            verified(
                tmp_path / "run.jsonl", tmp_path / "qrels.txt", replace(right, per_query=wrong), RULES, answers=texts
            )
    with pytest.raises(ScoresDiffer, match="0 queries were counted as missing, 1 are"):
        verified(
            tmp_path / "run.jsonl", tmp_path / "qrels.txt", replace(right, missing_queries=0), RULES, answers=texts
        )


def test_every_query_of_an_answer_run_is_verified() -> None:
    """The calibration error depends on all queries, so none may be left out."""
    assert MAX_LINES <= comparing.WHOLE_LINES
