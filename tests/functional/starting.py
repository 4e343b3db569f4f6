"""Start a supervisor from a test, and see what is left of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from leaderboard.management.supervisor.processes import die_with_this_process

ROOT = Path(__file__).resolve().parents[2]
#: How long something that must come may take, in seconds: nothing is said about speed, a busy machine is slow.
PATIENCE = 120.0


class Supervisor:
    """A supervisor in a process of its own; what it prints is kept in a file."""

    def __init__(self, arguments: list[str], mark: Path, **environment: str | None) -> None:
        """`mark` is a path that all its descendants have in their environment, so that they can be found.

        A keyword sets a variable of the environment, or removes it with None.
        """
        self.mark = mark
        self._output = mark.with_name(f"{mark.name}-{time.monotonic_ns()}.out")
        variables = {**os.environ, "TEST_MARK": str(mark), **environment}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                env={name: value for name, value in variables.items() if value is not None},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_this_process(),
            )

    @property
    def printed(self) -> str:
        """What it has said so far."""
        return self._output.read_text()

    def wait_for(self, text: str, patience: float = PATIENCE) -> None:
        """Return when it has printed `text`."""
        eventually(lambda: text in self.printed or self.process.poll() is not None, patience, lambda: self.printed)
        assert text in self.printed, self.printed

    def descendants(self) -> dict[int, str]:
        """Command lines by process id of all that came from it and still run, orphans included."""
        return {pid: line for pid, line in marked(self.mark).items() if pid != self.process.pid}

    def find(self, word: str) -> int:
        """The process id of the oldest descendant whose command line holds `word`; 0 if there is none."""
        found = [pid for pid, line in self.descendants().items() if word in line]
        return min(found, key=_started, default=0)

    def stop(self, number: signal.Signals = signal.SIGTERM, patience: float = PATIENCE) -> None:
        """Send the signal, and wait for the end."""
        self.process.send_signal(number)
        self.process.wait(patience)

    def end(self) -> None:
        """Kill it and all that came from it; nothing is left when this returns."""
        self.process.kill()
        self.process.wait()
        while left := self.descendants():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def _started(pid: int) -> float:
    """When a process began, as the kernel counts: ids begin anew on a busy machine. Infinite for one that has ended."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return float("inf")


def marked(mark: Path) -> dict[int, str]:
    """Every process of this machine that has TEST_MARK=`mark` in its environment, zombies excluded."""
    wanted = f"TEST_MARK={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended, or is another user's
            continue
    return found


def eventually(condition: Callable[[], bool], patience: float = PATIENCE, explain: Callable[[], str] = str) -> float:
    """Wait until the condition holds; the seconds it took. Fails with `explain()` after `patience` seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, explain()
        time.sleep(0.02)
    return time.monotonic() - began


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
