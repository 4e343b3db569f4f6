"""What children print: kept in capped files, and shown on the console where a person should see it."""

import contextlib
import re
import sys
from collections import deque
from io import FileIO
from pathlib import Path
from typing import Literal

#: A log file of this many bytes is moved to `NAME.log.1`, so a child's logs stay under twice this.
FILE_LIMIT_BYTES = 5 * 1024 * 1024
#: A longer line is broken, so that a child that never ends its line cannot fill memory.
LINE_LIMIT_BYTES = 64 * 1024
#: How many last lines are told when a child's death ends the site.
REASON_LINES = 12

Shown = Literal["everything", "warnings", "nothing"]

_LEVEL = re.compile(r"\b(?P<calm>DEBUG|INFO)\b|\b(?P<loud>WARNING|ERROR|CRITICAL)\b|(?P<trace>^Traceback )")
_MAIL_BEGINS = re.compile(r"^Content-Type: text/plain; charset=")
_MAIL_ENDS = re.compile(r"^-{79}$")


class ConsoleFilter:
    """Decides, line by line, what of a child's output is worth a person's eye.

    Warnings and errors with the lines that follow them (tracebacks), and e-mails that Django's console
    backend prints, since with no mail server the console is where they are delivered.
    """

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._loud = False
        self._mail = False

    def admits(self, line: str) -> bool:
        """Return whether to show a line. Lines are passed in order, since a traceback has several."""
        if self._shown != "warnings":
            return self._shown == "everything"
        if _MAIL_BEGINS.match(line):
            self._mail = True
        if self._mail:
            self._mail = not _MAIL_ENDS.match(line)
            return True
        if level := _LEVEL.search(line[:200]):
            self._loud = level["calm"] is None
        return self._loud and bool(line.strip())


class ProcessLog:
    """Takes a child's raw output; writes `NAME.log`, shows the important lines, remembers the last ones."""

    def __init__(self, name: str, folder: Path, shown: Shown = "warnings") -> None:
        self.name = name
        self.path = folder / f"{name}.log"
        self._filter = ConsoleFilter(shown)
        #: The last lines of the child, oldest first.
        self.last_lines: deque[str] = deque(maxlen=REASON_LINES)
        self._partial = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self._open()

    def feed(self, data: bytes) -> None:
        """Take what the child has just written, whole lines or not."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._partial) > LINE_LIMIT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write an unfinished line as a line: its writer has ended, or does not end it."""
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def note(self, message: str) -> None:
        """Write a line of the supervisor's own to the file."""
        self._write(f"--- {message}".encode())

    def close(self) -> None:
        """End the file."""
        self.flush()
        self._file.close()

    def _line(self, raw: bytes) -> None:
        self._write(raw)
        line = raw.decode(errors="replace").rstrip("\r")
        if line.strip():
            self.last_lines.append(line)
        if self._filter.admits(line):
            echo(line, self.name)

    def _write(self, raw: bytes) -> None:
        """Write a line. A full disk loses lines, but must not end the site."""
        with contextlib.suppress(OSError):
            if self._file.closed:
                self._file = self._open()
            if self._file.tell() + len(raw) >= FILE_LIMIT_BYTES:
                self._file.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._file = self._open()
            self._file.write(raw + b"\n")

    def _open(self) -> FileIO:
        return self.path.open("ab", buffering=0)


def echo(message: str, who: str = "") -> None:
    """Print one line for the person at the console, with a short prefix naming the child it is from.

    A console that went away (a closed terminal, a full disk) must not end the site.
    """
    try:
        sys.stdout.write(f"{who:<8}| {message}\n" if who else f"{message}\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        pass
