"""The supervisor's end of the pipe to its watchdog."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

_WATCHDOG = Path(__file__).with_name("watchdog.py")


class Tether:
    """Starts the watchdog, and tells it what it would have to end and remove."""

    def __init__(self, lock: int | None = None) -> None:
        """`lock` is a descriptor the watchdog keeps open until it has tidied up (see `lock.RunLock`)."""
        self._lock = lock
        self._told: dict[str, str] = {}
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        # -I -S: no site-packages, so that it starts in milliseconds and weighs little.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=() if self._lock is None else (self._lock,),
            text=True,
        )

    @property
    def pid(self) -> int:
        """The watchdog's process id."""
        return self._process.pid

    def started(self, group: int) -> None:
        """A process group to end."""
        self._tell(f"+{group}", key=f"group {group}")

    def ended(self, group: int) -> None:
        """That group has ended."""
        self._tell(f"-{group}", forget=f"group {group}")

    def remove(self, path: Path) -> None:
        """A file or folder to remove in the end."""
        self._tell(f"remove {path}", key=str(path))

    def mend(self) -> None:
        """Start another watchdog, and tell it everything, if this one was killed."""
        if self._process.poll() is not None:
            self._process = self._start()
            for line in list(self._told.values()):
                self._write(line)

    def release(self) -> None:
        """Say goodbye: the watchdog ends and removes what it still knows of, and we wait until it has."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str, key: str = "", forget: str = "") -> None:
        if key:
            self._told[key] = line
        self._told.pop(forget, None)
        self._write(line)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it was killed: `mend` will notice
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
