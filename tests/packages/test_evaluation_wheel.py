"""`runboard-eval`, tried from its wheel, where neither the project nor a compiler is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation import small_checkpoint

ROOT = Path(__file__).resolve().parents[2]
QRELS = "q1 0 d1 1\nq1 0 d2 0\nq2 0 d3 2\nq3 0 d1 1\n"
RUN = "q1 Q0 d2 1 3 a\nq1 Q0 d1 2 2 a\nq2 Q0 d3 1 9 a\nq3 Q0 d4 1 1 a\n"
OTHER = "q1 Q0 d1 1 3 b\nq2 Q0 d3 1 9 b\nq3 Q0 d1 1 1 b\n"
Ran = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel was installed into."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, ROOT / "packages/evaluation_wheel.py", folder], check=True)
    (wheel,) = folder.glob("runboard_eval-*-py3-none-*.whl")
    target = folder / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Callable[..., Ran]:
    """Runs the command in a folder of its own, without a compiler."""
    empty = tmp_path / "bin"
    empty.mkdir()
    for name, text in (("qrels.txt", QRELS), ("a.txt", RUN), ("b.txt", OTHER)):
        (tmp_path / name).write_text(text)
    rows = [{"_id": name, "text": f"words of {name}"} for name in ("q1", "q2", "q3")]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": f"d{number}", "text": f"text q{number}"} for number in range(1, 5)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept = ("HOME", "LANG", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": str(empty), "CC": "no-compiler-here"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    def go(*words: str, before: Path | None = None) -> Ran:
        """`before`: folder whose modules stand before those that are installed."""
        places = os.pathsep.join(map(str, filter(None, (before, installed))))
        program = [sys.executable, "-P", "-m", "runboard_eval", *words]
        return subprocess.run(
            program,
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": places},
            capture_output=True,
            text=True,
            check=False,
        )

    return go


def test_it_scores_as_the_site_does(run: Callable[..., Ran], tmp_path: Path) -> None:
    words = ("score", "--qrels", "qrels.txt", "--run", "a.txt", "--json")
    files = ("--qrels", tmp_path / "qrels.txt", "--run", tmp_path / "a.txt")
    command = [sys.executable, "-m", "evaluation", "score", "--json", *files]
    ours = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(ours.stdout)


@pytest.mark.long
def test_every_command_works_without_a_compiler(run: Callable[..., Ran], tmp_path: Path) -> None:
    assert run("check", "--run", "a.txt").returncode == 0
    compared = run("compare", "--qrels", "qrels.txt", "a.txt", "b.txt", "--measures", "RR", "--json")
    first, second = json.loads(compared.stdout)
    assert (first["mean"], second["mean"], second["wins"], second["losses"]) == (0.5, 1.0, 2, 0)
    fused = run("fuse", "a.txt", "b.txt", "--queries", "queries.jsonl", "--out", "fused.txt", "--rrf-k", "0")
    assert fused.returncode == 0, fused.stderr
    lines = [line.split() for line in (tmp_path / "fused.txt").read_text().splitlines()]
    assert [(line[2], float(line[4])) for line in lines if line[0] == "q1"] == [("d1", 1.5), ("d2", 1.0)]
    made = run("retrieve", "--corpus", "corpus.jsonl", "--queries", "queries.jsonl", "--out", "made.txt")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "made.txt").read_text().startswith("q1 Q0 d1 1 ")


def test_it_speaks_of_itself(run: Callable[..., Ran], installed: Path) -> None:
    assert run("--help").stdout.startswith("usage: runboard-eval ")
    for path in (installed / "runboard_eval").rglob("*.py"):
        assert "from evaluation" not in path.read_text(), path
        assert "-m evaluation" not in path.read_text(), path
    assert (installed / "runboard_eval/py.typed").exists()
    (metadata,) = installed.glob("*.dist-info/METADATA")
    assert 'Requires-Dist: torch>=2.13.0; extra == "neural"' in metadata.read_text()
    required = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata.read_text(), re.MULTILINE)
    assert sorted(required) == ["PyYAML", "isal", "numpy", "orjson", "regex"]


def test_without_the_extras_runs_are_checked_scored_and_compared(run: Callable[..., Ran], tmp_path: Path) -> None:
    modules = ("Stemmer", "faiss", "icu4py", "numba", "pytrec_eval", "scipy", "torch", "whoosh", "zstandard")
    for name in modules:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('not here', name={name!r})")
    answer = {"id": "q1", "answer": "one", "citations": ["d1"]}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    qrels = ("--qrels", "qrels.txt")
    for words in (
        ("check", "--run", "a.txt"),
        ("score", *qrels, "--run", "a.txt"),
        ("compare", *qrels, "a.txt", "b.txt"),
        ("score-answers", *qrels, "--run", "answers.jsonl"),
    ):
        done = run(*words, before=tmp_path)
        assert done.returncode == 0, done.stderr
    (tmp_path / "b.txt").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(60))
    for words in (("check", "--run", "b.txt"), ("retrieve", "--corpus", "corpus.jsonl")):
        done = run(*words, before=tmp_path)
        assert done.returncode == 2
        assert "Install this package's wheel with the extra [index]" in done.stderr
        assert done.stderr.count("\n") == 1
    done = run("--help", before=tmp_path)
    assert done.returncode == 0
    assert "score a run" in done.stdout


def test_without_the_kernel_it_says_what_would_help(run: Callable[..., Ran], installed: Path, tmp_path: Path) -> None:
    kernel = installed / "runboard_eval/kernel/prebuilt"
    kept = tmp_path / "prebuilt"
    shutil.move(kernel, kept)
    try:
        done = run("score", "--qrels", "qrels.txt", "--run", "a.txt")
    finally:
        shutil.move(kept, kernel)
    assert done.returncode == 2
    assert "pip install ziglang" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["pack model", "retrieve --engine dense --checkpoint model"])
def test_without_torch_a_line_names_the_extra(command: str, run: Callable[..., Ran], tmp_path: Path) -> None:
    small_checkpoint.write(small_checkpoint.files(), tmp_path / "model")
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('not here', name='torch')")
    files = ["--corpus", "corpus.jsonl", "--queries", "queries.jsonl"] if "retrieve" in command else []
    done = run(*command.split(), *files, "--out", "out", before=tmp_path)
    assert done.returncode == 2
    assert "Install this package's wheel with the extra [neural]" in done.stderr
    assert done.stderr.count("\n") == 1
