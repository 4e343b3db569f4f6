"""Output of child processes, written to size-limited files and filtered for the console."""

import contextlib
import re
import sys
from collections import deque
from io import FileIO
from pathlib import Path
from typing import Literal

#: Size in bytes at which a log file is moved to `NAME.log.1`; the logs of a child are at most twice as large.
FILE_LIMIT_BYTES = 5 * 1024 * 1024
#: Maximum length of a line. Longer lines are split, so that a child that never ends a line cannot fill
#: memory.
LINE_LIMIT_BYTES = 64 * 1024
#: Number of last lines in the message when the end of a child stops the site.
REASON_LINES = 12

ConsoleOutput = Literal["everything", "warnings", "nothing"]

_LEVEL = re.compile(r"\b(?P<calm>DEBUG|INFO)\b|\b(?P<loud>WARNING|ERROR|CRITICAL)\b|(?P<trace>^Traceback )")
_MAIL_BEGINS = re.compile(r"^Content-Type: text/plain; charset=")
_MAIL_ENDS = re.compile(r"^-{79}$")


class ConsoleFilter:
    """Line filter that selects the output to show on the console.

    It selects warnings and errors with the lines that follow them (tracebacks), and the emails of Django's console
    backend, which delivers mail there if no mail server is configured.
    """

    def __init__(self, console: ConsoleOutput) -> None:
        self._console = console
        self._shows_level = False
        self._in_mail = False

    def admits(self, line: str) -> bool:
        """Return whether to show a line. Call it for all lines in order, because tracebacks span several."""
        if self._console != "warnings":
            return self._console == "everything"
        if _MAIL_BEGINS.match(line):
            self._in_mail = True
        if self._in_mail:
            self._in_mail = not _MAIL_ENDS.match(line)
            return True
        if level := _LEVEL.search(line[:200]):
            self._shows_level = level["calm"] is None
        return self._shows_level and bool(line.strip())


class ProcessLog:
    """Log of a child: writes `NAME.log`, shows important lines, and remembers the last ones."""

    def __init__(self, name: str, folder: Path, console: ConsoleOutput = "warnings") -> None:
        self.name = name
        self.path = folder / f"{name}.log"
        self._filter = ConsoleFilter(console)
        #: Last lines of the child, oldest first.
        self.last_lines: deque[str] = deque(maxlen=REASON_LINES)
        self._unfinished_line = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self._open_file()

    def feed(self, data: bytes) -> None:
        """Process output of the child, which may end in the middle of a line."""
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._unfinished_line) > LINE_LIMIT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write an unfinished line as a complete one."""
        if self._unfinished_line:
            self._line(self._unfinished_line)
            self._unfinished_line = b""

    def note(self, message: str) -> None:
        self._write(f"--- {message}".encode())

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _line(self, raw: bytes) -> None:
        """Write a line to the file, remember it unless it is blank, and show it if the filter admits it."""
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
                self._file = self._open_file()
            if self._file.tell() + len(raw) >= FILE_LIMIT_BYTES:
                self._file.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._file = self._open_file()
            self._file.write(raw + b"\n")

    def _open_file(self) -> FileIO:
        return self.path.open("ab", buffering=0)


def echo(message: str, source: str = "") -> None:
    """Print a line on the console, prefixed with the name of the child that it is from.

    A console that disappears (a closed terminal, a full disk) must not end the site.
    """
    try:
        sys.stdout.write(f"{source:<8}| {message}\n" if source else f"{message}\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        pass
