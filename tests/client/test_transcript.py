"""What docs/client.md shows, typed again: both packages from their wheels, beside a site that was started anew."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.starting import eventually
from tests.functional.test_whole_site import Site

ROOT = Path(__file__).resolve().parents[2]
_TYPED = re.compile(r"^\$ (?P<command>.*)\n(?P<said>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_CHECKER = doctest.OutputChecker()


def transcript() -> list[tuple[str, str]]:
    """Each command with what it says."""
    text = (ROOT / "docs/client.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(each["command"], each["said"]) for block in blocks for each in _TYPED.finditer(block)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    supervisor = found.start()
    supervisor.wait_for("Ready in", 600)
    eventually(lambda: "static-embeddings-svd" in found.get("/api/v1/datasets/stdlibsearch/board/"), 300)
    yield found
    found.end()


@pytest.mark.long
def test_the_documentation_shows_what_is_said(site: Site, tmp_path: Path) -> None:
    wheels, packages, programs = (tmp_path / name for name in ("wheels", "packages", "bin"))
    programs.mkdir()
    subprocess.run([sys.executable, ROOT / "packages/evaluation_wheel.py", wheels], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    made = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT / "client"]
    subprocess.run(made, check=True)
    subprocess.run([*pip, "install", "--no-deps", "--target", packages, *wheels.glob("*.whl")], check=True)
    for name, module in (("runboard", "runboard"), ("runboard-eval", "runboard_eval"), ("python", "")):
        started = f'-m {module} "$@"' if module else '"$@"'
        (programs / name).write_text(f"#!/bin/sh\nexec {sys.executable} -P {started}\n")
        (programs / name).chmod(0o755)
    token = subprocess.run(
        [sys.executable, ROOT / "manage.py", "api_token", "you@example.org"],
        env={**os.environ, "RUNBOARD_VAR": str(site.var)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    work = tmp_path / "work"
    work.mkdir()
    (work / "token").write_text(token.stdout)
    environment = {
        name: os.environ[name] for name in ("HOME", "LANG", "NUMBA_CACHE_DIR") if name in os.environ
    }
    environment |= {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(packages),
        "XDG_CONFIG_HOME": str(work / "config"), "XDG_CACHE_HOME": str(work / "cache"),
    }  # fmt: skip
    for command, said in transcript():
        typed = command.replace("http://127.0.0.1:8000", site.address)
        done = subprocess.run(
            ["bash", "-c", typed], cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        told = done.stdout or re.sub(r"[^\n]*\r", "", done.stderr)
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        wanted = said.replace("…", "...")
        assert _CHECKER.check_output(wanted, told, options), (command, told)
