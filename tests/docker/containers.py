"""Services of compose.yaml, as Docker Compose resolves them, started from roots that the Dockerfile's steps have made.

Each gets its image's user, its own command, environment, volumes and memory, a root that nobody can write to, no
capabilities and processes of its own. All share one loopback without a way out, which knows the names of the services.
Shares of memory and processors are Docker's, and are not set.
"""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docker.clean_root import CleanRoot, own
from tests.docker.dockerfile import Step, words_of
from tests.servers import processes

#: Where what is mounted is seen by this process and its children alone, and ends with them.
_MEMORY = Path("/mnt")
_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000


def leave_the_network(folder: Path, names: Sequence[str]) -> None:
    """From here on this process and its children have a loopback alone, and these names for it. Raises OSError."""
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK | _NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    private = [
        "mount --make-rprivate /",
        f"mount --bind {hosts} /etc/hosts",
        f"mount -t tmpfs tmpfs {_MEMORY}",
    ]
    for command in ("ip link set lo up", *private):
        subprocess.run(command.split(), check=True)


@dataclass(slots=True)
class Container:
    """One service: what Compose says of it, and the root and steps of its image."""

    name: str
    service: Mapping[str, Any]
    root: CleanRoot
    steps: Sequence[Step]
    folder: Path
    process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def environment(self) -> dict[str, str]:
        """Compose's, over the image's. What docker/.env does not set is not there."""
        told = {name: value for name, value in self.service["environment"].items() if value is not None}
        return {**self.root.environment, "HOME": "/tmp", **told}

    def start(self) -> subprocess.Popen[str]:
        """Start its command, or its image's."""
        command = self.service.get("command")
        command = command or words_of([step.text for step in self.steps if step.instruction == "CMD"][-1])
        with self.log.open("a") as output:
            self.process = self.root.start(
                [word.replace("$$", "$") for word in command],
                {},
                self.environment,
                network=True,
                mounts=self._mounts(),
                output=output,
            )
        return self.process

    def run(self) -> None:
        """Start it, and wait for its end. Raises RuntimeError with its last lines where it fails."""
        if status := self.start().wait():
            raise RuntimeError(f"{self.name} ended with {status}\n{processes.last_lines(self.log)}")

    def execute(self, command: Sequence[str], more: Mapping[str, str] | None = None) -> str:
        """What a command says in the running container, as `docker compose exec`. Raises RuntimeError."""
        assert self.process is not None
        pid = self.process.pid
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        variables = [f"{name}={value}" for name, value in {**self.environment, **(more or {})}.items()]
        arguments = [
            *("nsenter", "--target", first, "--mount"),
            *self.root.without_rights(),
            *("env", "--ignore-environment", f"--chdir={self.root.workdir}", *variables, *command),
        ]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def wait_until_healthy(self, patience: float = 600) -> float:
        """Seconds until the service's own check was content. Raises RuntimeError with what it said last."""
        kind, *words = self.service["healthcheck"]["test"]
        check = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
        began = time.monotonic()
        while True:
            assert self.process is not None
            try:
                self.execute(check)
                return time.monotonic() - began
            except RuntimeError as error:
                if self.process.poll() is not None or time.monotonic() - began > patience:
                    raise RuntimeError(f"{error}\n{processes.last_lines(self.log)}") from error
            time.sleep(1)

    def _mounts(self) -> list[str]:
        """bubblewrap's words for volumes and memory, outer places first."""
        user, group = self.root.identity()
        found = {"/etc/hosts": ["--ro-bind", str(self.folder / "hosts"), "/etc/hosts"]}
        for volume in self.service.get("volumes") or []:
            source, place = self.folder / "volumes" / volume["source"], volume["target"]
            own(source, user, group)
            source.chmod(0o700)
            found[place] = ["--ro-bind" if volume.get("read_only") else "--bind", str(source), place]
        for text in self.service.get("tmpfs") or []:
            place, _, options = text.partition(":")
            memory = _MEMORY / self.name / place.strip("/").replace("/", "-")
            memory.mkdir(parents=True)
            mount = ["mount", "-t", "tmpfs", "-o", f"nosuid,nodev,{options}", "tmpfs", str(memory)]
            subprocess.run(mount, check=True)
            found[place] = ["--bind", str(memory), place]
        for place in found:
            _make_place(self.root.folder, place)
        return [word for place in sorted(found) for word in found[place]]


def _make_place(root: Path, place: str) -> None:
    """Something to mount on, as Docker makes it in an image's root."""
    where = root / place.lstrip("/")
    if place == "/etc/hosts":
        where.touch()
    elif not where.exists():
        where.mkdir(parents=True)
