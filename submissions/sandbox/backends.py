"""Base classes of sandboxes, which start a program with a few folders and limits and stop all of its processes.

`UnprotectedBackend` is not a sandbox. It runs the same program with resource limits only, for tests and for staff on
their own machine.
"""

import json
import os
import secrets
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
from submissions.sandbox.processes import count_user_threads, has_no_running_thread, process_tree, send_signal

LAUNCHER = (Path(__file__).parent / "launcher.py").read_text(encoding="utf-8")
#: User id of sandboxed programs if the worker runs as root.
NOBODY_UID = 65534
#: Folder of compiled kernels inside the sandbox.
CACHE = "/tmp/cache"  # noqa: S108  (the sandbox's own /tmp)
_PROBE = "import os; print('sandboxed' if os.getuid() else 'root')"
#: Program that computes on the GPU, or exits with one line that states the reason.
_CUDA_PROBE = """import sys
try:
    import torch
    torch.zeros(1, device="cuda").sum().item()
except Exception as error:
    sys.exit(str(error).partition("\\n")[0] or type(error).__name__)
print("sandboxed")"""
_PROBE_SECONDS = 60
#: Maximum time in seconds that a model waits for exclusive use of the machine before it runs without measurement.
MEASURING_WAIT_SECONDS = 30 * 60
#: Address space in bytes that libraries reserve without using it.
_RESERVED = 8 << 30
#: Maximum number of rounds to stop a process tree, and the pause in seconds between rounds.
_STOP_ROUNDS, _STOP_PAUSE = 50, 0.01


class SandboxUnavailable(RuntimeError):
    """Error raised if no program can run safely here. The message states the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Resource limits of a child, in bytes, seconds, and counts.

    `processes` counts threads. `processors` is the number of processors that it may use, or 0 for all of the worker's.
    `output_bytes` and `files` limit everything that it writes, `scratch_bytes` its /tmp, which is in memory.
    `waiting_seconds` limits how long it may wait for exclusive use of the machine, and `measuring_seconds` how long it
    may have it. If less than `reserve_bytes` of the disk is free, the child is ended without counting as failed, unless
    it is an image.
    """

    memory_bytes: int
    wall_clock_seconds: float
    output_bytes: int
    processes: int = 1024
    processors: int = 0
    open_files: int = 4096
    files: int = 20_000
    scratch_bytes: int = 512 << 20
    waiting_seconds: float = 1800
    measuring_seconds: float = 3600
    reserve_bytes: int = 512 << 20

    @property
    def most_processes(self) -> int:
        """Limit enforced by the kernel, above `processes` so that the parent notices when that limit is exceeded."""
        return self.processes + 32

    @classmethod
    def from_settings(cls) -> Self:
        """Return the limits set by MODEL_MEMORY_BYTES, MODEL_WALL_CLOCK_SECONDS, and related settings."""
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


@dataclass(frozen=True, slots=True)
class Relay:
    """Relay to a server in the sandbox, with the folder of its socket and the server's port."""

    folder: Path
    port: int


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """Root file system of a container image, with the image's user and group ids and its working folder."""

    folder: Path
    user: int = 0
    group: int = 0
    work_folder: str = "/"
    relay: Relay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command as the sandbox sees it, and everything that it may access, except the system."""

    command: tuple[str, ...]
    limits: SandboxLimits
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Folders of compiled code, mapped to the paths of their copies in the sandbox.
    caches: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False
    #: Root of a container image, which replaces the host's root. Only isolating backends can run it.
    image: ImageRoot | None = None


class SandboxedProcess:
    """A running program with its three streams, which can be stopped, resumed, and killed with all of its processes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        #: Root of the program's process tree.
        self.root = process.pid
        #: Whether the program was executed, so that its messages and status are its own. Known after its end.
        self.ran_command = True

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel killed it because of its memory use."""
        return False

    def stop(self) -> bool:
        """Stop all processes. Return whether they are stopped within half a second.

        A program that starts processes meanwhile requires several rounds. The last two rounds must find no running
        process: one started between the first round and the stop of its parent is found in the second.
        """
        quiet_rounds = 0
        for _ in range(_STOP_ROUNDS):
            running_processes = [process for process in process_tree(self.root) if not has_no_running_thread(process)]
            quiet_rounds = 0 if running_processes else quiet_rounds + 1
            if quiet_rounds == 2:
                return True
            for process in running_processes:
                send_signal(process, signal.SIGSTOP)
            if running_processes:
                time.sleep(_STOP_PAUSE)
        return False

    def is_stopped(self) -> bool:
        """Return whether no process runs. A stopped process can be woken by its own timer that sends SIGCONT."""
        return all(has_no_running_thread(process) for process in process_tree(self.root))

    def resume(self) -> None:
        for process in process_tree(self.root):
            send_signal(process, signal.SIGCONT)

    def greet(self) -> Self:
        """Answer the launcher's check that its parent is alive, and return this process.

        Raises SandboxUnavailable, after killing the process, if the launcher does not start in time.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            if not select.select([stdout], [], [], _PROBE_SECONDS)[0]:
                raise SandboxUnavailable(f"the launcher did not start within {_PROBE_SECONDS} seconds")
            os.read(stdout.fileno(), 1)
            with suppress(BrokenPipeError):  # the program has ended, which its status reports
                os.write(stdin.fileno(), b"!")
        except BaseException:
            self.kill()
            self.close()
            raise
        return self

    def tell(self, line: str) -> None:
        """Write a line to the program's standard input."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the program has ended, which its status reports, or closed the pipe
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()

    def kill(self) -> None:
        """Kill all processes and wait until they have ended."""
        for process in process_tree(self.root):
            send_signal(process, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close the streams and release resources after the end."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class Backend(ABC):
    """Base of sandbox backends. Availability is determined once, by running a test program."""

    name: str
    #: Whether the backend isolates hostile programs. If so, mounts have the paths of their targets.
    isolates = True
    #: Whether no control group limits the memory of programs, which can then exceed it.
    lacks_memory_groups = False
    #: Command that installs or enables the backend.
    remedy: str

    @cached_property
    def reason(self) -> str:
        """Reason why the backend is not available; empty if it is."""
        return self.probe()

    @cached_property
    def cuda_reason(self) -> str:
        """Reason why programs cannot use this process's GPU; empty if they can."""
        gpu = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": own_gpu().number}
        command = (*interpreter(), "-c", _CUDA_PROBE)
        limits = SandboxLimits.from_settings()
        reason = self._run_test(Program(command=command, limits=limits, environment=gpu, cuda=True))
        return reason.rpartition("\n")[2]

    @property
    def available(self) -> bool:
        return not self.reason

    def probe(self) -> str:
        """Test the backend. Return the reason why it is not available, or an empty string."""
        return ""

    @abstractmethod
    def start(self, program: Program) -> SandboxedProcess:
        """Start the program. Raises SandboxUnavailable."""

    def try_out(self) -> str:
        limits = SandboxLimits(memory_bytes=1 << 30, wall_clock_seconds=_PROBE_SECONDS, output_bytes=1 << 20)
        return self._run_test(Program(command=(*interpreter(), "-S", "-c", _PROBE), limits=limits))

    def _run_test(self, program: Program) -> str:
        """Run a test program in the sandbox. Return why it failed, or an empty string."""
        try:
            child = self.start(program)
        except (OSError, SandboxUnavailable) as error:
            return str(error)
        try:
            output, complaint = child.process.communicate(timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the test program did not end within {_PROBE_SECONDS} seconds"
        finally:
            child.kill()
            child.close()
        if output.strip() != b"sandboxed":
            return complaint.decode(errors="replace").strip()[-300:] or f"the test program printed {output[:100]!r}"
        return ""


class UnprotectedBackend(Backend):
    """Backend that applies resource limits only, without isolation."""

    name = "none"
    isolates = False
    remedy = ""

    def start(self, program: Program) -> SandboxedProcess:
        """Start the program. Raises SandboxUnavailable for container images."""
        if program.image is not None:
            raise SandboxUnavailable("Container images run only in a sandbox.")
        command = launch_command(program, user=None, address_space=not program.cuda)
        return SandboxedProcess(open_process(command, env=dict(program.environment))).greet()


def open_process(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in its own session, with pipes for its three streams."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, start_new_session=True, **pipes, **options)


def interpreter() -> tuple[str, ...]:
    """Return the command of this Python in isolated mode, without writing bytecode."""
    return (sys.executable, "-I", "-B")


def launch_command(program: Program, *, user: int | None, address_space: bool, niceness: int = 0) -> list[str]:
    """Return the program's command, preceded by the launcher.

    Args:
        program: Program to run.
        user: User id to switch to; None keeps the current one.
        address_space: Whether RLIMIT_AS limits memory.
        niceness: Increment of the nice value, which lowers the priority.
    """
    limits = program.limits
    numbers = {"CORE": 0, "FSIZE": limits.output_bytes, "NOFILE": limits.open_files}
    numbers["NPROC"] = count_user_threads(os.geteuid() if user is None else user) + limits.most_processes
    if address_space:
        # This limit only stops excessive single allocations; the parent's checks stop the rest. Model libraries
        # reserve more than they use (torch on two cores 1 GiB more, and more with every thread), and mapped index
        # files count too.
        numbers["AS"] = 2 * limits.memory_bytes + limits.output_bytes + _RESERVED
    own = sorted(os.sched_getaffinity(0)) if limits.processors else []
    processors = secrets.SystemRandom().sample(own, min(limits.processors, len(own)))
    plan = {"limits": numbers, "processors": processors, "niceness": niceness, "uid": user}
    plan["caches"] = dict(program.caches)
    return [*interpreter(), "-S", "-c", LAUNCHER, json.dumps(plan), *program.command]
