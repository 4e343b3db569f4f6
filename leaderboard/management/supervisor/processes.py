"""Child processes in groups of their own: started, watched, restarted and ended in one thread, under one lock.

No process manager stands in its place. Killed with SIGKILL while a child that ignores SIGTERM had forked another
process, honcho 2.0 left 4 of 4 processes running twelve seconds later (with `setpriv --pdeathsig KILL` before the
command 3 of 3), supervisord 4.3 and circus 0.19 left 2 of 2; here none is left, since the watchdog ends whole groups.
Each would also need the lock, the steps of a start, readiness and the filter of the console beside it.
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

from leaderboard.management.supervisor.logs import ProcessLog, Shown, echo

_WATCHDOG = Path(__file__).with_name("watchdog.py")
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# Loaded here, not between fork and exec, where little may be done.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

#: Seconds that a start waits for the watchdog of a killed site to end what that site left behind.
TIDYING_SECONDS = 10.0
#: A child that ran for fewer seconds ended quickly. So many quick ends in a row stop the site during a start.
QUICK_SECONDS = 10.0
QUICK_ENDS = 4
#: The pause before the first restart, in seconds, doubled with each further quick end up to the longest.
BACKOFF = 0.5
LONGEST_BACKOFF = 60.0
#: Seconds that children get to end after SIGTERM, and then those that end last. A worker without a broker takes 6.6 s
#: on a busy machine.
ENDING_SECONDS = 8.0
ENDING_LAST_SECONDS = 2.0


class SupervisorError(Exception):
    """The site ends with exit status 1. The message is printed as it is, so it says what to do."""


class StopRequested(Exception):
    """SIGINT, SIGTERM or SIGHUP arrived: everything is ended, with exit status 0."""


def die_with_parent(parent: int, ending: signal.Signals = signal.SIGTERM) -> None:
    """Ask Linux to send `ending` to this process when the thread that started it ends; elsewhere do nothing.

    `parent` is that process's id: if it has gone already, between fork and this call, the process ends at
    once. Elsewhere the watchdog alone ends orphans; on Linux it does so too, for whole groups, and this is
    the second rope.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(ending), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def die_with_this_process() -> Callable[[], None]:
    """Return a `preexec_fn` for `subprocess` that ties the child to the process calling this."""
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
    #: Whether it is ended after the others, which may still need it while they end.
    ends_last: bool = False
    shown: Shown = "warnings"


class Child:
    """A command and its current process."""

    process: subprocess.Popen[bytes]

    def __init__(self, command: Command, log_folder: Path, working_folder: Path) -> None:
        self.command = command
        self.log = ProcessLog(command.name, log_folder, command.shown)
        self.started_at = 0.0
        #: Ends in a row that came soon after a start.
        self.quick_ends = 0
        #: When to start it again, on the monotonic clock; None while it runs or is not to run.
        self.restart_at: float | None = None
        self._working_folder = working_folder

    def start(self) -> None:
        """Start the process. Only from the main thread: Linux ties a child to the *thread* it came from."""
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
                preexec_fn=die_with_this_process(),  # safe: the supervisor has one thread
            )
        except OSError as error:
            raise SupervisorError(f"{self.command.name} cannot be started: {error}") from error
        os.set_blocking(self.output, False)
        self.log.note(f"started as process {self.process.pid}: {' '.join(self.command.arguments)}")

    @property
    def output(self) -> int:
        """Descriptor of what the process prints."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def running(self) -> bool:
        """Whether the process was not yet seen to end."""
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
        """Read printed output into the log; return False when there will be no more."""
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
        """Kill every process of its group, workers of the child included."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Kill the remaining processes of its group, and read the rest of its output."""
        self.kill_group()
        self.process.wait()
        with contextlib.suppress(OSError):  # BlockingIOError: nothing left, though somebody has the pipe
            while data := os.read(self.output, 65536):
                self.log.feed(data)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.flush()
        self.log.note(f"process {self.process.pid} ended with {self.ending()}")

    def failure(self, message: str) -> SupervisorError:
        """Return an error with the last lines of the log."""
        lines = [message, f"Its last lines (all of them: {self.log.path}):", *self.log.last_lines]
        return SupervisorError("\n    ".join(lines))


class WatchdogPipe:
    """The supervisor's end of the pipe to its watchdog, which is told what it would have to end and remove."""

    def __init__(self, lock: int) -> None:
        """`lock` is a descriptor that the watchdog keeps open until it has tidied up (see `hold_lock`)."""
        self._lock = lock
        self._lines: list[str] = []
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        # -I -S: no site-packages, so that it starts in milliseconds and weighs little.
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
        """Name a process group to end."""
        self._add(f"+{group}")

    def discard_group(self, group: int) -> None:
        """Report that the group has ended."""
        self._lines.remove(f"+{group}")
        self._write(f"-{group}")

    def add_path(self, path: Path) -> None:
        """Name a file or folder to remove in the end."""
        self._add(f"remove {path}")

    def restart_if_ended(self) -> None:
        """Start another watchdog, and tell it everything, if this one was killed."""
        if self._process.poll() is not None:
            self._process = self._start()
            for line in self._lines:
                self._write(line)

    def close(self) -> None:
        """Let the watchdog end and remove what it still knows of, and wait until it has."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._write(line)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it was killed: `restart_if_ended` notices
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


class ProcessGroup:
    """Use it as a context: leaving it ends every child. Only the main thread may use it."""

    def __init__(self, log_folder: Path, working_folder: Path, lock: int) -> None:
        self.watchdog = WatchdogPipe(lock)
        self._log_folder = log_folder
        self._working_folder = working_folder
        self._children: list[Child] = []
        #: Whether children that keep failing are restarted for as long as the site runs. During a start such a child
        #: stops the site, since it usually means a wrong setting; later it must not stop the others.
        self.keeps_trying = False
        self._selector = selectors.DefaultSelector()
        self._stop_requested = False
        self._impatient = False
        self._requested_at = 0.0
        # A signal writes a byte here, which ends the wait in `_turn` at once.
        self._wake, self._wakener = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wakener, False)

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._wakener, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._former = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        self._former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end([each for each in self._children if not each.command.ends_last], ENDING_SECONDS)
            self._end(self._children, ENDING_LAST_SECONDS)
        finally:
            self.watchdog.close()
            signal.set_wakeup_fd(-1)
            for number, handler in self._former.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(self._wake)
            os.close(self._wakener)
            for child in self._children:
                child.log.close()

    def start(self, *commands: Command) -> list[Child]:
        """Start each; a lasting one is kept running from now on."""
        children = [Child(command, self._log_folder, self._working_folder) for command in commands]
        for child in children:
            self._start(child)
            self._children.append(child)
        return children

    def finish(self, *commands: Command) -> None:
        """Run steps side by side until all have ended well. Raises SupervisorError if one fails."""
        steps = self.start(*commands)
        self.run_until(lambda: not any(step.running for step in steps))

    def run_until(self, condition: Callable[[], bool], every: float = 0.25) -> None:
        """Look after the children until the condition, asked once in `every` seconds, holds.

        Raises StopRequested on a signal, SupervisorError when a child cannot be kept alive or a step failed.
        """
        while not condition():
            turn_ends = time.monotonic() + every
            while (remaining := turn_ends - time.monotonic()) > 0:
                if self._turn(remaining):
                    break

    def _turn(self, timeout: float) -> bool:
        """Wait for output, a signal or a time to restart; return True when a child has ended."""
        restarts = [child.restart_at for child in self._children if child.restart_at is not None]
        if not self._stop_requested:
            self._read(min([timeout, *(max(0.0, moment - time.monotonic()) for moment in restarts)]))
        if self._stop_requested:
            raise StopRequested
        self.watchdog.restart_if_ended()
        ended = [child for child in self._children if child.running and child.process.poll() is not None]
        for child in ended:
            self._reap(child)
            self._decide_restart(child)
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= time.monotonic():
                self._start(child)
        return bool(ended)

    def _start(self, child: Child) -> None:
        child.start()
        self.watchdog.add_group(child.process.pid)
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if isinstance(key.data, Child):
                if not key.data.read():
                    self._selector.unregister(key.fd)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)

    def _reap(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it may have closed its output before it ended
            self._selector.unregister(child.output)
        child.reap()
        self.watchdog.discard_group(child.process.pid)

    def _decide_restart(self, child: Child) -> None:
        """Schedule the restart of a child that ended unexpectedly. Raises SupervisorError if it keeps failing."""
        name, ending = child.command.name, child.ending()
        if not child.command.lasting:
            if child.process.returncode != 0:
                raise child.failure(f"The step '{name}' has failed with {ending}.")
            return
        quick = time.monotonic() - child.started_at < QUICK_SECONDS
        child.quick_ends = child.quick_ends + 1 if quick else 1
        if child.quick_ends >= QUICK_ENDS and not self.keeps_trying:
            times = f"{child.quick_ends} times in a row, the last time with {ending}"
            raise child.failure(f"'{name}' has ended {times}.")
        doublings = min(child.quick_ends - 1, 32)  # a larger power of two is no float
        delay = min(BACKOFF * 2**doublings, LONGEST_BACKOFF)
        child.restart_at = time.monotonic() + delay
        echo(f"ended with {ending}; starting it again in {delay:g} s (log: {child.log.path})", name)

    def _end(self, children: list[Child], seconds: float) -> None:
        """End children: politely, then not. A second signal skips the politeness."""
        remaining = [child for child in children if child.running]
        for child in remaining:
            child.process.terminate()  # the process alone, which tells its own workers in its own manner
        deadline = time.monotonic() + seconds
        while remaining:
            if self._impatient or time.monotonic() > deadline:
                for child in remaining:
                    child.kill_group()
            self._read(0.05)
            for child in [child for child in remaining if child.process.poll() is not None]:
                self._reap(child)
                remaining.remove(child)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # One wish to end can arrive twice at once: from the terminal and through `make`.
        now = time.monotonic()
        if self._stop_requested:
            self._impatient = self._impatient or now - self._requested_at > 1
        else:
            self._stop_requested, self._requested_at = True, now


@contextlib.contextmanager
def hold_lock(path: Path, holder: str) -> Iterator[int]:
    """Hold an exclusive `flock` on a file that names us and `holder`, a few words such as an address; its descriptor.

    The watchdog inherits the lock, so after a SIGKILL of the supervisor it is held until the last orphan is
    gone: a start in that moment waits instead of meeting a site that is half ended. The file stays: removing it would
    let two sites lock two different files. Raises SupervisorError, naming the holding process, when a live site has it.
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
            pid, _, where = text.strip().partition(" ")
            if not pid.isdigit():  # it has the lock and is about to write its name
                pid, where = "0", "starting"
            if _is_running(int(pid)) or time.monotonic() > deadline:
                raise SupervisorError(
                    f"A site is already running on {path.parent} (process {pid}, {where}). Stop it "
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
    """Return whether a process exists and, as far as Linux tells, has not ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except (OSError, IndexError):
        return True


def run(folder: Path, holder: str, working_folder: Path, live: Callable[[ProcessGroup], None]) -> int:
    """Hold `folder` and let `live` start children and look after them, until asked to stop.

    `holder` is told, beside our process id, to another that wants the folder. Logs go to `logs` in the folder.
    Returns the exit status: 0 when asked to stop (or `live` has returned); 1, its reason printed, on a failure.
    Children have ended when this returns.
    """
    try:
        with (
            hold_lock(folder / "run.lock", holder) as lock,
            ProcessGroup(folder / "logs", working_folder, lock) as group,
        ):
            live(group)
    except StopRequested:
        echo("Runboard has stopped.")
    except SupervisorError as error:
        echo(f"Runboard cannot run. {error}")
        return 1
    return 0
