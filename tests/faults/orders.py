"""Faults that tests order from worker processes through files: kills, missing protections, and wrong clocks.

The worker's side is `tests.faults.faulty`; nothing of this is in the product.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

#: Process that is killed (SIGKILL) at a point. "host": all workers. "frozen": the worker and its processes are stopped
#: (SIGSTOP). "held": the worker waits, alive, until `forget_fired`.
Victim = Literal["child", "worker", "sandbox", "frozen", "host", "held"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)
#: Protection that a worker can be told to do without.
Protection = Literal["fence", "states", "unique", "reaper", "attempts", "looking", "standstill", "clock"]


@dataclass(frozen=True, slots=True)
class Fired:
    """An order that was carried out: where, by whom, in which job, when (seconds since the epoch)."""

    point: str
    victim: str
    job: int
    pid: int
    at: float


class Orders:
    """A folder of orders, shared by the test and the workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("armed", "fired", "without", "clocks", "poison", "workers"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Take all back."""
        for folder in self.folder.iterdir():
            for path in folder.iterdir() if folder.name != "workers" else ():
                path.unlink(missing_ok=True)

    def strike(self, point: str, victim: Victim) -> None:
        """The next job that comes to this point in its first attempt loses the victim there."""
        (self.folder / "armed" / f"{point}~{victim}~{uuid.uuid4().hex}").touch()

    def armed(self) -> int:
        """Return the number of kills that are not carried out yet."""
        return sum(1 for _ in (self.folder / "armed").iterdir())

    def fired(self) -> list[Fired]:
        """Return the kills that were carried out, oldest first."""
        found = []
        for path in (self.folder / "fired").iterdir():
            point, victim, _, job, pid, at = path.name.split("~")
            found.append(Fired(point, victim, int(job), int(pid), float(at)))
        return sorted(found, key=lambda each: each.at)

    def forget_fired(self) -> None:
        """Begin a new list."""
        for path in (self.folder / "fired").iterdir():
            path.unlink()

    def poison(self, system: str) -> None:
        """Kill the worker's child whenever it begins a run of the system with this name."""
        (self.folder / "poison" / system).touch()

    def do_without(self, *protections: Protection) -> None:
        """Take these protections out of every worker, and put all others back."""
        shutil.rmtree(self.folder / "without")
        (self.folder / "without").mkdir()
        for protection in protections:
            (self.folder / "without" / protection).touch()

    def set_clock(self, service: str, seconds: float) -> None:
        """Let the clock of this service's processes be fast by so many seconds, or slow."""
        path = self.folder / "clocks" / service
        new = path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(path)

    # --- the worker's side

    def lacks(self, protection: Protection) -> bool:
        """Whether this protection is out."""
        return (self.folder / "without" / protection).exists()

    def clock(self, service: str) -> float:
        """Return the number of seconds by which the service's clock is fast."""
        try:
            return float((self.folder / "clocks" / service).read_text())
        except (FileNotFoundError, ValueError):
            return 0.0

    def is_poison(self, system: str) -> bool:
        """Whether what is sent for this system kills whoever does it."""
        return (self.folder / "poison" / system).exists()

    def come_to(self, point: str, job: int, attempt: int) -> None:
        """Die here, or have somebody die, if there is an order to."""
        if attempt > 1:
            return
        for path in (self.folder / "armed").glob(f"{point}~*"):
            if "~sandbox~" in path.name and not descendants_of(os.getpid()):
                continue  # it has ended already
            fired = self.folder / "fired" / f"{path.name}~{job}~{os.getpid()}~{time.time()}"
            with contextlib.suppress(FileNotFoundError):
                path.rename(fired)  # of several processes one gets it
                victim = path.name.split("~")[1]
                if victim == "host":
                    self._kill_all()
                while victim == "held" and fired.exists():
                    time.sleep(0.05)
                _strike(victim)
                return

    def note_worker(self) -> None:
        """This process is the main one of a worker: one of those that end with their host."""
        (self.folder / "workers" / str(os.getpid())).touch()

    def _kill_all(self) -> None:
        """All workers with their groups, our own last, as when their machine loses its power."""
        own = os.getpgid(0)
        beside = children_of(_parent_of(os.getppid()))  # whose numbers are not somebody else's by now
        noted = {int(path.name) for path in (self.folder / "workers").iterdir()}
        for pid in [*(noted & set(beside) - {own}), own]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _strike(victim: str) -> None:
    if victim == "child":
        os.kill(os.getpid(), signal.SIGKILL)
    if victim == "worker":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)  # the supervisor, which sees the main process gone, ends the rest of its group
    if victim == "frozen":
        os.killpg(os.getpgid(0), signal.SIGSTOP)
    if victim == "sandbox":
        for pid in reversed(descendants_of(os.getpid())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(each) for each in text.split()]


def descendants_of(pid: int) -> list[int]:
    """All processes below `pid`, those nearest to it first."""
    found, ahead = [], children_of(pid)
    while ahead:
        found += ahead
        ahead = [child for each in ahead for child in children_of(each)]
    return found
