"""Messages of commands if a library is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("blocked", "said"),
    [("", "pip install ziglang"), ("runboard_eval", "build/wheels/runboard_eval-*.whl)[index]")],
    ids=["no compiler", "no engine"],
)
def test_reproduce_says_in_a_line_what_to_install(blocked: str, said: str, package: None, tmp_path: Path) -> None:
    if blocked:
        (tmp_path / f"{blocked}.py").write_text("raise ImportError('not here')")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "PATH": str(tmp_path), "CC": "none",
        "RUNBOARD_KERNEL_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    words = [sys.executable, "-m", "runboard", "reproduce", "http://127.0.0.1:9/systems/x/"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
