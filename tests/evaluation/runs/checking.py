"""A small run, and how tests have one checked."""

from __future__ import annotations

from pathlib import Path

from evaluation.archives.compression import FileLimits
from evaluation.core.problems import Problem, Report
from evaluation.runs.score import ScoringTarget, check_run

GOOD = "1 Q0 a 1 3.5 tag\n1 Q0 b 2 2.5 tag\n2 Q0 a 1 1.5 tag\n"
QUERIES = ["1", "2"]


def check(tmp_path: Path, content: str | bytes, limits: FileLimits | None = None, **target: object) -> Report:
    path = tmp_path / "run.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return check_run(path, ScoringTarget(**{"query_ids": QUERIES, **target}), limits)  # type: ignore[arg-type]


def only(report: Report) -> Problem:
    (problem,) = report.problems
    return problem


def run_of(query: str, documents: int, tag: str = "tag") -> str:
    return "".join(f"{query} Q0 d{number} {number} {-number} {tag}\n" for number in range(1, documents + 1))
