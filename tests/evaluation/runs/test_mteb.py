"""MTEB predictions that mean harm: what is kept of them, and what reading them takes, is bounded."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.core.problems import Report
from evaluation.runs.header import select_metadata
from evaluation.runs.score import ScoringTarget, check_run

MIB = 1024 * 1024

_READ = """
import sys, tempfile
from evaluation.core.problems import InvalidContent
from evaluation.archives.compression import FileLimits
from evaluation.runs.json_runs import json_as_lines
with tempfile.TemporaryFile() as out:
    try:
        json_as_lines(sys.argv[1], FileLimits(), out)
        print("read")
    except InvalidContent as error:
        print(error.report.problems[0].code)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def check(tmp_path: Path, content: bytes) -> Report:
    path = tmp_path / "predictions.json"
    path.write_bytes(content)
    return check_run(path, ScoringTarget(query_ids=["1"]))


@pytest.mark.parametrize(
    "meta",
    [
        {"model_name": "x" * MIB},
        {"y" * MIB: "name"},
        {f"key {number}": number for number in range(20_000)},
        {f"key {number}": "\u00e9" * 1999 for number in range(60)},
        {"nested": [[{"a": ["z" * 3000] * 70}] * 20]},
    ],
)
def test_what_predictions_say_of_their_model_is_cut(tmp_path: Path, meta: dict[str, object]) -> None:
    document = {"mteb_model_meta": {"first": "kept", **meta}, "default": {"test": {"1": {"a": 1.0}}}}
    report = check(tmp_path, json.dumps(document).encode())
    assert report.valid
    kept = report.statistics.metadata
    assert kept["mteb_model_meta"]["first"] == "kept"
    assert len(kept["mteb_model_meta"]) <= 64
    assert len(json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()) <= 64 * 1024
    assert select_metadata(kept) == kept


def test_what_comments_say_of_a_run_is_cut_by_the_same_rule(tmp_path: Path) -> None:
    comments = "".join(f"# key{number}: {'x' * 2500}\n" for number in range(80))
    text = f"# ir_metadata.start\n{comments}# ir_metadata.end\n1 Q0 a 1 1 t\n"
    kept = check(tmp_path, text.encode()).statistics.metadata
    assert 1 < len(kept) <= 64
    assert {len(value) for value in kept.values()} == {2000}
    assert len(json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()) <= 64 * 1024


def _objects() -> bytes:
    return b'{"a":[' + b"{}," * (5 * MIB) + b"{}]}"


def _lists() -> bytes:
    return b'{"a":' + b"[" * (15 * MIB)


def _numbers() -> bytes:
    return b'{"a":[' + b"0.5," * (3 * MIB) + b"1]}"


def _too_long() -> bytes:
    return b'{"a":"' + b" " * (17 * MIB) + b'"}'


def _as_many_as_may_be() -> bytes:
    scores = b",".join(b'"%06x":0.5' % number for number in range(1_000_000))
    return b'{"default":{"test":{"1":{' + scores + b"}}}}"


def _one_emoji_in_a_long_text() -> bytes:
    text = "\N{GRINNING FACE}" + "a " * (7 * MIB)
    return f'{{"mteb_model_meta":{{"model_name":"{text}"}},"default":{{"test":{{"1":{{"a":1}}}}}}}}'.encode()


def _long_query_with_many_documents() -> bytes:
    scores = b",".join(b'"%06x":1' % number for number in range(500_000))
    return b'{"default":{"test":{"' + b"q" * (8 * MIB) + b'":{' + scores + b"}}}}"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(("content", "outcome"), [
    (_objects, "json"), (_lists, "json"), (_numbers, "size"), (_too_long, "size"), (_as_many_as_may_be, "read"),
    (_one_emoji_in_a_long_text, "read"), (_long_query_with_many_documents, "identifier"),
])  # fmt: skip
def test_reading_predictions_takes_little_memory(tmp_path: Path, content: Callable[[], bytes], outcome: str) -> None:
    path = tmp_path / "predictions.json"
    path.write_bytes(content())
    # not getrusage, whose maximum begins with what the process that started this one had
    command = [sys.executable, "-c", _READ, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed[0] == outcome
    assert int(printed[1]) < 256 * 1024, "KiB"


def test_predictions_that_expand_too_well_are_refused_early(tmp_path: Path) -> None:
    document = b'{"default":{"test":{"1":{"a":1}}}' + b" " * (4 * MIB) + b"}"
    (problem,) = check(tmp_path, gzip.compress(document)).errors
    assert problem.code == "expansion"


def test_a_document_named_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    path.write_text('{"default": {"test": {"q:1": {"a": 1, "b\\":": 2, "a": 3}, "q2": {"a": 1}}}}')
    (problem,) = check_run(path, ScoringTarget()).problems
    assert (problem.severity, problem.code, problem.count) == ("error", "duplicate", 1)
    path.write_text('{"default": {"test": {"q:1": {"a": 1, "b\\":": 2}, "q2": {"a": 1}}}}')
    assert check_run(path, ScoringTarget()).problems == ()


def test_a_query_named_twice_is_one_name_and_is_said(tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    path.write_text('{"default": {"test": {"q:1": {"a": 1, "b": 2}, "q2": {"a": 1}, "q:1": {"c": 1}}}}')
    (problem,) = check_run(path, ScoringTarget()).problems
    assert (problem.code, problem.count) == ("duplicate", 1)
    assert problem.message == ("1 repeated name of a query or document within one object: q:1")
    path.write_text('{"a:b": ' + "[" * 1000 + "]" * 1000 + "}")
    assert {each.code for each in check_run(path, ScoringTarget()).problems} == {"json"}
