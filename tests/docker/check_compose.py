"""Have Docker's own reader take compose.yaml, and hold what it understood to our rules.

`docker compose config` where it is there, else Debian's `docker-compose config`; no engine is asked. Ends with status 1
where neither is there, or either is not content.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.docker import compose_rules

ROOT = Path(__file__).resolve().parents[2]
MISSING = (
    "There is neither `docker compose` nor `docker-compose`, so nothing can say whether compose.yaml is right.\n"
    "Debian: apt-get install --no-install-recommends docker-compose"
)
SECRETS = compose_rules.SECRETS


def reader() -> list[str] | None:
    """The command that reads compose files here."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            answer = subprocess.run([*command, "version"], capture_output=True, check=False)
            if answer.returncode == 0:
                return command
    return None


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


def main() -> None:
    command = reader()
    if command is None:
        sys.exit(MISSING)
    version = subprocess.run(
        [*command, "version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
    values = dict.fromkeys(SECRETS, "letters")
    dockerfile = ROOT / "docker/Dockerfile"
    usual = services(read(command, values))
    with_gpu = services(read(command, values, "--profile", "gpu"))
    for found in (usual, with_gpu):
        compose_rules.all_rules(found, dockerfile)
    outside = ["--file", str(ROOT / "docker/compose.outside.yaml")]
    told = services(read(command, {**values, "AWS_ACCESS_KEY_ID": "key"}, *outside))
    named = [
        name for name, service in told.items() if service.get("environment", {}).get("AWS_ACCESS_KEY_ID")
    ]
    assert named in (["retriever"], ["retriever", "retriever-gpu"]), named
    assert "outside" in told["retriever"]["networks"]
    compose_rules.judgements_are_for_few(told)
    for name in SECRETS:
        refused = read(command, {key: value for key, value in values.items() if key != name})
        assert refused.returncode, f"{name} is not asked for"
        assert name in refused.stderr, refused.stderr
    print(f"{version}: {len(with_gpu)} services, all rules kept; refused without any of {', '.join(SECRETS)}")


if __name__ == "__main__":
    main()
