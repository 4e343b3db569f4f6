"""`python -m evaluation score` and `check`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.__main__ import main

RUN = "q1 Q0 d1 1 2 tag\nq1 Q0 d2 2 1 tag\nq2 Q0 d1 1 1 tag\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "bad.txt").write_text(RUN + "q1 Q0 d2 3 nan tag\nq1 Q0\n")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\nq3\td1\t1\n")
    (tmp_path / "queries.jsonl").write_text("".join(f'{{"_id": "q{n}", "text": "words"}}\n' for n in (1, 2, 3)))
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "words"}\n')
    (tmp_path / "ids.txt").write_text("d1\nd2\n")
    return tmp_path


def test_score_prints_aligned_means(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "score",
        "--qrels",
        f"{files}/qrels.tsv",
        "--run",
        f"{files}/run.txt",
        "--measures",
        "ndcg_at_10,RR,P(rel=1)@5",
    ]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.out == "nDCG@10     0.3155\nRR          0.2500\nP(rel=1)@5  0.1000\n"
    assert "warning: judged_queries_missing: 1 of the 2 judged queries" in printed.err


def test_measures_over_subtopics_need_their_judgments(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["score", "--qrels", f"{files}/qrels.tsv", "--run", f"{files}/run.txt", "--measures", "StRecall@2,RR"]
    assert main(words) == 2
    assert capsys.readouterr().err == "StRecall@2 cannot be computed without --subtopics.\n"
    (files / "subtopic-qrels.txt").write_text("q1 1 d2 1\nq1 2 d9 1\nq3 1 d1 1\n")
    assert main([*words, "--subtopics", f"{files}/subtopic-qrels.txt"]) == 0
    assert capsys.readouterr().out == "StRecall@2  0.5000\nRR          0.2500\n"


@pytest.mark.parametrize("command", ["compare", "retrieve"])
def test_help_is_written_as_it_is_read(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "%%" not in capsys.readouterr().out


def test_compare_prints_small_p_values_as_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "qrels.txt").write_text("".join(f"q{number} 0 d1 1\n" for number in range(20)))
    lines = "q{0} Q0 {1} 1 2 tag\nq{0} Q0 {2} 2 1 tag\n"
    for name, first, second in (("bad", "d2", "d1"), ("good", "d1", "d2")):
        content = "".join(lines.format(number, first, second) for number in range(20))
        (tmp_path / f"{name}.run").write_text(content)
    words = ["compare", "--qrels", f"{tmp_path}/qrels.txt", f"{tmp_path}/bad.run", f"{tmp_path}/good.run"]
    assert main([*words, "--measures", "P@1"]) == 0
    assert "[+1.0000, +1.0000]  p < 0.001  20 won, 0 equal, 0 lost" in capsys.readouterr().out


def test_score_per_query(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "score",
        "--qrels",
        f"{files}/qrels.tsv",
        "--run",
        f"{files}/run.txt",
        "--measures",
        "RR,AP",
        "--per-query",
    ]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "query      RR      AP", "q1     0.5000  0.5000", "q3     0.0000  0.0000", "mean   0.2500  0.2500",
    ]  # fmt: skip


def test_score_as_json_is_unrounded(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["score", "--qrels", f"{files}/qrels.tsv", "--run", f"{files}/run.txt", "--json", "--per-query"]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["means"]["nDCG@10"] == pytest.approx(0.31546487678572877, abs=1e-15)
    assert content["per_query"]["q1"]["RR@10"] == 0.5
    assert (content["queries"], content["missing_queries"]) == (2, 1)


def test_check_tells_every_problem(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--run", f"{files}/bad.txt"]) == 1
    printed = capsys.readouterr().out
    assert "error: fields: 1 line without exactly six fields; line 5 has 2 fields: `q1 Q0` (line 5)" in printed
    assert "error: score: 1 line whose score" in printed
    assert printed.endswith("bad.txt: not valid; 5 lines, 2 queries\n")


def test_check_against_queries_documents_and_qrels(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--run", f"{files}/run.txt", "--queries", f"{files}/queries.jsonl", "--json"]
    assert main([*words, "--document-ids", f"{files}/ids.txt"]) == 0
    assert [problem["code"] for problem in json.loads(capsys.readouterr().out)["problems"]] == ["queries_missing"]
    assert main([*words, "--corpus", f"{files}/corpus.jsonl", "--qrels", f"{files}/qrels.tsv"]) == 1
    assert [problem["code"] for problem in json.loads(capsys.readouterr().out)["problems"]] == [
        "unknown_documents", "judged_queries_missing",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [
    [], ["score"], ["score", "--qrels", "x", "--run", "y", "--measures", "quality"],
    ["check", "--run", "/no/such/file"],
])  # fmt: skip
def test_wrong_usage_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ("--help", 0, "retrieve  "),
        ("--version", 0, "python -m evaluation (from source)\n"),
        ("nope", 2, "invalid choice: 'nope'"),
        ("score --help", 0, "--qrels"),
        ("retrieve --help", 2, "error: zstandard is not installed."),
    ],
)
def test_only_commands_with_engines_need_the_extra(words: str, status: int, text: str, tmp_path: Path) -> None:
    (tmp_path / "zstandard.py").write_text("raise ModuleNotFoundError(name='zstandard')")
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "PATH": os.defpath}
    command = [sys.executable, "-m", "evaluation", *words.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert text in (done.stderr if status else done.stdout)


def test_importing_is_light() -> None:
    """numba is imported when an index is used, not before: a web process need not spend half a second on it."""
    modules = "sys, evaluation.runs.score, evaluation.measures, evaluation.judgements.qrels, evaluation.engines"
    script = f"import {modules}; print('numba' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_several_lines_of_a_problem_are_said_in_the_plural(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "short.txt").write_text("q1 Q0\n" * 7)
    assert main(["check", "--run", f"{files}/short.txt"]) == 1
    assert "(lines 1, 2, 3, 4, 5 …)\n" in capsys.readouterr().out
