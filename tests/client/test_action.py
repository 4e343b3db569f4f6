"""The action's own script, run by bash as a runner does, against a command that notes how it was called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ACTION = yaml.safe_load((ROOT / "client/action.yml").read_text())


def test_the_action_submits_and_waits_and_takes_no_input_for_a_command(tmp_path: Path) -> None:
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "submit"]
    called = tmp_path / "runboard"
    called.write_text('#!/bin/bash\nprintf "%s|" "$@" >> called\necho >> called\necho \'{"id": "abc"}\'\n')
    called.chmod(0o755)
    given = {
        "DATASET": "small",
        "RUNS": "a.txt b.txt",
        "SYSTEM": "$(touch broken) Mine",
        "FIELDS": "architecture=dense\nnote=two words\n",
    }
    files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary"}
    path = f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        **given,
        "PATH": path,
        **{name: str(tmp_path / file) for name, file in files.items()},
    }
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, check=True)
    submit, watch = (tmp_path / "called").read_text().splitlines()
    assert submit == (
        "submit|small|a.txt|b.txt|--system|$(touch broken) Mine|--set|architecture=dense|--set|note=two words|--json|"
    )
    assert watch == "watch|abc|"
    assert (tmp_path / "output").read_text() == "id=abc\n"
    assert not (tmp_path / "broken").exists()
    assert set(step["env"]) >= set(given)


def test_a_wheel_is_built_of_the_source_distribution(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "client", tmp_path / "project/client", ignore=shutil.ignore_patterns("*.egg-info", "build"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "project")
    build = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
    made = [sys.executable, "-c", build.format("sdist"), tmp_path]
    subprocess.run(made, cwd=tmp_path / "project/client", check=True, stdout=subprocess.DEVNULL)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    made = [sys.executable, "-c", build.format("wheel"), tmp_path]
    folder = tmp_path / "unpacked" / packed.name.removesuffix(".tar.gz")
    subprocess.run(made, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    assert [each.name for each in tmp_path.glob("*.whl")] == [f"runboard-{VERSION}-py3-none-any.whl"]


@pytest.mark.long
def test_the_wheel_has_the_projects_version_and_the_command(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
    ]
    subprocess.run([*command, ROOT / "client"], check=True)
    (wheel,) = tmp_path.glob("runboard-*.whl")
    assert wheel.name == f"runboard-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as content:
        assert {"runboard/cli.py", "runboard/py.typed"} <= set(content.namelist())
        assert "runboard = runboard.cli:main" in content.read(f"runboard-{VERSION}.dist-info/entry_points.txt").decode()
