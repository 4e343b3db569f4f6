"""Commands in pages of docs/, run with both packages from their wheels and a newly started site."""

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
from tests.leaderboard.tiny_collection import write_folder

ROOT = Path(__file__).resolve().parents[2]
_TYPED = re.compile(r"^\$ (?P<command>.*\n(?:> ?.*\n)*)(?P<said>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_CHECKER = doctest.OutputChecker()


def transcript(page: str) -> list[tuple[str, str]]:
    """Each command, with the lines that go on with it, and what it says."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    typed = [each for block in blocks for each in _TYPED.finditer(block)]
    return [(re.sub(r"^> ?", "", each["command"], flags=re.MULTILINE), each["said"]) for each in typed]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"))
    supervisor = found.start()
    supervisor.wait_for("Ready in", 600)
    eventually(lambda: "static-embeddings-svd" in found.get("/api/v1/datasets/stdlibsearch/board/"), 300)
    yield found
    found.end()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which both packages are installed, and their commands are found."""
    folder = tmp_path_factory.mktemp("installed")
    wheels, packages, programs = (folder / name for name in ("wheels", "packages", "bin"))
    programs.mkdir()
    subprocess.run([sys.executable, ROOT / "packages/evaluation_wheel.py", wheels], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    made = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT / "client"]
    subprocess.run(made, check=True)
    subprocess.run([*pip, "install", "--no-deps", "--target", packages, *wheels.glob("*.whl")], check=True)
    for name, module in (("runboard", "runboard"), ("runboard-eval", "runboard_eval"), ("python", "")):
        write_program(programs / name, f'-P -m {module} "$@"' if module else '-P "$@"')
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "NUMBA_CACHE_DIR") if name in os.environ}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(packages)}


def write_program(path: Path, arguments: str) -> None:
    """A command that starts this Python."""
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {arguments}\n")
    path.chmod(0o755)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return the reader's folder, with the parts of the repository that the commands use."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    write_program(tmp_path / ".venv/bin/python", '"$@"')
    for name in ("manage.py", "evaluation"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def token(site: Site, work: Path) -> None:
    """A token in the reader's folder."""
    printed = subprocess.run(
        [sys.executable, ROOT / "manage.py", "api_token", "somebody@example.org"],
        env={**os.environ, "RUNBOARD_VAR": str(site.var)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (work / "token").write_text(printed.stdout)


def test_the_first_tutorial_shows_what_is_said(work: Path) -> None:
    write_folder(work, compressed=True)
    type_again("docs/tutorial.md", work, dict(os.environ))


@pytest.mark.usefixtures("token")
@pytest.mark.long
@pytest.mark.parametrize("page", ["docs/client.md", "docs/own-board.md"])
def test_the_documentation_shows_what_is_said(page: str, site: Site, installed: dict[str, str], work: Path) -> None:
    environment = {
        **installed, "RUNBOARD_VAR": str(site.var),
        "XDG_CONFIG_HOME": str(work / "config"), "XDG_CACHE_HOME": str(work / "cache"),
    }  # fmt: skip
    type_again(page, work, environment, site.address)


def type_again(page: str, work: Path, environment: dict[str, str], address: str = "") -> None:
    """Type all commands of a page, for the site with this address; each must say what the page shows."""
    for command, said in transcript(page):
        typed = command.replace("http://127.0.0.1:8000", address)
        done = subprocess.run(
            ["bash", "-c", typed], cwd=work, env=environment, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        told = done.stdout or re.sub(r"[^\n]*\r", "", done.stderr)
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        wanted = said.replace("…", "...")
        assert _CHECKER.check_output(wanted, told, options), (command, told)
