"""What every sandbox is: something that starts a program with a few folders and limits, and ends all of it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from submissions.sandbox import stopping
from submissions.sandbox.limits import Limits
from submissions.sandbox.watching import processes_under

LAUNCHER = (Path(__file__).parent / "launcher.py").read_text(encoding="utf-8")
#: The user that sandboxed programs run as where we are root.
NOBODY = 65534
#: Where the copies of compiled kernels lie inside.
CACHE = "/tmp/cache"  # noqa: S108  (the sandbox's own /tmp)
_PROBE = "import os; print('sandboxed' if os.getuid() else 'root')"
_PROBE_SECONDS = 60
#: Address space that libraries reserve and do not use.
_RESERVED = 8 << 30


class SandboxUnavailable(RuntimeError):
    """No program can be run safely here: not the program's fault. The text says why, and what would help."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder that the program sees as `target`."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to be run: the command as the sandbox sees it, and all that it may see beside the system."""

    command: tuple[str, ...]
    limits: Limits
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Folders of compiled code → where inside a copy of each goes.
    caches: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False


class Contained:
    """A program that runs: its three streams, and the power to stop and to end all of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @property
    def root(self) -> int:
        """The process above all others of the program."""
        return self.process.pid

    def ran_out_of_memory(self) -> bool:
        """Whether the system, not we, ended it for want of memory."""
        return False

    def stop(self) -> bool:
        """Hold all of it still; whether that worked."""
        return stopping.stop(self.root)

    def is_stopped(self) -> bool:
        """Whether all of it still stands still."""
        return stopping.is_stopped(self.root)

    def go_on(self) -> None:
        """Let all of it go on."""
        stopping.go_on(self.root)

    def kill(self) -> None:
        """End all of it, and return when it is gone."""
        for process in processes_under(self.root):
            _send_kill(process)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Let go of everything, once it has ended."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class Backend(ABC):
    """A way to contain a program. `available` is found out once, by running something in it."""

    name: str
    #: Whether it keeps a hostile program in.
    isolates = True
    #: Whether the program sees mounts at paths of our choice.
    moves_paths = True
    #: The command that installs or enables it.
    remedy: str

    @cached_property
    def reason(self) -> str:
        """Why it does not work here; empty where it does."""
        return self.probe()

    @property
    def available(self) -> bool:
        """Whether it works here."""
        return not self.reason

    @abstractmethod
    def probe(self) -> str:
        """Try it: why it does not work here, empty where it does."""

    @abstractmethod
    def start(self, program: Program) -> Contained:
        """Start the program. Raises SandboxUnavailable."""

    def try_out(self) -> str:
        """Run a little Python; why that does not work, empty where it does."""
        limits = Limits(memory_bytes=1 << 30, wall_clock_seconds=_PROBE_SECONDS, output_bytes=1 << 20)
        try:
            contained = self.start(Program(command=(*interpreter(), "-S", "-c", _PROBE), limits=limits))
        except (OSError, SandboxUnavailable) as error:
            return str(error)
        try:
            said, complaint = contained.process.communicate(timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"nothing happened for {_PROBE_SECONDS} seconds"
        finally:
            contained.kill()
            contained.close()
        if said.strip() != b"sandboxed":
            return complaint.decode(errors="replace").strip()[-300:] or f"it answered {said[:100]!r}"
        return ""


def greet(process: subprocess.Popen[bytes]) -> None:
    """Answer the launcher, which asks whether we live. Raises SandboxUnavailable when it does not come to that."""
    assert process.stdin is not None
    assert process.stdout is not None
    asked = select.select([process.stdout], [], [], _PROBE_SECONDS)[0]
    if not asked:
        process.kill()
        raise SandboxUnavailable(f"nothing started within {_PROBE_SECONDS} seconds")
    os.read(process.stdout.fileno(), 1)
    with suppress(BrokenPipeError):  # it has ended: its end tells
        os.write(process.stdin.fileno(), b"!")


def interpreter() -> tuple[str, ...]:
    """The command of our Python, without anything from its environment or the working folder, writing no bytecode."""
    return (sys.executable, "-I", "-B")


def launched(program: Program, *, user: int | None, address_space: bool, processes: int | None) -> list[str]:
    """The program's command with the launcher before it.

    `user` is whom to become; `address_space` whether memory is limited through RLIMIT_AS, `processes` the
    RLIMIT_NPROC where that is what limits them.
    """
    limits = program.limits
    numbers = {
        "CORE": 0,
        "FSIZE": limits.output_bytes,
        "NOFILE": limits.open_files,
    }
    if processes is not None:
        numbers["NPROC"] = processes
    if address_space:
        numbers["AS"] = address_space_for(limits)
    plan = {"limits": numbers, "uid": user, "caches": dict(program.caches)}
    return [*interpreter(), "-S", "-c", LAUNCHER, json.dumps(plan), *program.command]


def address_space_for(limits: Limits) -> int:
    """RLIMIT_AS for a child. It stops what asks for far too much at once; the parent's looks stop the rest.

    Libraries of models reserve more than they use (torch on two cores 1 GiB above what it holds, more with every
    thread), and index files that are mapped count too.
    """
    return 2 * limits.memory_bytes + limits.output_bytes + _RESERVED


def _send_kill(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
