"""What every sandbox is: something that starts a program with a few folders and limits, and ends all of it.

`UnprotectedBackend` is no sandbox: the same program with limits, for tests and for staff on their own machine.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from django.conf import settings

from evaluation.efficiency.hardware import own_gpu
from submissions.sandbox.processes import has_no_running_thread, processes_under, send_signal, threads_of_user

LAUNCHER = (Path(__file__).parent / "launcher.py").read_text(encoding="utf-8")
#: The user that sandboxed programs run as where we are root.
NOBODY = 65534
#: Where the copies of compiled kernels lie inside.
CACHE = "/tmp/cache"  # noqa: S108  (the sandbox's own /tmp)
_PROBE = "import os; print('sandboxed' if os.getuid() else 'root')"
#: Computes on the GPU, or ends with one line that says why not.
_CUDA_PROBE = """import sys
try:
    import torch
    torch.zeros(1, device="cuda").sum().item()
except Exception as error:
    sys.exit(str(error).partition("\\n")[0] or type(error).__name__)
print("sandboxed")"""
_PROBE_SECONDS = 60
#: Seconds that a model waits for the machine to itself; then it runs without a measurement.
MEASURING_WAIT_SECONDS = 30 * 60
#: Address space that libraries reserve and do not use.
_RESERVED = 8 << 30
#: How often, and with how many seconds between, a tree of processes is looked at until all of it is stopped.
_STOP_ROUNDS, _STOP_PAUSE = 50, 0.01


class SandboxUnavailable(RuntimeError):
    """No program can be run safely here: not the program's fault. The text says why, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a child may use before it is ended. Bytes, seconds and counts.

    `processes` counts threads. `output_bytes` and `files` are of everything it writes, `scratch_bytes` of its /tmp,
    which lies in memory; `waiting_seconds` is how long it may wait for the machine to itself, and `measuring_seconds`
    how long it may have it; below `reserve_bytes` of free disk it is ended whatever it wrote, which is then no fault of
    its own.
    """

    memory_bytes: int
    wall_clock_seconds: float
    output_bytes: int
    processes: int = 1024
    open_files: int = 4096
    files: int = 20_000
    scratch_bytes: int = 512 << 20
    waiting_seconds: float = 1800
    measuring_seconds: float = 3600
    reserve_bytes: int = 512 << 20

    @property
    def most_processes(self) -> int:
        """Where the kernel refuses another process: above `processes`, so that the parent sees that limit passed."""
        return self.processes + 32

    @classmethod
    def from_settings(cls) -> Self:
        """Return the limits that MODEL_MEMORY_BYTES, MODEL_WALL_CLOCK_SECONDS, … give."""
        return cls(
            memory_bytes=settings.MODEL_MEMORY_BYTES,
            wall_clock_seconds=settings.MODEL_WALL_CLOCK_SECONDS,
            output_bytes=settings.MODEL_OUTPUT_BYTES,
            waiting_seconds=MEASURING_WAIT_SECONDS,
        )


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
    limits: SandboxLimits
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Folders of compiled code → where inside a copy of each goes.
    caches: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False


class SandboxedProcess:
    """A program that runs: its three streams, and the power to stop and to end all of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        #: The process above all others of the program.
        self.root = process.pid

    def ran_out_of_memory(self) -> bool:
        """Return whether the system, not we, ended it for want of memory."""
        return False

    def stop(self) -> bool:
        """Stop all of it; whether it stands still within half a second.

        A program that starts others meanwhile takes several rounds. The last two must find nobody moving: whoever was
        started between the first look and its parent's stop is seen by the second.
        """
        quiet = 0
        for _ in range(_STOP_ROUNDS):
            moving = [process for process in processes_under(self.root) if not has_no_running_thread(process)]
            quiet = 0 if moving else quiet + 1
            if quiet == 2:
                return True
            for process in moving:
                send_signal(process, signal.SIGSTOP)
            if moving:
                time.sleep(_STOP_PAUSE)
        return False

    def is_stopped(self) -> bool:
        """Return whether nobody in it runs. A stopped process can have itself woken by a timer that sends SIGCONT."""
        return all(has_no_running_thread(process) for process in processes_under(self.root))

    def resume(self) -> None:
        """Let all of it go on."""
        for process in processes_under(self.root):
            send_signal(process, signal.SIGCONT)

    def greet(self) -> Self:
        """Answer the launcher, which asks whether we live. Raises SandboxUnavailable when it does not come to that."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            if not select.select([stdout], [], [], _PROBE_SECONDS)[0]:
                raise SandboxUnavailable(f"nothing started within {_PROBE_SECONDS} seconds")
            os.read(stdout.fileno(), 1)
            with suppress(BrokenPipeError):  # it has ended: its end tells
                os.write(stdin.fileno(), b"!")
        except BaseException:
            self.kill()
            self.close()
            raise
        return self

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, or closed the pipe: its end tells
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()

    def kill(self) -> None:
        """End all of it, and return when it is gone."""
        for process in processes_under(self.root):
            send_signal(process, signal.SIGKILL)
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
    #: Whether it keeps a hostile program in, which then sees mounts at paths of our choice.
    isolates = True
    #: The command that installs or enables it.
    remedy: str

    @cached_property
    def reason(self) -> str:
        """Why it does not work here; empty where it does."""
        return self.probe()

    @cached_property
    def cuda_reason(self) -> str:
        """Why programs in it cannot compute on this process's GPU; empty where they can."""
        gpu = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": own_gpu().number}
        command = (*interpreter(), "-c", _CUDA_PROBE)
        limits = SandboxLimits.from_settings()
        reason = self._try(Program(command=command, limits=limits, environment=gpu, cuda=True))
        return reason.rpartition("\n")[2]

    @property
    def available(self) -> bool:
        """Whether it works here."""
        return not self.reason

    @abstractmethod
    def probe(self) -> str:
        """Try it: why it does not work here, empty where it does."""

    @abstractmethod
    def start(self, program: Program) -> SandboxedProcess:
        """Start the program. Raises SandboxUnavailable."""

    def try_out(self) -> str:
        """Run a little Python; why that does not work, empty where it does."""
        limits = SandboxLimits(memory_bytes=1 << 30, wall_clock_seconds=_PROBE_SECONDS, output_bytes=1 << 20)
        return self._try(Program(command=(*interpreter(), "-S", "-c", _PROBE), limits=limits))

    def _try(self, program: Program) -> str:
        try:
            contained = self.start(program)
        except (OSError, SandboxUnavailable) as error:
            return str(error)
        try:
            output, complaint = contained.process.communicate(timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"nothing happened for {_PROBE_SECONDS} seconds"
        finally:
            contained.kill()
            contained.close()
        if output.strip() != b"sandboxed":
            return complaint.decode(errors="replace").strip()[-300:] or f"it answered {output[:100]!r}"
        return ""


class UnprotectedBackend(Backend):
    """Limits alone: the program sees the files and the network that we see."""

    name = "none"
    isolates = False
    remedy = ""

    def probe(self) -> str:
        return ""

    def start(self, program: Program) -> SandboxedProcess:
        command = launch_command(program, user=None, address_space=not program.cuda)
        return SandboxedProcess(open_process(command, env=dict(program.environment))).greet()


def open_process(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, with its three streams in pipes."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, start_new_session=True, **pipes, **options)


def interpreter() -> tuple[str, ...]:
    """The command of our Python, without anything from its environment or the working folder, writing no bytecode."""
    return (sys.executable, "-I", "-B")


def launch_command(program: Program, *, user: int | None, address_space: bool) -> list[str]:
    """Return the program's command with the launcher before it.

    Args:
        program: the program.
        user: the user to become; None remains the present one.
        address_space: whether RLIMIT_AS limits memory.
    """
    limits = program.limits
    numbers = {"CORE": 0, "FSIZE": limits.output_bytes, "NOFILE": limits.open_files}
    numbers["NPROC"] = threads_of_user(os.geteuid() if user is None else user) + limits.most_processes
    if address_space:
        # It stops what asks for far too much at once; the parent's looks stop the rest. Libraries of models reserve
        # more than they use (torch on two cores 1 GiB above what it holds, more with every thread), and index files
        # that are mapped count too.
        numbers["AS"] = 2 * limits.memory_bytes + limits.output_bytes + _RESERVED
    plan = {"limits": numbers, "uid": user, "caches": dict(program.caches)}
    return [*interpreter(), "-S", "-c", LAUNCHER, json.dumps(plan), *program.command]
