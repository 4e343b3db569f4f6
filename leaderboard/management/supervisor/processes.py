"""Child processes in process groups, managed by one thread under one lock.

Existing process managers are not sufficient. When they were killed with SIGKILL while a child that ignores SIGTERM had
forked another process, honcho 2.0 left 4 of 4 processes running twelve seconds later (with `setpriv --pdeathsig KILL`
before the command 3 of 3), and supervisord 4.3 and circus 0.19 left 2 of 2. This one leaves none, because the watchdog
ends whole groups. Each alternative would also need the lock, the startup steps, readiness and the console filter.
"""

import contextlib
import ctypes
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from leaderboard.management.supervisor.logs import ConsoleOutput, ProcessLog, echo

_WATCHDOG = Path(__file__).with_name("watchdog.py")
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# Loaded here rather than between fork and exec, where little is allowed.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

#: Seconds to wait at startup while the watchdog of a killed site ends its remaining processes.
TIDYING_SECONDS = 10.0
#: Seconds below which a run is a quick end, and number of quick ends in a row that stop the site during startup.
QUICK_SECONDS = 10.0
QUICK_ENDS = 4
#: Seconds before the first restart, doubled with each further quick end up to the maximum.
BACKOFF = 0.5
LONGEST_BACKOFF = 60.0
#: Seconds that children have to end after SIGTERM, and that the last children then have. A worker without a broker
#: takes 6.6 s on a busy machine.
ENDING_SECONDS = 8.0
ENDING_LAST_SECONDS = 2.0


class SupervisorError(Exception):
    """The site ends with exit status 1. The message is printed unchanged, so it must say what to do."""


class StopRequested(Exception):
    """SIGINT, SIGTERM or SIGHUP arrived: all children are ended, and the exit status is 0."""


def die_with_parent(parent: int, ending: signal.Signals = signal.SIGTERM) -> None:
    """Ask Linux to send a signal to this process when the thread that started it ends; elsewhere do nothing.

    Other platforms rely on the watchdog alone, which also ends whole groups on Linux; there this is a second
    safeguard.

    Args:
        parent: Id of the parent process. If it ended between fork and this call, this process exits at once.
        ending: The signal to send.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(ending), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def die_with_this_process() -> Callable[[], None]:
    """Return a `preexec_fn` for `subprocess` that ends the child with the calling process."""
    parent = os.getpid()
    return lambda: die_with_parent(parent)


@dataclass(frozen=True)
class Command:
    """A command to run, and how to treat its process."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Whether it runs as long as the site; otherwise it is a step that ends by itself.
    lasting: bool = True
    #: Whether it ends after the others, which may need it while they end.
    ends_last: bool = False
    console: ConsoleOutput = "warnings"


class Child:
    """A command and its current process."""

    process: subprocess.Popen[bytes]

    def __init__(self, command: Command, log_folder: Path, working_folder: Path) -> None:
        self.command = command
        self.log = ProcessLog(command.name, log_folder, command.console)
        self.started_at = 0.0
        #: Consecutive ends soon after a start.
        self.quick_ends = 0
        #: Time of the next start on the monotonic clock; None while it runs or should not run.
        self.restart_at: float | None = None
        self._working_folder = working_folder

    def start(self) -> None:
        """Start the process. Raises SupervisorError if that fails.

        Call it only from the main thread: Linux ties a child to the *thread* that started it.
        """
        self.restart_at = None
        self.started_at = time.monotonic()
        try:
            self.process = subprocess.Popen(
                list(self.command.arguments),
                env={**os.environ, **self.command.environment},
                cwd=self._working_folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=die_with_this_process(),  # Safe, because the supervisor has one thread.
            )
        except OSError as error:
            raise SupervisorError(f"{self.command.name} cannot be started: {error}") from error
        os.set_blocking(self.output, False)
        self.log.note(f"started as process {self.process.pid}: {' '.join(self.command.arguments)}")

    @property
    def output(self) -> int:
        """Descriptor of the process's output."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def running(self) -> bool:
        """Whether the process has not been observed to end."""
        return self.process.returncode is None

    def ending(self) -> str:
        """Describe how the process ended."""
        status = self.process.poll()
        if status is None or status >= 0:
            return f"exit status {status}"
        try:
            return f"signal {signal.Signals(-status).name}"
        except ValueError:
            return f"signal {-status}"

    def read(self) -> bool:
        """Read available output into the log; return False at its end."""
        try:
            data = os.read(self.output, 65536)
        except BlockingIOError:
            return True
        if data:
            self.log.feed(data)
        else:
            self.log.flush()
        return bool(data)

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Kill the remaining processes of the group and read the rest of the output."""
        self.kill_group()
        self.process.wait()
        with contextlib.suppress(OSError):  # BlockingIOError: no output remains, but another process holds the pipe.
            while data := os.read(self.output, 65536):
                self.log.feed(data)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.flush()
        self.log.note(f"process {self.process.pid} ended with {self.ending()}")

    def failure(self, message: str) -> SupervisorError:
        """Return an error that includes the last lines of the log."""
        lines = [message, f"Last lines (full log: {self.log.path}):", *self.log.last_lines]
        return SupervisorError("\n    ".join(lines))


class WatchdogPipe:
    """Pipe to the watchdog, which receives everything that it may have to end or remove."""

    def __init__(self, lock: int) -> None:
        """Start the watchdog, which holds the lock of this descriptor until it has cleaned up (see `hold_lock`)."""
        self._lock = lock
        self._lines: list[str] = []
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        # Without site-packages (-I -S) it starts in milliseconds and uses little memory.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(self._lock,),
            text=True,
        )

    def add_group(self, group: int) -> None:
        self._add(f"+{group}")

    def discard_group(self, group: int) -> None:
        self._lines.remove(f"+{group}")
        self._write(f"-{group}")

    def add_path(self, path: Path) -> None:
        self._add(f"remove {path}")

    def restart_if_ended(self) -> None:
        """Start a new watchdog with the same information if this one was killed."""
        if self._process.poll() is not None:
            self._process = self._start()
            for line in self._lines:
                self._write(line)

    def close(self) -> None:
        """Close the watchdog's input, so that it ends the remaining processes and removes their files; wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._write(line)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # The watchdog was killed; `restart_if_ended` notices that.
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


class ProcessGroup:
    """Context manager that ends every child on exit. Only the main thread may use it."""

    def __init__(self, log_folder: Path, working_folder: Path, lock: int) -> None:
        self.watchdog = WatchdogPipe(lock)
        self._log_folder = log_folder
        self._working_folder = working_folder
        self._children: list[Child] = []
        #: Whether children that keep failing are restarted indefinitely. During startup such a child stops
        #: the site, because a setting is probably wrong; later it must not stop the others.
        self.keeps_trying = False
        self._selector = selectors.DefaultSelector()
        self._stop_requested = False
        self._kills_at_once = False
        self._requested_at = 0.0
        # Signals write a byte to this pipe, which ends the wait in `_turn` at once.
        self._wake, self._wakener = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wakener, False)

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        signal.set_wakeup_fd(self._wakener, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._former_handlers = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        self._former_handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all children, those with `ends_last` after the others, then the watchdog; restore the signal handlers."""
        try:
            self._end([child for child in self._children if not child.command.ends_last], ENDING_SECONDS)
            self._end(self._children, ENDING_LAST_SECONDS)
        finally:
            self.watchdog.close()
            signal.set_wakeup_fd(-1)
            for number, handler in self._former_handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(self._wake)
            os.close(self._wakener)
            for child in self._children:
                child.log.close()

    def start(self, *commands: Command) -> list[Child]:
        """Start commands and return their children. Lasting commands are restarted whenever they end."""
        children = [Child(command, self._log_folder, self._working_folder) for command in commands]
        for child in children:
            self._start(child)
            self._children.append(child)
        return children

    def finish(self, *commands: Command) -> None:
        """Run steps in parallel until all have succeeded. Raises SupervisorError if one fails."""
        steps = self.start(*commands)
        self.run_until(lambda: not any(step.running for step in steps))

    def run_until(self, condition: Callable[[], bool], interval: float = 0.25) -> None:
        """Watch the children until the condition, checked every `interval` seconds, holds.

        Raises StopRequested on a signal, and SupervisorError if a child cannot be kept running or a step failed.
        """
        while not condition():
            turn_ends = time.monotonic() + interval
            while (remaining := turn_ends - time.monotonic()) > 0:
                if self._turn(remaining):
                    break

    def _turn(self, timeout: float) -> bool:
        """Wait for output, a signal or a restart time; return True if a child has ended."""
        restarts = [child.restart_at for child in self._children if child.restart_at is not None]
        if not self._stop_requested:
            self._read(min([timeout, *(max(0.0, moment - time.monotonic()) for moment in restarts)]))
        if self._stop_requested:
            raise StopRequested
        self.watchdog.restart_if_ended()
        ended_children = [child for child in self._children if child.running and child.process.poll() is not None]
        for child in ended_children:
            self._reap(child)
            self._decide_restart(child)
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= time.monotonic():
                self._start(child)
        return bool(ended_children)

    def _start(self, child: Child) -> None:
        """Start the child's process, and register it with the watchdog and its output with the selector."""
        child.start()
        self.watchdog.add_group(child.process.pid)
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _read(self, timeout: float) -> None:
        """Read available output of the children into their logs, waiting at most `timeout` seconds."""
        for key, _ in self._selector.select(timeout):
            if isinstance(key.data, Child):
                if not key.data.read():
                    self._selector.unregister(key.fd)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)

    def _reap(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # It may have closed its output before it ended.
            self._selector.unregister(child.output)
        child.reap()
        self.watchdog.discard_group(child.process.pid)

    def _decide_restart(self, child: Child) -> None:
        """Schedule the restart of a child that ended, unless it is a step that succeeded.

        Raises SupervisorError if a step failed, or if a child keeps failing during startup.
        """
        name, ending = child.command.name, child.ending()
        if not child.command.lasting:
            if child.process.returncode != 0:
                raise child.failure(f"The step '{name}' failed with {ending}.")
            return
        is_quick = time.monotonic() - child.started_at < QUICK_SECONDS
        child.quick_ends = child.quick_ends + 1 if is_quick else 1
        if child.quick_ends >= QUICK_ENDS and not self.keeps_trying:
            times = f"{child.quick_ends} times in a row, the last time with {ending}"
            raise child.failure(f"'{name}' ended {times}.")
        doublings = min(child.quick_ends - 1, 32)  # Larger powers of two overflow a float.
        delay = min(BACKOFF * 2**doublings, LONGEST_BACKOFF)
        child.restart_at = time.monotonic() + delay
        echo(f"ended with {ending}; restarting in {delay:g} s (log: {child.log.path})", name)

    def _end(self, children: list[Child], seconds: float) -> None:
        """Terminate children, and kill those that do not end in time; a second signal kills them at once."""
        remaining = [child for child in children if child.running]
        for child in remaining:
            child.process.terminate()  # Only the process itself, which ends its own workers in its own way.
        deadline = time.monotonic() + seconds
        while remaining:
            if self._kills_at_once or time.monotonic() > deadline:
                for child in remaining:
                    child.kill_group()
            self._read(0.05)
            for child in [child for child in remaining if child.process.poll() is not None]:
                self._reap(child)
                remaining.remove(child)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Request a stop. A further signal more than a second later makes `_end` kill all children at once."""
        # A single request to stop can arrive twice: from the terminal and through `make`.
        now = time.monotonic()
        if self._stop_requested:
            self._kills_at_once = self._kills_at_once or now - self._requested_at > 1
        else:
            self._stop_requested, self._requested_at = True, now


@contextlib.contextmanager
def hold_lock(path: Path, holder: str) -> Iterator[int]:
    """Hold an exclusive `flock` on a file that names this process and `holder`, and yield its descriptor.

    The watchdog inherits the lock. After a SIGKILL of the supervisor it is therefore held until the last orphan has
    ended, and a new site waits until then. The file is never removed, because two sites could then lock two different
    files. Raises SupervisorError, naming the holding process, if another site is running.

    Args:
        path: Path of the lock file.
        holder: A few words about this site, such as its address.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + TIDYING_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                text = os.pread(descriptor, 1000, 0).decode(errors="replace")
            pid, _, address = text.strip().partition(" ")
            if not pid.isdigit():  # The other process has the lock and is about to write its id.
                pid, address = "0", "starting"
            if _is_running(int(pid)) or time.monotonic() > deadline:
                raise SupervisorError(
                    f"A site is already running on {path.parent} (process {pid}, {address}). Stop it "
                    "first, or give this one its own folder and port: "
                    "RUNBOARD_VAR=/some/folder PORT=8001 make run"
                )
            time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {holder}\n".encode(), 0)
        try:
            yield descriptor
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _is_running(pid: int) -> bool:
    """Return whether a process exists and, on Linux, is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except (OSError, IndexError):
        return True


def run(folder: Path, holder: str, working_folder: Path, run_children: Callable[[ProcessGroup], None]) -> int:
    """Hold the lock of `folder` and let `run_children` start and watch children until a stop is requested.

    All children have ended when this returns. Logs are in `logs` in the folder.

    Args:
        folder: State folder of the site.
        holder: Words about this site that another process sees if it wants the same folder.
        working_folder: Working directory of the children.
        run_children: Function that starts and watches the children.

    Returns:
        The exit status: 0 after a requested stop, or once `run_children` has returned; 1 after a failure, which is
        printed with its reason.
    """
    try:
        with (
            hold_lock(folder / "run.lock", holder) as lock,
            ProcessGroup(folder / "logs", working_folder, lock) as group,
        ):
            run_children(group)
    except StopRequested:
        echo("Runboard has stopped.")
    except SupervisorError as error:
        echo(f"Runboard cannot run. {error}")
        return 1
    return 0
