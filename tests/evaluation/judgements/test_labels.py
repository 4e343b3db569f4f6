"""Scores of labels by the implementation and by the reference."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.judgements.labels import (
    LABEL_MEASURES,
    SUPPORT,
    Labels,
    changed_nuggets,
    label_measure,
    merge_labels,
    read_labels,
    score_labels,
    write_labels,
)
from evaluation.judgements.merge import MergePolicy
from evaluation.judgements.responses import Response
from evaluation.measures.registry import UnknownMeasureError, parse_measure
from evaluation.verification.references import LabeledAnswers, read_records

QUERIES = ("q1", "q2", "é")
TEXTS = ("Paris", "Paris ", "line\nbreak\u2028", "", " ")


def as_file(records: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def make_records(chance: random.Random) -> list[dict[str, Any]]:
    """Return records of labels by two judges, and of nuggets, as a curator may upload them."""
    records: list[dict[str, Any]] = [{"judge": judge, "kind": "person"} for judge in ("Ana", "Ben")]
    for query in QUERIES:
        ids = chance.sample("abcd", chance.randint(0, 4))
        if ids:
            nuggets = [{"id": name, "text": "", "vital": chance.random() < 0.5} for name in ids]
            records.append({"query_id": query, "nuggets": nuggets})
        for judge, text in product(("Ana", "Ben"), TEXTS[:3]):
            fields: dict[str, Any] = {"correct": chance.random()} if chance.random() < 0.9 else {}
            if ids and chance.random() < 0.9:
                fields["nuggets"] = {name: chance.choice(list(SUPPORT)) for name in ids}
            if fields:
                records.append({"judge": judge, "kind": "person", "query_id": query, "answer": text, **fields})
    return records


@pytest.mark.parametrize("seed", range(100))
def test_scores_equal_the_reference(seed: int) -> None:
    chance = random.Random(seed)
    content = as_file(make_records(chance))
    answers = {query: chance.choice(TEXTS) for query in QUERIES if chance.random() < 0.8}
    scores = score_labels(QUERIES, answers, read_labels(content))
    responses = {query: Response(answer) for query, answer in answers.items()}
    for judge in ("Ana", "Ben"):
        for measure in LABEL_MEASURES:
            expected = LabeledAnswers(measure, judge)(QUERIES, responses, read_records(content))
            values = scores.get(label_measure(measure, judge))
            if any(value != value for value in expected):
                assert values is None
            else:
                assert values is not None
                assert values.tolist() == pytest.approx(expected)


def test_stored_labels_are_read_as_they_were_written(tmp_path: Path) -> None:
    labels, target = read_labels(as_file(make_records(random.Random(7)))), tmp_path / "labels"
    write_labels(labels, target)
    stored, content = read_labels(target), target.read_bytes()
    assert {key: stored[key] for key in stored if key[1]} == {key: labels[key] for key in labels if key[1]}
    write_labels(merge_labels(stored, labels, MergePolicy.KEEP), target)
    assert target.read_bytes() == content


def test_measures_name_their_judge() -> None:
    for name in ("Correct(judge='Ana')", 'nuggetr(judge="Ana Ng")', "VitalR(judge='gpt-4.1_mini+x')"):
        assert parse_measure(name).name.casefold() == name.replace('"', "'").casefold()
    assert parse_measure("Correct(judge='Ana')") != parse_measure("Correct(judge='ana')")
    for name in ("Correct", "Correct(judge='a)b')", f"Correct(judge='{'A' * 41}')", "Correct(judge='Ana')@10"):
        with pytest.raises(UnknownMeasureError):
            parse_measure(name)


def test_an_unknown_query_or_judge_is_a_problem() -> None:
    record = {"judge": "Ana", "kind": "person", "query_id": "q9", "answer": "x", "correct": 1}
    with pytest.raises(InvalidContent, match="a query that is not in the dataset"):
        read_labels(as_file([record]), {"q1"})
    known = {("Ana", "", ""): {"kind": "model", "model": "m"}}
    with pytest.raises(InvalidContent, match="another kind, model, or prompt"):
        read_labels(as_file([record]), known=known)


def nugget_labels(answer: str, nuggets: dict[str, str]) -> Labels:
    """Return labels of one query with these texts of nuggets, all supported by one answer."""
    rows = [{"id": name, "text": text, "vital": True} for name, text in nuggets.items()]
    label = {"judge": "Ana", "kind": "person", "query_id": "q1", "answer": answer, "correct": 1}
    return read_labels(
        as_file([{"query_id": "q1", "nuggets": rows}, {**label, "nuggets": dict.fromkeys(nuggets, "support")}])
    )


@pytest.mark.parametrize(
    "nuggets", [True, 1, "n1", {"n1": "a"}, [], ["n1"], [{"id": ["n1"], "text": "a", "vital": True}]]
)
def test_unusable_nuggets_are_a_problem(nuggets: Any) -> None:
    with pytest.raises(InvalidContent, match="1 line with unusable nuggets"):
        read_labels(as_file([{"query_id": "q1", "nuggets": nuggets}]))


@pytest.mark.parametrize("policy", MergePolicy)
@pytest.mark.parametrize("new_nuggets", [{"n1": "b"}, {"n1": "a", "n2": "b"}, {"n2": "a"}])
def test_labels_follow_the_nuggets_of_their_side(policy: MergePolicy, new_nuggets: dict[str, str]) -> None:
    old, new = nugget_labels("Paris", {"n1": "a"}), nugget_labels("Rome", new_nuggets)
    assert changed_nuggets(old, new) == {"q1"}
    merged, is_new = merge_labels(old, new, policy), policy == MergePolicy.REPLACE
    expected = {"Paris": {"n1": "support"}} if not is_new else {"Rome": dict.fromkeys(new_nuggets, "support")}
    labels = {answer: fields["nuggets"] for (_, _, answer), fields in merged.items() if answer and "nuggets" in fields}
    assert labels == expected
    assert all(merged["Ana", "q1", answer]["correct"] == 1 for answer in ("Paris", "Rome"))


def test_the_same_label_keeps_the_nuggets_of_the_list() -> None:
    old, new = nugget_labels("Paris", {"n1": "a"}), nugget_labels("Paris", {"n1": "a", "n2": "b"})
    for policy in MergePolicy:
        merged = merge_labels(old, new, policy)
        assert score_labels(["q1"], {"q1": "Paris"}, merged)["VitalR(judge='Ana')"].tolist() == [1]
    assert not changed_nuggets(old, nugget_labels("Rome", {"n1": "a"}))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("A\u3164na", "judge_letters"), ("Ana\uffa0", "judge_letters"), ("\u0396oe", "judge_letters"),
        ("Llama \u0417", "judge_letters"), ("\u0251na", "similar_judge"), ("gpt 4.1", "similar_judge"),
        ("gpt-4.l", "similar_judge"), ("gpt-4-1", "similar_judge"), ("gpt-\uff14\uff11", "similar_judge"),
        ("gpt-41", ""), ("gpt-4.11", ""),
        ("\u0417\u043e\u044f 1", ""), ("\u00c5sa \u00d8", ""), ("\u5c71\u7530 A", ""), ("\U00017000", ""),
    ],
)  # fmt: skip
def test_look_alike_names_of_new_judges_are_refused(name: str, code: str) -> None:
    judges = as_file([{"judge": judge, "kind": "person"} for judge in ("Ana", "Zoe", "gpt-4.1", name)])
    if code:
        with pytest.raises(InvalidContent) as refused:
            read_labels(judges, known={})
        assert [(problem.code, problem.lines) for problem in refused.value.report.problems] == [(code, (4,))]
    stored = read_labels(judges)
    assert read_labels(judges, known=stored).keys() == stored.keys()
