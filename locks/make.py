"""Write the lock files: every package at one version, with the hashes of all its files. `make lock` runs this.

People edit the lists `requirements*.txt`, `docker/requirements-*.txt` and `locks/*.in`; what they bring besides is
resolved by uv, for every platform and Python version at once. A version that is locked stays, unless its list asks
for another one, or `UPGRADE` names it (`all`: every one).

torch has a lock for each build, since indexes and mirrors carry different builds of one version: `torch.txt` is its
version alone, `torch-cuda.txt` what the Python package index has (CUDA on Linux), `torch-cpu.txt` what PyTorch's index
of builds for the CPU has. That index is named by `TORCH_CPU_INDEX`; without it the last lock stays, where it is of this
version. What torch needs on every build is in the other locks.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
HEADER = "# Made by `make lock`; not to be edited.\n"
#: The lists that are locked, each agreeing with those before it. Images take programs alone out of the last.
LISTS = {
    "test": ["requirements-test.txt"],
    "run": ["requirements.txt"],
    "web": ["docker/requirements-web.txt"],
    "postgresql": ["docker/requirements-postgresql.txt", "--no-deps"],
    "client": ["locks/client.in"],
    "kernel": ["locks/kernel.in"],
}
#: What builds and checks things runs apart from the site.
APART = {"build": "locks/build.in", "tools": "locks/tools.in", "compiler": "locks/compiler.in"}
#: torch itself, and what only its builds for CUDA bring.
OF_TORCH = re.compile(r"torch|triton|(nvidia|cuda)-[a-z0-9-]+")


class Unlocked(Exception):
    """A lock cannot be made; the message says what would help."""


def compiled(source: str, *options: str, text: str | None = None) -> str:
    """Resolve `source` (or `text`, if it is "-") with uv. Raises Unlocked with uv's message."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", source]
    command += [
        "--universal",
        "--python-version",
        "3.11",
        "--no-header",
        "--no-emit-index-url",
        "--quiet",
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unlocked(done.stderr.strip())
    return done.stdout


def lock(name: str, source: str, *options: str, text: str | None = None) -> None:
    """Lock `source` in locks/NAME.txt, with hashes; what it had stays where it can. Raises Unlocked."""
    compiled(source, "--generate-hashes", "--output-file", f"locks/{name}.txt", *options, text=text)
    output = FOLDER / f"{name}.txt"
    # Who asks for a package is said beside it; that another lock agrees is no reason for it.
    output.write_text(HEADER + re.sub(r"^    #   -c locks/.*\n", "", output.read_text(), flags=re.MULTILINE))


def names(text: str) -> set[str]:
    """Return the packages in a lock."""
    return set(re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE))


def wanted_torch(requirements: str) -> str:
    """Return the version of torch in requirements.txt. Raises Unlocked if there is none."""
    found = re.search(r"^torch==([\w.]+)", requirements, re.MULTILINE)
    if found is None:
        raise Unlocked("requirements.txt has no line torch==VERSION.")
    return found[1]


def hashes_of(page: str, version: str) -> dict[str, list[str]]:
    """Return the SHA-256 of each torch wheel on an index page (PEP 503), by version: `2.13.0+cpu`, `2.13.0`."""
    found: dict[str, list[str]] = defaultdict(list)
    for address, name in re.findall(r'<a [^>]*?href="([^"]+)"[^>]*>\s*([^<]+?)\s*</a>', page):
        wheel = re.fullmatch(r"torch-([^-]+)-[^/]+\.whl", html.unescape(name))
        digest = re.search(r"#sha256=([0-9a-f]{64})", address)
        if wheel and digest and wheel[1] in (version, f"{version}+cpu"):
            found[wheel[1]].append(digest[1])
    return found


def for_cpu(index: str, version: str) -> str:
    """Return the lock of an index's CPU builds: `+cpu` on Linux, the plain one on macOS. Raises Unlocked."""
    if not index.startswith(("http://", "https://")):
        raise Unlocked(f"TORCH_CPU_INDEX is to be the address of an index, not {index!r}.")
    with urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=60) as answer:  # noqa: S310 (looked at above)
        found = hashes_of(answer.read().decode(), version)
    plain, cpu = found[version], found[f"{version}+cpu"]
    if not plain or not cpu:
        raise Unlocked(f"{index} has no builds of torch {version} for Linux and macOS with hashes.")
    return (
        HEADER
        + entry(f"torch=={version} ; sys_platform == 'darwin'", plain)
        + entry(f"torch=={version}+cpu ; sys_platform != 'darwin'", cpu)
    )


def entry(requirement: str, digests: Iterable[str]) -> str:
    """Return a requirement with its hashes in uv's notation."""
    return " \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in sorted(digests))]) + "\n"


def lock_torch(version: str, only_cuda: set[str], upgrade: list[str]) -> None:
    """Write the three locks of torch. Raises Unlocked where the one for the CPU is old and no index is named."""
    (FOLDER / "torch.txt").write_text(f"{HEADER}torch=={version}\n")
    pin = f"torch=={version}\n"
    leave_out = [f"--no-emit-package={name}" for name in sorted(names(compiled("-", text=pin)) - only_cuda)]
    lock("torch-cuda", "-", "--constraint=locks/run.txt", *leave_out, *upgrade, text=pin)
    cpu = FOLDER / "torch-cpu.txt"
    if index := os.environ.get("TORCH_CPU_INDEX"):
        cpu.write_text(for_cpu(index, version))
    elif not cpu.exists() or f"torch=={version}+cpu " not in cpu.read_text():
        raise Unlocked(
            f"locks/torch-cpu.txt is not of torch {version}. Name PyTorch's index of builds for the CPU: "
            "make lock TORCH_CPU_INDEX=https://…/whl/cpu"
        )


def main() -> int:
    """Write every lock; the exit status."""
    wishes = os.environ.get("UPGRADE", "").split()
    upgrade = ["--upgrade"] if wishes == ["all"] else [f"--upgrade-package={name}" for name in wishes]
    try:
        version = wanted_torch((ROOT / "requirements.txt").read_text())
        only_cuda = {name for name in names(compiled("requirements.txt")) if OF_TORCH.fullmatch(name)}
        options = [*upgrade, *(f"--no-emit-package={name}" for name in sorted(only_cuda))]
        for name, (source, *own) in LISTS.items():
            lock(name, source, *own, *options)
            options.append(f"--constraint=locks/{name}.txt")
        for name, source in APART.items():
            lock(name, source, *upgrade)
        lock_torch(version, only_cuda, upgrade)
    except Unlocked as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
