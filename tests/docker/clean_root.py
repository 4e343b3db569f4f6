"""A plain Debian of its own, made by debootstrap, in which commands run as in a container.

Building runs as root inside; what is served runs as somebody without rights, over a root that nobody can write to.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from leaderboard.management.supervisor.processes import die_with_this_process

MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3,python3-venv,ca-certificates"
#: What the image of Python calls its interpreter and pip.
PYTHON = "python3 -m venv --copies /usr/local && ln -sf pip3 /usr/local/bin/pip"
#: bubblewrap's own --proc, started as root, covers parts of it, and no sandbox inside could have one then.
_WITH_PROC = 'mount -t proc -o nosuid,nodev,noexec proc /proc && exec "$@"'
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def debootstrap(folder: Path, suite: str) -> None:
    """Make a minimal Debian with Python in the folder. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    _check(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(folder), MIRROR])


def _check(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write((done.stdout + done.stderr)[-4000:])
        raise subprocess.CalledProcessError(done.returncode, command)


def pip_settings() -> tuple[dict[str, str], list[str]]:
    """This machine's settings of pip, as variables, and the files they name: inside there are none of its own."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    variables: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        key = "PIP_" + name.rpartition(".")[2].strip("'").upper().replace("-", "_")
        variables[key] = value.strip("'\"")
    variables.pop("PIP_CONSTRAINT", None)  # what is installed is locked
    words = re.findall(r"(?:file://)?(/[^\s]+)", " ".join(variables.values()))
    tops = {"/" + "/".join(Path(word).parts[1:3]) for word in words}
    return variables, sorted(top for top in tops if Path(top).exists() and not top.startswith("/etc"))


@dataclass(slots=True)
class CleanRoot:
    """The root, and what the Dockerfile has said of it so far."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOME": "/root"})
    workdir: str = "/"
    user: str = ""

    def build(self, command: str) -> None:
        """Run a step as root, with the network. Raises CalledProcessError."""
        pip, folders = pip_settings()
        binds = [word for folder in folders for word in ("--ro-bind", folder, folder)]
        if certificates := pip.get("PIP_CERT"):
            binds += ["--ro-bind", str(Path(certificates).resolve()), certificates]
        arguments = [
            *(
                "bwrap",
                "--bind",
                str(self.folder),
                "/",
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "--perms",
                "1777",
                "--tmpfs",
                "/tmp",
            ),
            *("--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf", *binds, "--cap-add", "ALL"),
            *("--die-with-parent", "--unshare-pid", "--chdir", self.workdir, "--clearenv"),
            *_variables({**self.environment, "DEBIAN_FRONTEND": "noninteractive", **pip}),
            *("/bin/sh", "-c", command),
        ]
        _check(arguments)

    def identity(self) -> tuple[int, int]:
        """The ids of the user that was named last. Raises ValueError where that is root."""
        for line in (self.folder / "etc/passwd").read_text().splitlines():
            name, _, user, group = line.split(":")[:4]
            if name == self.user:
                return int(user), int(group)
        raise ValueError(f"the image would run as {self.user or 'root'}")

    def without_rights(self) -> list[str]:
        """The words before a command that have it run as the image's user, without rights and for good."""
        user, group = self.identity()
        found = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
        return [*found, "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]

    def start(
        self,
        command: Sequence[str],
        folders: Mapping[Path, str],
        more: Mapping[str, str] | None = None,
        *,
        network: bool = False,
        mounts: Sequence[str] = (),
        output: IO[Any] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command as the image's user: without rights, writing to /tmp (memory), `folders` and `mounts` alone.

        `mounts` are words of bubblewrap.
        """
        binds = [word for folder, inside in folders.items() for word in ("--bind", str(folder), inside)]
        variables = _variables({**self.environment, "HOME": "/tmp", **(more or {})})
        arguments = [
            # Started as root: then no namespace of users hides who owns the files of the image.
            *("bwrap", "--ro-bind", str(self.folder), "/", "--dev", "/dev"),
            *(
                "--perms",
                "1777",
                "--tmpfs",
                "/dev/shm",
                "--perms",
                "1777",
                "--tmpfs",
                "/tmp",
                *binds,
                *mounts,
            ),
            *("--die-with-parent", "--unshare-pid", *([] if network else ["--unshare-net"])),
            *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
            *("--cap-add", "CAP_SYS_ADMIN", "--chdir", self.workdir, "--clearenv", *variables),
            *("sh", "-c", _WITH_PROC, "sh", *self.without_rights(), *command),
        ]
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
            preexec_fn=die_with_this_process(),
        )

    def run(self, command: Sequence[str], folders: Mapping[Path, str], more: Mapping[str, str] | None = None) -> str:
        """`start`, and what it said. Raises RuntimeError with that where it failed."""
        process = self.start(command, folders, more)
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)[:200]}: exit status {process.returncode}\n{said[-3000:]}")
        return said


def own(folder: Path, user: int, group: int) -> None:
    """Make a folder that is this user's."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, user, group)


def _variables(environment: Mapping[str, str]) -> list[str]:
    return [word for name, value in environment.items() for word in ("--setenv", name, value)]
