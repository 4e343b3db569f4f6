"""Answers in texts: where DPR's rule finds them, measures with values worked by hand, and files that are refused."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluation.collections.beir import Document
from evaluation.core.problems import EndlessPattern, InvalidContent
from evaluation.judgements import answers, pattern_check
from evaluation.judgements.answers import Answers, find_answers, read_answers, tokenize
from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoredRun, ScoringTarget, score_run
from evaluation.verification import references
from evaluation.verification.comparing import Judgements, ScoresDiffer, ScoringRules, verify
from evaluation.verification.references import AnswerTexts, SlowAnswers

#: 1,994 tokens, so that six more of a text behind it are within two thousand.
LONG = "filler " * 1_994
CORPUS = {
    "d1": "The capital of France, as ever: Paris.",  # nine tokens; its answer ends with the eighth
    "d2": "Nothing of the kind. PARIS-like towns abound in Texas",
    "d3": LONG,
    "d4": "one two three four five six",
    "d5": "Zoe\u0308 lives in Saint-E\u0301tienne",  # decomposed
    "d6": "It opened in 1889 or 1890.",
}
ANSWERS = [
    {"_id": "q1", "answers": ["Paris", "Lutetia"]},
    {"_id": "q2", "answers": ["five SIX"]},
    {"_id": "q3", "answers": ["saint-étienne"]},
    {"_id": "q4", "patterns": [r"18\d\d\b"]},
    {"_id": "q5", "answers": ["rome"]},
]
RUN = {
    "q1": ["d4", "d1"],
    "q2": ["d3", "d4"],
    "q3": ["d1", "d2", "d5"],
    "q4": ["d6"],
    "q5": ["d1", "d2"],
}
MEASURES = ("Answer@1", "Answer@2", "Answer@3", "R@1kt", "R@2kt", "F1@2")


def written(folder: Path, run: dict[str, list[str]] = RUN, answers: Any = ANSWERS) -> Path:
    texts = [{"_id": name, "title": "Rome", "text": text} for name, text in CORPUS.items()]
    for name, lines in (("corpus", texts), ("answers", answers)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    (folder / "qrels.txt").write_text("".join(f"{each['_id']} 0 d1 1\n" for each in ANSWERS), "utf-8")
    lines = (f"{query} Q0 {name} 1 {9 - place} t\n" for query, names in run.items() for place, name in enumerate(names))
    (folder / "run.txt").write_text("".join(lines), "utf-8")
    return folder


def scored(folder: Path, **options: Any) -> ScoredRun:
    target = ScoringTarget(
        read_qrels(folder / "qrels.txt"),
        hidden=False,
        answers=read_answers(folder / "answers.jsonl"),
        corpus=folder / "corpus.jsonl",
        **options,
    )
    return score_run(folder / "run.txt", target, MEASURES)


def test_measures_that_read_texts_have_the_values_worked_by_hand(tmp_path: Path) -> None:
    found = scored(written(tmp_path)).per_query
    assert found.tolist() == [
        [0, 1, 1, 1, 1, pytest.approx(2 / 3)],  # d1 at rank 2; P@2 = 1/2, R@2 = 1
        [0, 1, 1, 0, 1, 0],  # 1,994 tokens of d3, then the answer is the fifth and sixth of d4
        [0, 0, 1, 1, 1, pytest.approx(2 / 3)],  # é in two characters or one, whatever the case
        [1, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, pytest.approx(2 / 3)],  # Rome is in the titles, which are not read
    ]


def test_one_token_more_and_the_answer_is_behind_two_thousand(tmp_path: Path) -> None:
    folder = written(tmp_path)
    text = (folder / "corpus.jsonl").read_text("utf-8").replace("filler filler ", "filler and filler ", 1)
    (folder / "corpus.jsonl").write_text(text, "utf-8")
    assert scored(folder).per_query[1].tolist() == [0, 1, 1, 0, 0, 0]


def test_what_is_read_is_counted_up_to_the_end_of_the_first_answer() -> None:
    assert tokenize("Paris-like, 3.5 m\u00b2!") == ["paris", "-", "like", ",", "3", ".", "5", "m\u00b2", "!"]
    documents = [Document(name, "", text) for name, text in CORPUS.items()]
    answers = {"q": Answers((" paris ",)), "none": Answers((" 188 ",))}
    found = find_answers(["q", "none", "absent"], {"q": ["d4", "d2"], "none": ["d6"]}, answers, documents)
    assert found.rank.tolist() == [2, math.inf, math.inf]
    assert found.tokens.tolist() == [6 + 6, math.inf, math.inf]


def test_a_second_reader_agrees_and_notices_another_value(tmp_path: Path) -> None:
    folder = written(tmp_path)
    right = scored(folder)
    claimed = right.as_claimed_scores()
    judgements = Judgements((folder / "qrels.txt").read_bytes())
    texts = AnswerTexts(folder / "answers.jsonl", folder / "corpus.jsonl")
    run = (folder / "run.txt").read_bytes()

    def verified(**options: Any) -> None:
        verify(io.BytesIO(run), judgements, claimed, ScoringRules(), "00", **options)

    verified(texts=texts)
    with pytest.raises(ScoresDiffer, match="texts and answers"):
        verified()
    claimed.per_query[1, 4] = 0
    with pytest.raises(ScoresDiffer, match="R@2kt of judged query 2"):
        verified(texts=texts)


def test_a_document_that_is_the_query_is_left_out_before_texts_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path, {"q4": ["q4", "d6"]})
    assert scored(folder, drop_self_matches=True).per_query[3].tolist()[0] == 1
    assert scored(folder).per_query[3].tolist()[:2] == [0, 1]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ({"_id": "q1", "answers": []}, "empty_answer"),
        ({"_id": "q1", "answers": ["Paris", " \u200b "]}, "empty_answer"),
        ({"_id": "q1", "patterns": ["x*"]}, "empty_answer"),
        ({"_id": "q1", "patterns": ["(unclosed"]}, "unusable_pattern"),
        ({"_id": "q1", "patterns": ["(a+)+$"]}, "endless_pattern"),
        ({"_id": "q1", "patterns": ["(b+)+c"]}, "endless_pattern"),
        ({"_id": "q1", "patterns": ["((?:new |old )+)+york"]}, "endless_pattern"),
        ({"_id": "q1", "answers": "Paris"}, "malformed_answers"),
        ({"_id": "q1", "answers": [7]}, "malformed_answers"),
        ({"answers": ["Paris"]}, "malformed_answers"),
        ({"_id": "q0", "answers": ["Rome"]}, "repeated_answers"),
    ],
)
def test_answers_that_cannot_be_looked_for_are_told_by_line(line: Any, code: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in ({"_id": "q0", "answers": ["Oslo"]}, line)), "utf-8")
    with pytest.raises(InvalidContent) as refused:
        read_answers(file)
    problem = refused.value.report.problems[0]
    assert (problem.code, problem.lines) == (code, (2,))
    assert len(refused.value.report.problems) == 1


#: Patterns that cost time or memory when they are compiled or searched, or overflow the stack, with their problem.
HOSTILE = {
    "(?:(?R)|)": "unusable_pattern",
    "(?:(?0)|)": "unusable_pattern",
    "(?<n>(?&n)|)": "unusable_pattern",
    "(?P<n>(?P>n)|)": "unusable_pattern",
    "((?1)|)": "unusable_pattern",
    "((?+1)|)(a)": "unusable_pattern",
    "(?x)(# a comment\n?R)": "unusable_pattern",
    "(" * 400 + "a" + ")" * 400: "unusable_pattern",
    "(?:" * 240 + "a" + ")*" * 240: "unusable_pattern",
    "a" * 1_001: "unusable_pattern",
    "\u00e9" * 501: "unusable_pattern",
    "(?:(?:(?:a{100}){100}){100}){100}": "endless_pattern",
    "(?:ab){1000000000}": "endless_pattern",
    "(?:(?:ab){30000}){30000}": "endless_pattern",
    "(?:(?:(a|b){1000}){1000}){1000}": "endless_pattern",
    "(?:(?:a?b?){1000}){1000}": "endless_pattern",
}
_MEASURED = """
import json, resource, sys
from pathlib import Path
from evaluation.core.problems import InvalidContent
from evaluation.judgements.answers import read_answers
try:
    read_answers(Path(sys.argv[1]))
except InvalidContent as error:
    told = {each.code: each.lines for each in error.report.problems}
own, child = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]  # own.ru_maxrss begins with the parent's
print(json.dumps([told, int(peak), child.ru_maxrss, own.ru_utime, child.ru_utime]))
"""


@pytest.mark.parametrize("pattern", HOSTILE, ids=lambda pattern: pattern[:24])
def test_a_hostile_pattern_is_refused_within_limits(pattern: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    good = json.dumps({"_id": "q0", "patterns": [r"18\d\d"]})
    file.write_text(f"{good}\n{json.dumps({'_id': 'q1', 'patterns': [pattern]})}\n")
    run = [sys.executable, "-c", _MEASURED, str(file)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    told, own_memory, child_memory, own_time, child_time = json.loads(done.stdout)
    assert told == {HOSTILE[pattern]: [2]}
    assert own_memory < 300 * 1024, "kibibytes, of which the libraries have some 100,000"
    assert child_memory < 600 * 1024
    assert own_time < 10
    assert child_time < 10


def test_lines_that_are_nested_as_deep_as_is_accepted_are_verified(tmp_path: Path) -> None:
    deep = "[" * 1_000 + "]" * 1_000
    files = tmp_path / "answers.jsonl", tmp_path / "corpus.jsonl"
    files[0].write_text(f'{{"_id": "q1", "answers": ["Paris"], "note": {deep}}}\n')
    files[1].write_text(f'{{"_id": "d1", "text": "In Paris", "metadata": {deep}}}\n')
    assert set(read_answers(files[0])) == {"q1"}
    ends, lengths = AnswerTexts(*files).read({"q1": ["d1"]}, lambda: None)["q1"]
    assert (ends.tolist(), lengths.tolist()) == ([2], [2])


def test_a_text_that_is_nan_has_no_words_to_verify(tmp_path: Path) -> None:
    files = tmp_path / "answers.jsonl", tmp_path / "corpus.jsonl"
    files[0].write_text('{"_id": "q1", "answers": ["nan"]}\n')
    files[1].write_text('{"_id": "d1", "text": NaN}\n{"_id": "d2", "text": "my nan"}\n')
    ends, lengths = AnswerTexts(*files).read({"q1": ["d1", "d2"]}, lambda: None)["q1"]
    assert (ends.tolist(), lengths.tolist()) == ([0, 2], [0, 2])


def test_a_file_has_a_bounded_number_of_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_check, "MAX_PATTERNS", 3)
    file = tmp_path / "answers.jsonl"
    lines = [{"_id": f"q{n}", "patterns": ["Paris", "Rome"]} for n in range(4)]
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    with pytest.raises(InvalidContent) as refused:
        read_answers(file)
    (problem,) = refused.value.report.problems
    assert (problem.code, problem.lines) == ("too_many_patterns", (2,))


#: Endless where five letters and a blank are repeated, which no text that patterns are tried on does.
PASSES = r"((?:[b-d]\w{5} )+)+#"


def test_patterns_of_usual_kinds_are_taken(tmp_path: Path) -> None:
    usual = [r"\d+\s*(?:million|m)\b", r"\w+ Smith", r".*Paris", r"Feb(ruary)?\s+18(,)?\s+1930", PASSES]
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"_id": "q1", "patterns": usual}) + "\n", "utf-8")
    assert len(read_answers(file)["q1"].patterns) == len(usual)


@pytest.mark.parametrize("bound", ["TEXT_SECONDS", "RUN_SECONDS"])
def test_a_pattern_that_only_texts_show_to_be_endless_ends_the_scoring_with_its_line(
    bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies to the scorer and to the second reader."""
    monkeypatch.setattr(answers, bound, 0.05)
    monkeypatch.setattr(references, bound, 0.05)
    monkeypatch.setitem(CORPUS, "d6", "common " * (130 if bound == "TEXT_SECONDS" else 60) + "x #1 in 1889")
    folder = written(tmp_path, answers=[*ANSWERS[:3], {"_id": "q4", "patterns": ["18", PASSES]}, ANSWERS[4]])
    with pytest.raises(EndlessPattern, match=r"answers.jsonl, line 4: a pattern .* more than 0.05 s"):
        scored(folder)
    texts = AnswerTexts(folder / "answers.jsonl", folder / "corpus.jsonl")
    with pytest.raises(SlowAnswers, match="line 4"):
        texts.read(RUN, lambda: None)
