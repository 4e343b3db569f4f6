"""The child process: what it is asked as JSON, what it leaves and says, and how its failures are told apart."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from evaluation.execution import child
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import (
    ASK_TO_MEASURE,
    EXIT_DISK_FULL,
    EXIT_MODEL_FAILED,
    EXIT_OUT_OF_MEMORY,
    MEASURED,
    ExecutionJob,
)
from evaluation.execution.outcome import read_failure, read_result

ROOT = Path(child.__file__).parents[2]


def execute(job: ExecutionJob, *, answer: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the child as the sandbox does, with `answer` on its standard input, after the code `before`."""
    file = job.out.parent / "job.json"
    file.write_text(job.to_json())
    start = f"import runpy, sys\nsys.path.insert(0, {str(ROOT)!r})\n{before}\nrunpy.run_module('evaluation.execution', "
    code = start + "run_name='__main__', alter_sys=True)"
    return subprocess.run(
        [sys.executable, "-I", "-c", code, str(file)],
        input=answer,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


TALKATIVE = """
from evaluation.execution import child
retrieve = child.retrieve
def talk(*given, **named):
    print("a library says hello")
    return retrieve(*given, **named)
child.retrieve = talk
"""


def test_a_run_its_figures_and_progress(job: ExecutionJob) -> None:
    """The child asks before it measures, and leaves a run and a result that is believed."""
    asked = replace(job, measure=True, parameters={"k1": 1.2})
    done = execute(asked, answer="go\n", before=TALKATIVE)
    assert done.returncode == 0, done.stderr
    assert (job.out / "run.txt").read_text().splitlines()[0].startswith("q1 Q0 d")
    result = read_result(job.out, asked, seconds=60)
    assert result["retrieval"]["parameters"]["k1"] == 1.2
    assert result["retrieval"]["lines"] == 4
    assert result["figures"]["searches"] == 200
    assert result["hardware"]["details"]["cores"] == 1
    assert "a library says hello" in done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said.pop() == json.loads(MEASURED)
    stages = [line.get("stage", "asks") for line in said]
    assert list(dict.fromkeys(stages)) == ["loading", "indexing", "searching", "asks", "measuring"]
    assert all(set(line) <= {"stage", "share", "ask"} for line in said)
    assert sorted(path.name for path in job.out.iterdir()) == ["result.json", "run.txt"]


def test_what_was_measured_is_there_whatever_follows(job: ExecutionJob) -> None:
    """Comparing with float32 takes memory, which may run out."""
    fails = TALKATIVE.replace("return retrieve(*given, **named)", "retrieve(*given, **named); raise OSError")
    assert execute(replace(job, measure=True), answer="go\n", before=fails).returncode == 1
    assert json.loads((job.out / "result.json").read_text())["figures"]["searches"] == 200


def test_without_an_answer_nothing_is_measured(job: ExecutionJob) -> None:
    """The run is there, with a result that has no figures."""
    done = execute(replace(job, measure=True))
    assert done.returncode == 1
    assert ASK_TO_MEASURE in done.stdout.splitlines()
    result = json.loads((job.out / "result.json").read_text())
    assert (result["retrieval"]["queries"], result["figures"]) == (2, None)


def test_whoever_gets_no_turn_ends_without_figures(job: ExecutionJob) -> None:
    """The run is as good."""
    asked = replace(job, measure=True)
    assert execute(asked, answer="skip\n").returncode == 0
    result = read_result(job.out, asked, 60.0)
    assert (result["figures"], result["variants"], result["retrieval"]["lines"]) == (None, {}, 4)


def test_the_baseline_is_measured_without_a_run(job: ExecutionJob) -> None:
    """The task "measure" leaves figures alone."""
    asked = replace(job, task="measure", measure=True)
    assert execute(asked, answer="go\n").returncode == 0
    assert read_result(job.out, asked, seconds=60)["figures"]["documents"] == 3
    assert [path.name for path in job.out.iterdir()] == ["result.json"]


FAILING = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from pathlib import Path
import evaluation.engines as engines
from evaluation.core.problems import ModelFailure
from evaluation.execution import child
from evaluation.execution.job import ExecutionJob
class OutOfMemoryError(RuntimeError):
    pass
job, statuses = ExecutionJob.from_json(Path(sys.argv[2]).read_text()), []
for number, error in enumerate(json.loads(sys.argv[3])):
    def create(parameters, resources):
        raise eval(error)
    engines.ENGINES["bm25"] = replace(engines.ENGINES["bm25"], create=create)
    out = job.out / str(number)
    out.mkdir()
    file = out.with_suffix(".json")
    file.write_text(replace(job, out=out).to_json())
    statuses.append(child.main(file))
print(json.dumps(statuses), file=sys.stderr)
"""


def test_failures_are_told_apart(job: ExecutionJob) -> None:
    """Failures of the model have a code. Others have none, and their traceback is written to standard error."""
    expected = [
        ("ModelFailure('missing_weights', 'it lacks x')", EXIT_MODEL_FAILED, "missing_weights"),
        ("engines.InvalidParameter('dimension = 900 is above 384')", EXIT_MODEL_FAILED, "invalid_parameter"),
        ("MemoryError()", EXIT_OUT_OF_MEMORY, "out_of_memory"),
        ("OutOfMemoryError('CUDA out of memory')", EXIT_OUT_OF_MEMORY, "out_of_memory"),
        ('RuntimeError("DefaultCPUAllocator: can\'t allocate memory")', EXIT_OUT_OF_MEMORY, "out_of_memory"),
        ("OSError(28, 'No space left')", EXIT_DISK_FULL, None),
        ("ZeroDivisionError('/secret/path')", 1, None),
    ]
    file = job.out.parent / "job.json"
    file.write_text(job.to_json())
    errors = json.dumps([error for error, _, _ in expected])
    command = [sys.executable, "-I", "-c", FAILING, str(ROOT), str(file), errors]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stderr.splitlines()[-1]) == [status for _, status, _ in expected]
    failures = [read_failure(job.out / str(number), job) for number in range(len(expected))]
    assert [failure and failure.code for failure in failures] == [code for _, _, code in expected]
    assert "/secret/path" not in done.stdout
    assert "/secret/path" in done.stderr


def test_every_code_that_is_raised_is_explained() -> None:
    """Whatever an engine raises, its owner reads what it means and what would be right."""
    sources = "\n".join(path.read_text() for path in (ROOT / "evaluation").rglob("*.py"))
    raised = set(re.findall(r'ModelFailure\(\s*"(\w+)"', sources))
    assert raised - set(MODEL_FAILURES) == set()
    assert all(text.meaning.endswith(".") and text.remedy.endswith(".") for text in MODEL_FAILURES.values())
