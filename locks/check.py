"""For each platform and Python version: has the index a file of every locked package that fits, with a locked hash?

`make check-locks` runs this with uv, which asks the package index what files there are; nothing is installed. It covers
the build of torch for CUDA (`torch-cuda`) and those for the CPU (`torch-cpu`), which for Linux are looked for in
`TORCH_CPU_INDEX`, PyTorch's index of them: without it the check fails.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

FOLDER = Path(__file__).resolve().parent
LOCKS = ("web", "run", "test", "build", "postgresql", "tools", "compiler", "collections", "torch-cuda", "torch-cpu")
PYTHONS = ((3, 11), (3, 12), (3, 13))
#: What markers ask of a platform.
PLATFORMS = {
    "Linux x86_64": {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"},
    "Linux aarch64": {"sys_platform": "linux", "platform_machine": "aarch64", "platform_system": "Linux"},
    "macOS arm64": {"sys_platform": "darwin", "platform_machine": "arm64", "platform_system": "Darwin"},
}
#: Packages that are built from source: everywhere, and on one platform. Anything else without a wheel is a fault.
FROM_SOURCE = {"": {"jsonpath-rw"}, "Linux aarch64": {"pytrec-eval-terrier"}}


def tags_of(platform: str, python: tuple[int, int]) -> set[Tag]:
    """Return the tags of wheels that fit: glibc 2.28 (Debian 10) or later, macOS 14 or later, as torch asks for."""
    machine = PLATFORMS[platform]["platform_machine"]
    if platform.startswith("macOS"):
        names = list(mac_platforms((14, 0), machine))
    else:
        names = [f"manylinux_2_{minor}_{machine}" for minor in range(5, 29)]
        names += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    return {
        *cpython_tags(python, platforms=names),
        *compatible_tags(python, f"cp{python[0]}{python[1]}", names),
    }


def asked_for(text: str, platform: str, python: tuple[int, int]) -> dict[str, set[str]]:
    """Return the packages of a lock that a machine installs (`name==version`), with their hashes."""
    version = f"{python[0]}.{python[1]}"
    machine = {**PLATFORMS[platform], "python_version": version, "python_full_version": f"{version}.9"}
    found = {}
    for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE):
        head = re.match(r"([a-z0-9.-]+==[^ \n]+)(?: ; ([^\\\n]+))?", entry)
        if head and (head[2] is None or Marker(head[2].strip()).evaluate(machine)):
            found[head[1]] = set(re.findall(r"sha256:([0-9a-f]{64})", entry))
    return found


def offered(lock: str, index: str) -> dict[str, dict[str, Any]]:
    """Return uv's index entry of each package of a lock, by `name==version`. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "pylock.toml")
        command = [
            Path(sys.executable).with_name("uv"),
            "pip",
            "compile",
            FOLDER / f"{lock}.txt",
            "--no-deps",
        ]
        command += ["--universal", "--python-version", "3.11", "--quiet", "--output-file", output]
        command += ["--format", "pylock.toml"]
        if index:
            command += ["--find-links" if Path(index).is_dir() else "--index", index]
        subprocess.run(command, check=True)
        packages = tomllib.loads(output.read_text())["packages"]
    return {f"{package['name']}=={package['version']}": package for package in packages}


def problems(wanted: dict[str, set[str]], files: dict[str, dict[str, Any]], fitting: set[Tag]) -> Iterator[str]:
    """Return the packages without a fitting wheel that has a locked hash, with their available wheels."""
    for package, hashes in wanted.items():
        wheels = {
            wheel["url"].rpartition("/")[2].replace("%2B", "+"): wheel["hashes"]["sha256"] in hashes
            for wheel in files.get(package, {}).get("wheels", ())
        }
        fit = [name for name in wheels if parse_wheel_filename(name)[3] & fitting]
        if not any(wheels[name] for name in fit):
            yield f"{package}: " + ("its hash is not locked" if fit else "no wheel fits")


def check(lock: str, index: str) -> int:
    """Print a line for each platform and Python; how many of them cannot install the lock."""
    files = offered(lock, index)
    text = (FOLDER / f"{lock}.txt").read_text()
    failed = 0
    for platform, python in itertools.product(PLATFORMS, PYTHONS):
        wanted = asked_for(text, platform, python)
        built = FROM_SOURCE[""] | FROM_SOURCE.get(platform, set())
        from_wheels = {name: hashes for name, hashes in wanted.items() if name.partition("==")[0] not in built}
        found = list(problems(from_wheels, files, tags_of(platform, python)))
        failed += bool(found)
        print(
            f"{'FAILED' if found else 'ok':6}  {lock:10}  {platform:13}  {python[0]}.{python[1]}  "
            f"{len(from_wheels):3} wheels, {len(wanted) - len(from_wheels)} from source",
            *found, sep="\n        ", flush=True,
        )  # fmt: skip
    return failed


def main() -> int:
    """1 where something cannot be installed, or was not looked at."""
    index = os.environ.get("TORCH_CPU_INDEX", "")
    failed = sum(check(lock, "") for lock in LOCKS if lock != "torch-cpu")
    if not index:
        print(
            "torch-cpu: name PyTorch's index of builds for the CPU: make check-locks TORCH_CPU_INDEX=https://…/whl/cpu"
        )
        return 1
    return 1 if failed + check("torch-cpu", index) else 0


if __name__ == "__main__":
    sys.exit(main())
