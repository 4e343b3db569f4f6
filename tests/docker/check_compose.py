"""Have every reader of compose files that is here take compose.yaml, and hold what each understood to our rules.

`docker compose config` where it is there, Docker Compose v2 as tests/docker/compose_v2.py fetches it, and Debian's
`docker-compose` (1.29, which Docker gave up) where that is there; no engine is asked. Ends with status 1 where none is
of version 2 or later, or one is not content.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.docker import compose_rules, compose_v2

ROOT = Path(__file__).resolve().parents[2]
MISSING = (
    "No Docker Compose of version 2 or later is here, and none could be fetched, so nothing can say whether\n"
    "compose.yaml is right. `docker compose` comes with Docker."
)
SECRETS = compose_rules.SECRETS


def readers() -> dict[str, list[str]]:
    """The commands that read compose files here, by what they call their version."""
    commands = [["docker", "compose"], ["docker-compose"]]
    if (fetched := compose_v2.fetched()) is not None:
        commands.append([str(fetched)])
    found = {}
    for command in commands:
        if shutil.which(command[0]):
            answer = subprocess.run([*command, "version"], capture_output=True, text=True, check=False)
            if answer.returncode == 0 and answer.stdout.strip():
                found.setdefault(answer.stdout.splitlines()[0], command)
    return found


def is_current(version: str) -> bool:
    """Whether it is of version 2 or later."""
    number = re.search(r"\bv?(\d+)\.\d+", version)
    return number is not None and int(number[1]) >= 2


def read(command: list[str], values: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """What it makes of compose.yaml with these values in the place of docker/.env."""
    file = ROOT / "docker/compose.yaml"
    with tempfile.NamedTemporaryFile("w", prefix="runboard-", suffix=".env") as variables:
        variables.write("".join(f"{name}={value}\n" for name, value in values.items()))
        variables.flush()
        return subprocess.run(
            [*command, "--env-file", variables.name, "--file", str(file), *options, "config"],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )


def services(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The services it printed. Raises AssertionError with what it said instead."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def check(version: str, command: list[str]) -> None:
    """All that is asked of one reader. Raises AssertionError."""
    values = dict.fromkeys(SECRETS, "letters")
    dockerfile = ROOT / "docker/Dockerfile"
    usual = services(read(command, values))
    with_gpu = services(read(command, values, "--profile", "gpu"))
    for found in (usual, with_gpu):
        compose_rules.all_rules(found, dockerfile)
    outside = ["--file", str(ROOT / "docker/compose.outside.yaml")]
    told = services(read(command, {**values, "AWS_ACCESS_KEY_ID": "key"}, *outside))
    named = [name for name, service in told.items() if service.get("environment", {}).get("AWS_ACCESS_KEY_ID")]
    assert named in (["retriever"], ["retriever", "retriever-gpu"]), named
    assert "outside" in told["retriever"]["networks"]
    compose_rules.judgements_are_for_few(told)
    assert "outside" not in told["web"]["networks"]
    told = services(read(command, values, "--file", str(ROOT / "docker/compose.web-outside.yaml")))
    assert {name for name, each in told.items() if "outside" in each["networks"]} == {
        "proxy",
        "notifier",
        "web",
    }
    for name in SECRETS:
        refused = read(command, {key: value for key, value in values.items() if key != name})
        assert refused.returncode, f"{name} is not asked for"
        assert name in refused.stderr, refused.stderr
    print(f"{version}: {len(with_gpu)} services, all rules kept; refused without any of {', '.join(SECRETS)}")


def main() -> None:
    found = readers()
    if not any(is_current(version) for version in found):
        sys.exit(MISSING)
    for version, command in found.items():
        check(version, command)


if __name__ == "__main__":
    main()
