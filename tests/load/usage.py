"""What the processes of a group use: CPU seconds and memory, from /proc."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.load import memory

TICKS = os.sysconf("SC_CLK_TCK")
#: How often a group is looked at, in seconds: what a process uses in its last moments is in its parent's account.
EVERY = 1.0
#: How often memory is read, in seconds.
SAMPLED_EVERY = 5.0


@dataclass(frozen=True)
class _Process:
    parent: int
    seconds: float
    #: Of children that have ended.
    inherited: float


@dataclass
class Usage:
    """CPU seconds since the watch began, by group, and the memory of every process since then."""

    seconds: dict[str, float] = field(default_factory=dict)
    samples: list[memory.Sample] = field(default_factory=list)


class Watch:
    """Looks at groups of processes, each a root with all below it, in a thread of its own."""

    def __init__(self, groups: Mapping[str, Iterable[int]]) -> None:
        self._groups = {name: list(roots) for name, roots in groups.items()}
        self._sampled_at = 0.0
        self._usage = Usage()
        self._first: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watch")

    def start(self) -> None:
        """Begin to count."""
        self._start = time.monotonic()
        self._first = {name: _seconds(_tree(roots)) for name, roots in self._groups.items()}
        self._thread.start()

    def add(self, group: str, roots: Iterable[int]) -> None:
        """Count these processes too, from their own start."""
        self._groups[group] = list(roots)
        self._first[group] = 0.0

    def count(self) -> Usage:
        """What has been used until now."""
        for name, roots in list(self._groups.items()):
            if processes := _tree(roots):
                self._usage.seconds[name] = _seconds(processes) - self._first.get(name, 0.0)
        return self._usage

    def stop(self) -> None:
        """Look no longer."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            self.count()
            now = time.monotonic() - self._start
            if now >= self._sampled_at:
                self._sampled_at = now + SAMPLED_EVERY
                for name, roots in list(self._groups.items()):
                    self._usage.samples += memory.read(now, name, _tree(roots))


def _tree(roots: Iterable[int]) -> dict[int, _Process]:
    """The processes and everything that they started."""
    every = {int(path.name): found for path in Path("/proc").glob("[0-9]*") if (found := _read(path))}
    below: dict[int, list[int]] = {}
    for pid, process in every.items():
        below.setdefault(process.parent, []).append(pid)
    found: dict[int, _Process] = {}
    waiting = [pid for pid in roots if pid in every]
    while waiting:
        pid = waiting.pop()
        found[pid] = every[pid]
        waiting += below.get(pid, [])
    return found


def _read(path: Path) -> _Process | None:
    try:
        fields = re.sub(r"\(.*\)", "-", (path / "stat").read_text(), flags=re.DOTALL).split()
    except OSError:  # it has ended
        return None
    own, inherited = int(fields[13]) + int(fields[14]), int(fields[15]) + int(fields[16])
    return _Process(int(fields[3]), own / TICKS, inherited / TICKS)


def _seconds(processes: Mapping[int, _Process]) -> float:
    return sum(process.seconds + process.inherited for process in processes.values())
