"""A machine without a C compiler: `make install` brings one as a package, and a run is scored."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|cpp|clang|clang\+\+|c89|c99|tcc)(-[\d.]+)?")


@pytest.mark.long
def test_a_run_is_scored_where_there_was_no_compiler(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if not _COMPILER.fullmatch(program.name) and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    project = tmp_path / "project"
    subprocess.run(["git", "clone", "--quiet", "--local", ROOT, project], check=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "RUNBOARD_KERNEL_CACHE")}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": "no-compiler"}
    assert shutil.which("gcc", path=str(programs)) is None
    made = subprocess.run(
        ["make", "install"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    assert "No C compiler was found" in made.stdout
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "run.txt").write_text("q1 Q0 d1 1 1.0 tag\n")
    words = [
        "-m",
        "evaluation",
        "score",
        "--qrels",
        tmp_path / "qrels.txt",
        "--run",
        tmp_path / "run.txt",
        "--measures",
        "RR",
    ]
    scored = subprocess.run(
        [project / ".venv/bin/python", *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert scored.stdout.split() == ["RR", "1.0000"], scored.stderr[-2000:]
