"""Hostile and damaged answer runs: each gets a verdict within seconds, with the lines, and in little memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from evaluation.archives.compression import MIB, FileLimits
from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import Qrels
from evaluation.runs import answer_runs
from evaluation.runs.answer_runs import find_response, read_answer_run
from evaluation.runs.score import ScoringTarget, check_run, score_run
from tests.evaluation.runs.checking import check
from tests.fuzz.bombs import MAX_MB, judged

#: A valid line, before or after the hostile one.
GOOD = '{"query_id": "2", "answer": "x"}\n'
#: Maximum seconds of a verdict, with room for a busy machine.
SECONDS = 10.0


def response(**fields: Any) -> str:
    return json.dumps({"query_id": "1", "answer": "x", **fields}) + "\n"


def trajectory(text: str, **fields: Any) -> str:
    """A line in the form of BrowseComp-Plus."""
    steps = [{"type": "output_text", "output": text}]
    return json.dumps({"query_id": "1", "retrieved_docids": ["a"], "result": steps, **fields}) + "\n"


def raw(fields: str) -> str:
    return f'{{"query_id": "1", "answer": "x", {fields}}}\n'


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (raw('"z": ' + "[" * 100_000 + "]" * 100_000), "not_a_response"),
        (raw('"z": ' + "[" * 2_000 + "]" * 2_000), "not_a_response"),
        (raw('"z": NaN, "y": ' + "[" * 50_000 + "]" * 50_000), "not_a_response"),
        (raw(f'"citations": [{",".join(["1"] * 900_000)}]'), "citations"),
        (raw(f'"citations": [{",".join(["1"] * 1_000_002)}]'), "not_a_response"),
        (raw('"answer": "y"'), "not_a_response"),
        (raw('"metadata": {"a": 1, "a": 2}'), "not_a_response"),
        (raw('"tag": "\\ud800"'), "not_a_response"),
        (raw('"tag": "\\udfff", "cost": NaN'), "not_a_response"),
        (raw('"tag": "\ud800", "z": NaN'), "not_a_response"),
        (raw(f'"tag": "a:b", "y": NaN, "z": {"9" * 5_000}').replace('"x"', "7"), "not_a_response"),
        ('{"query_id": "1", "answer": "a\0b"}\n', "not_a_response"),
        (response(citations=["a\0b"]), "encoding"),
        (response(citations=["a b"]), "citations"),
        (response(citations=["\ufeffa"]), "citations"),
        (response(query_id="\ufeff1"), "not_a_response"),
        (response(query_id="1" * 300), "not_a_response"),
        (response(citations={"a": 1}), "citations"),
        (response(citations=[10**30]), "citations"),
        (response(citations=[True]), "citations"),
        (response(answer=[{"text": "x", "citations": [-1]}], references=["a"]), "citations"),
        (response(answer=[{"text": "x", "citations": [1]}], references=["a"]), "citations"),
        (GOOD, "repeated_response"),
        (response(confidence="0.5"), "figure"),
        (response(tokens=True), "figure"),
        (response(confidence=1.01), "figure"),
        (response(seconds=-1), "figure"),
        (raw('"confidence": NaN'), "figure"),
        (raw('"cost": Infinity'), "figure"),
        (raw('"cost": -Infinity'), "figure"),
        (raw(f'"tokens": {"9" * 30}'), "figure"),
        (raw(f'"tokens": {"9" * 5_000}'), "not_a_response"),
        (raw(f'"tokens": {"9" * 5_000}, "cost": NaN'), "figure"),
        (response(answer="x" * 100_001), "long_answer"),
        (response(answer=7), "not_a_response"),
        (response(answer={"text": "x"}), "not_a_response"),
        (response(answer=["x"]), "not_a_response"),
        (response(ranking=["a", "a"]), "response_ranking"),
        (response(ranking={"a": 1}), "response_ranking"),
        (response(ranking=7), "response_ranking"),
        (raw('"ranking": [{"docid": "a", "score": NaN}]'), "response_ranking"),
        (response(ranking=[{"docid": {"a": 1}}]), "response_ranking"),
        (trajectory("x", retrieved_docids=7), "response_ranking"),
        (trajectory("x", retrieved_docids={"a": 1}), "response_ranking"),
        (trajectory("x", retrieved_docids=[["a"]]), "response_ranking"),
        (trajectory("[" * 100_000), "not_a_response"),
        (trajectory("x", result="x"), "not_a_response"),
        (trajectory("x", result=[{"type": "output_text", "output": 7}]), "not_a_response"),
        ('["1"]\n', "not_a_response"),
        ("1 Q0 a 1 1.0 tag\n", "not_a_response"),
        ('{"query_id": "1", "answer": "x", "citations": ["a"', "not_a_response"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_with_its_number(line: str, code: str, tmp_path: Path) -> None:
    start = time.perf_counter()
    report = check(tmp_path, (GOOD + line).encode("utf-8", "surrogatepass"))
    assert time.perf_counter() - start < SECONDS
    assert [(problem.code, problem.lines) for problem in report.errors] == [(code, (2,))]
    assert all(len(problem.message) < 200 for problem in report.problems)


@pytest.mark.parametrize(
    "line",
    [
        trajectory("\n" * 100_000),
        trajectory("*\n" * 50_000),
        trajectory("Exact Answer: " + "* " * 49_000 + "x"),
        trajectory("x\nConfidence: " + "* " * 49_000 + "x"),
        trajectory("Confidence: " + "1" * 90_000),
        trajectory("[" * 99_000),
        trajectory("]" * 99_000),
        trajectory(("[" + "a " * 190 + "\n") * 250),
        trajectory("[" + " ,;" * 130 + "]"),
        raw('"z": "' + '\\"retrieved_docids\\":' * 40_000 + '"'),
        raw('"z": [' + '{"retrieved_docids": 1},' * 40_000 + "1]"),
        response(answer="<script>alert(1)</script>", run_id="<b>", citations=["=cmd()"]),
        response(answer="a\0b \u202e \ud83d\ude00", confidence=1, cost=1e12),
        response(metadata=[1], references=None, citations=None, ranking=None),
        trajectory("x", tool_call_counts={"search": "many"}, status=None),
    ],
)
def test_odd_texts_are_read_in_linear_time(line: str, tmp_path: Path) -> None:
    start = time.perf_counter()
    report = check(tmp_path, line + GOOD)
    assert time.perf_counter() - start < SECONDS
    assert report.valid
    assert report.statistics.queries == 2


def test_a_first_line_of_repeated_keys_is_recognized_in_linear_time(tmp_path: Path) -> None:
    start = time.perf_counter()
    assert not check(tmp_path, "{" + '"retrieved_docids":' * 50_000).valid
    assert time.perf_counter() - start < SECONDS


def test_a_list_of_responses_is_told_the_form(tmp_path: Path) -> None:
    (problem,) = check(tmp_path, f"[{response().strip()}]").errors
    assert "Send answers as JSON Lines" in problem.hint


def test_an_answer_beside_a_result_has_its_own_citations(tmp_path: Path) -> None:
    run = read_answer_run(response(result="[b]", citations=["a"]).encode(), FileLimits())
    assert run.responses["1"].citations == ("a",)


@pytest.mark.parametrize(
    ("text", "answer", "confidence"),
    [
        ("Exact Answer: Paris\nConfidence: 90%", "Paris", 0.9),
        ("**Exact Answer:** Paris: the city\n**Confidence:** 7.5 %", "Paris: the city", 0.075),
        ("* **exact answer**:\n\n**Paris**\n\nconfidence: 100%", "Paris", 1.0),
        ("Exact Answer: Paris\nConfidence: about 85", "Paris", 0.85),
        ("Exact Answer: Paris\nConfidence: 0.25", "Paris", 0.25),
        ("Exact Answer: Paris\nConfidence: 0.5%", "Paris", 0.005),
        ("Exact Answer: Paris\nConfidence: 101%", "Paris", 1.0),
        ("Exact Answer: Paris\nConfidence: 1", "Paris", 1.0),
        ("Exact Answer: Paris\nConfidence: 1%", "Paris", 0.01),
        ("Exact Answer: Paris\nConfidence: -5%", "Paris", 0.0),
        ("Exact Answer: Paris\nConfidence: −85", "Paris", 0.0),
        ("Exact Answer: Paris\nConfidence: mid-80%", "Paris", 0.8),
        ("Exact Answer: Paris\nConfidence: 80-85%", "Paris", 0.8),
        (" \n\t", " \n\t", None),
        ("I know: Paris.\nConfidence: high", "I know: Paris.\nConfidence: high", 1.0),
        ("", "", None),
    ],
)
def test_statements_of_a_final_text(text: str, answer: str, confidence: float | None) -> None:
    """A missing confidence is 100%, and a higher one as well, as in the evaluation of BrowseComp-Plus."""
    run = read_answer_run(trajectory(text).encode(), FileLimits())
    assert (run.responses["1"].answer, run.responses["1"].confidence) == (answer, confidence)


def test_odd_statements_of_trajectories_are_warnings_with_their_lines(tmp_path: Path) -> None:
    lines = trajectory("See [a, 41] and 【7】.\nConfidence: 900%") + GOOD
    lines += trajectory("See [a] and [note].\nConfidence: 100%", query_id="3")
    lines += trajectory("See [7].\nConfidence: 101%", query_id="4") + trajectory("Confidence: -5%", query_id="5")
    report = check(tmp_path, lines)
    assert [(problem.severity, problem.code, problem.count, problem.lines) for problem in report.problems[:2]] == [
        ("warning", "unretrieved_citations", 2, (1, 4)),
        ("warning", "confidence_range", 3, (1, 4, 5)),
    ]
    run = read_answer_run(lines.encode(), FileLimits())
    assert [run.responses[query].citations for query in "134"] == [("a",), ("a",), ()]


@pytest.mark.parametrize("keys", [("query_id", "answer"), ("query\\u005fid", "\\u0061nswer")])
def test_escaped_ids_and_keys_are_those_without_escapes(keys: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(
        f'{{"{keys[0]}": "q\\/\\u0041", "{keys[1]}": "x", "citations": ["d\\/\\u0041"], "ranking": ["\\u0064/A"]}}'
    )
    target = ScoringTarget(Qrels.from_dict({"q/A": {"d/A": 1}}), ["q/A"], hidden=False)
    assert score_run(path, target, ["CiteP", "RR"]).means == {"CiteP": 1, "RR": 1}
    response = find_response(path, "q/A")
    assert response is not None
    assert response.citations == ("d/A",)
    path.write_text(path.read_text() + '\n{"query_id": "\\u0071/A", "answer": "x"}')
    assert [problem.code for problem in check_run(path, target).errors] == ["repeated_response"]


def test_a_response_is_found_beside_ignored_values(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(GOOD + raw('"z": NaN, "confidence": 0.5'))
    response = find_response(path, "1")
    assert response is not None
    assert response.confidence == 0.5


@pytest.mark.parametrize(
    "keys",
    [
        {"id": "1", "query": "text of the query"},
        {"query": "text", "id": "1"},
        {"topic_id": 1, "topic": "text", "id": "response"},
        {"narrative_id": 1, "query": "text"},
        {"query": "1"},
    ],
)
def test_ids_override_texts_of_queries(keys: dict[str, Any]) -> None:
    run = read_answer_run(json.dumps({**keys, "answer": "x"}).encode(), FileLimits())
    assert list(run.responses) == ["1"]


@pytest.mark.parametrize("result", [[], [{"type": "reasoning", "output": ["x"]}]])
def test_a_trajectory_without_a_text_is_an_empty_answer(result: list[Any]) -> None:
    run = read_answer_run(trajectory("", result=result).encode(), FileLimits())
    assert run.responses["1"].answer == ""


def test_text_of_answers_is_in_no_message(tmp_path: Path) -> None:
    secret = "<script>=cmd()</script>"
    lines = response(answer=secret, citations=[f"{number}-{secret}" for number in range(1_001)])
    report = check(tmp_path, lines + response(answer=secret, query_id="other", confidence=secret))
    assert {problem.code for problem in report.errors} == {"citations", "figure"}
    assert "script" not in json.dumps(report.as_dict())


def test_figures_of_every_kind_are_read_as_they_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(response(confidence=0, tokens=12, seconds=0.5, cost=0, search_calls=3))
    target = ScoringTarget(Qrels.from_dict({"1": {"a": 1}}), ["1"], hidden=False)
    means = score_run(path, target, ["Tokens", "Seconds", "Cost", "SearchCalls"]).means
    assert means == {"Tokens": 12, "Seconds": 0.5, "Cost": 0, "SearchCalls": 3}


def test_the_number_of_documents_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_runs, "MAX_DOCUMENTS", 5)
    lines = [response(query_id=str(number), citations=["a"], ranking=["b"]).encode() for number in range(5)]
    assert len(read_answer_run(b"".join(lines[:3]), FileLimits()).responses) == 3
    with pytest.raises(InvalidContent, match="the answer run has over 200,000 lines, or 5 documents"):
        read_answer_run(b"".join(lines), FileLimits())


def test_blank_lines_count_towards_the_limit() -> None:
    with pytest.raises(InvalidContent, match="the answer run has over 200,000 lines"):
        read_answer_run(response().encode() + b"\n" * (16 * MIB), FileLimits())


def compressed(blocks: Iterator[bytes]) -> bytes:
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([compressor.compress(block) for block in blocks]) + compressor.flush()


def test_bombs_are_refused_in_little_memory(tmp_path: Path) -> None:
    """A line of 1 GiB, too many responses, and a run with nearly the maximum number of documents."""
    names = [f"{number:x}" for number in range(1_000)]
    ranked = (response(query_id=str(number), ranking=names).encode() for number in range(1_999))
    bombs = {
        "line": (b'{"query_id": "1", "answer": "', *[b"x" * MIB] * 1024),
        "responses": (response(query_id=str(number)).encode() for number in range(250_000)),
        "ranked": ranked,
    }
    for name, blocks in bombs.items():
        (tmp_path / name).write_bytes(compressed(iter(blocks)))
    result = judged([("run", tmp_path / name) for name in bombs])
    codes = [[code for code, _ in errors] for errors in result["verdicts"]]
    assert codes[0] in (["line_length"], ["expansion"])
    assert codes[1:] == [["size"], []]
    assert result["peak_mb"] < MAX_MB
