"""A control group of its own for a sandbox, where the worker may make one: the kernel then counts for us.

Version 2 needs a folder whose children have memory.max and pids.max (`Delegate=yes` in systemd, and the worker in a
group beside, not above); SANDBOX_CGROUP names it. Version 1 needs root. Without one, RLIMIT_AS and the parent's own
counting remain.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from submissions.sandbox.backends import SandboxLimits

_ROOT = Path("/sys/fs/cgroup")
#: Seconds that the kernel is given to let go of a group whose processes are dead.
_REMOVAL = 1.0


class ControlGroup:
    """The groups made for one sandbox: one folder in version 2, one for each controller in version 1."""

    def __init__(self, limits: SandboxLimits) -> None:
        self.folders: list[Path] = []
        self.limits_memory = False
        self.limits_processes = False
        name = f"runboard-{secrets.token_hex(6)}"
        for parent in _parents():
            self._try(parent / name, limits)

    def _try(self, folder: Path, limits: SandboxLimits) -> None:
        """Make the folder and set its limits; leave nothing where that does not work."""
        try:
            folder.mkdir()
        except OSError:
            return
        processes = not self.limits_processes and _write(folder / "pids.max", limits.most_processes)
        memory = not self.limits_memory and (
            _write(folder / "memory.max", limits.memory_bytes)
            or _write(folder / "memory.limit_in_bytes", limits.memory_bytes)
        )
        if not processes and not memory:
            with suppress(OSError):
                folder.rmdir()
            return
        # Without these, what does not fit goes to the swap space, or takes the machine's other processes along.
        _write(folder / "memory.swap.max", 0)
        _write(folder / "memory.oom.group", 1)
        self.folders.append(folder)
        self.limits_memory |= memory
        self.limits_processes |= processes

    def add(self, processes: Sequence[int]) -> None:
        """Put processes, and all that they start from now on, into the group."""
        for folder in self.folders:
            for process in processes:
                _write(folder / "cgroup.procs", process)

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process for want of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    counts = dict(line.split() for line in (folder / name).read_text().splitlines())
                    if int(counts.get("oom_kill", 0)):
                        return True
        return False

    def remove(self) -> None:
        """Take the groups away; their processes are dead."""
        deadline = time.monotonic() + _REMOVAL
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.01)


def _parents() -> list[Path]:
    """Where groups may be made: SANDBOX_CGROUP, or our own groups."""
    if settings.SANDBOX_CGROUP:
        return [Path(settings.SANDBOX_CGROUP)]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers == "":
            found.append(_ROOT / path.lstrip("/"))
        elif "memory" in names or "pids" in names:
            found.append(_ROOT / controllers / path.lstrip("/"))
    return found


def _write(file: Path, value: int) -> bool:
    """Write to a control file that exists; whether that worked."""
    try:
        with file.open("r+") as control:
            control.write(str(value))
    except OSError:
        return False
    return True
