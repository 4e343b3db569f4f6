"""`python -m evaluation score-answers`, and `check` of answer runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.__main__ import main

ANSWERS = {"q1": ["Paris"], "q2": ["Rome", "Roma"], "q3": ["New Delhi"]}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Judgments with evidence (1) and gold documents (2), and correct answers, as options of the command."""
    (tmp_path / "qrels.tsv").write_text("".join(f"q{n} 0 d{n} 2\nq{n} 0 e{n} 1\n" for n in (1, 2, 3)))
    lines = (json.dumps({"_id": query, "answers": answers}) + "\n" for query, answers in ANSWERS.items())
    (tmp_path / "correct.jsonl").write_text("".join(lines))
    return ["score-answers", "--qrels", f"{tmp_path}/qrels.tsv", "--answers", f"{tmp_path}/correct.jsonl"]


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(
        tmp_path / "run.jsonl",
        {"query_id": "q1", "answer": "the Paris.", "citations": ["d1", "e1", "x"], "seconds": 2},
        {"query_id": "q2", "answer": "It is Roma", "citations": ["x", "e2"], "seconds": 4},
    )


def test_every_measure_that_the_run_allows_is_printed(
    words: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--run", str(run), "--measures", "CiteP(rel=2),nDCG@10"]) == 0
    printed = capsys.readouterr()
    assert dict(line.split() for line in printed.out.splitlines()) == {
        "EM": "0.3333", "AnswerF1": "0.5000", "AnswerIn": "0.6667", "CiteP": "0.3889", "CiteR": "0.5000",
        "Seconds": "2.0000", "CiteP(rel=2)": "0.1111", "nDCG@10": "0.4133",
    }  # fmt: skip
    assert "warning: judged_queries_missing: 1 of the 3 judged queries" in printed.err


@pytest.mark.parametrize(
    ("option", "left_out"),
    [
        (["--answers"], {"EM", "AnswerF1", "AnswerIn", "ECE"}),
        ([], {"ECE"}),
    ],
)
def test_measures_are_left_out_with_the_reason(
    option: list[str], left_out: set[str], words: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words[:3] if option else words
    assert main([*words, "--run", str(run), "--json", "--per-query"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content["omitted_measures"]) == left_out | {"SearchCalls", "Tokens", "Cost"}
    assert not set(content["omitted_measures"]) & set(content["means"])
    assert content["omitted_measures"]["Cost"] == "not every response states `cost`"
    expected = "there are no correct answers to compare with" if option else "not every response states `confidence`"
    assert content["omitted_measures"]["ECE"] == expected
    assert content["per_query"]["q1"]["Seconds"] == 2


def test_score_names_the_measures_that_a_ranking_does_not_allow(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranking = tmp_path / "run.txt"
    ranking.write_text("q1 Q0 d1 1 1.0 tag\n")
    assert main(["score", *words[1:], "--run", str(ranking), "--measures", "EM,RR"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "RR  0.3333\n"
    assert "EM is omitted: the run is a ranking without answers\n" in printed.err
    assert main([*words, "--run", str(ranking)]) == 1
    assert "1 line not a JSON object with a query id and an answer (line 1)" in capsys.readouterr().err


def trajectory(query: str, text: str, **changes: Any) -> dict[str, Any]:
    """A file of BrowseComp-Plus."""
    steps = [
        {"type": "tool_call", "tool_name": "search", "arguments": "{}", "output": "[long]" * 100},
        {"type": "output_text", "tool_name": None, "arguments": None, "output": text},
    ]
    return {
        "metadata": {"model": "m", "output_dir": "/home/alice/runs"}, "query_id": query,
        "tool_call_counts": {"search": 3}, "status": "completed", "retrieved_docids": ["d1", "e1", "d2"],
        "result": steps, **changes,
    }  # fmt: skip


def test_a_folder_of_trajectories_becomes_the_file_to_submit(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    text = "See [d1] and 【e1, x】.\n**Exact Answer:** Paris\n**Confidence:** 90%"
    (folder / "run_1.json").write_text(json.dumps(trajectory("q1", text), indent=2))
    (folder / "run_2.json").write_text(json.dumps(trajectory("q2", "Exact Answer:\nMilan\nConfidence: 60 %")))
    (folder / "run_3.json").write_text(json.dumps(trajectory("q3", "", status="incomplete", result=[])))
    (folder / "notes.txt").write_text("not a response")
    output = tmp_path / "answers.jsonl"
    assert main([*words, "--run", str(folder), "--output", str(output), "--json"]) == 0
    from_folder = json.loads(capsys.readouterr().out)
    assert from_folder["means"]["EM"] == pytest.approx(1 / 3)
    assert from_folder["means"]["CiteP"] == pytest.approx(1 / 3)
    assert from_folder["means"]["SearchCalls"] == 3
    # The confidence of the incomplete trajectory counts as 0.
    assert from_folder["means"]["ECE"] == pytest.approx((0.1 + 0.6) / 3)
    sent = output.read_text()
    assert "/home/alice" not in sent
    assert "[long]" not in sent
    output.with_suffix(".gz").write_bytes(gzip.compress(output.read_bytes()))
    for path in (output, output.with_suffix(".gz")):
        assert main([*words, "--run", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["means"] == from_folder["means"]


def test_problems_of_a_folder_name_the_files(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "runs", tmp_path / "answers.jsonl"
    folder.mkdir()
    words = [*words, "--run", str(folder), "--output", str(output)]
    assert main(words) == 1
    assert "the folder has no .json files" in capsys.readouterr().err
    (folder / "a.json").write_text(json.dumps(trajectory("q1", "Confidence: 90%")))
    (folder / "b.json").write_text(json.dumps(trajectory("q1", "Confidence: 90%", retrieved_docids=["d1", 2.5])))
    assert main(words) == 1
    printed = capsys.readouterr().err
    assert "line 2 of the run is b.json\n" in printed
    assert "error: repeated_response" in printed
    assert "error: response_ranking" in printed
    (folder / "b.json").write_text('{"query_id": ')
    assert main(words) == 1
    assert "b.json is not JSON" in capsys.readouterr().err
    assert not output.exists()


def test_check_tells_the_problems_of_an_answer_run_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path / "run.jsonl",
        {"query_id": "q1", "answer": "Paris", "citations": ["d1"]},
        {"query_id": "q1", "answer": "Paris", "citations": "d1"},
        {"query_id": "q2", "answer": "Rome", "confidence": 85},
    )
    assert main(["check", "--run", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "error: repeated_response: 1 line with the query of an earlier line (line 2)" in printed
    assert "error: citations: 1 line with citations that are not a list" in printed
    assert "error: figure: 1 line with a figure out of range (line 3)" in printed
    write(path, {"query_id": "q1", "answer": "Paris", "citations": ["d1"]})
    assert main(["check", "--run", str(path)]) == 0
    assert capsys.readouterr().out.endswith("run.jsonl: valid; 1 lines, 1 queries\n")
