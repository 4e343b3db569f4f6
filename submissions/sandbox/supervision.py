"""Beside a running child: hear what it says, look at what it uses, and end it when that is too much."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from evaluation.execution.job import Progress
from evaluation.execution.outcome import is_question, read_progress
from submissions.sandbox.backends import Contained, SandboxUnavailable
from submissions.sandbox.limits import Limits
from submissions.sandbox.machine_lock import WAITING, MachineLock
from submissions.sandbox.turn import Turn
from submissions.sandbox.watching import exceeds, free_bytes, usage_of

Breach = Literal["timed_out", "memory", "disk", "processes"]
OnProgress = Callable[[str, float, str], None]

#: Seconds between two looks at what is used, at what is written, and between two signs of life to the caller.
_LOOK = 0.2
_LOOK_AT_FILES = 0.5
_SIGN = 0.25
_CHUNK = 1 << 16
_LONGEST_LINE = 4096
_TAIL = 8192
_WAITING = "until nothing else runs on this machine, to be timed"


@dataclass(frozen=True, slots=True)
class Ending:
    """How the child ended: by itself with an exit status, or for something that it used too much of.

    `unmeasured` is why it was told to do without measuring, where it asked and the answer was no.
    """

    status: int
    breach: Breach | None
    seconds: float
    peak_memory: int
    complaints: str
    unmeasured: str = ""


def want_free_disk(folder: Path, limits: Limits) -> None:
    """Raise SandboxUnavailable where the disk is nearly full: who filled it is not known, so no model is to blame."""
    if free_bytes(folder) < limits.reserve_bytes:
        raise SandboxUnavailable("The disk of this worker is nearly full.")


class Supervision:
    """One child from its start to its end. `folders` are those it may write to; `measures` is whether it may ask."""

    def __init__(
        self,
        contained: Contained,
        limits: Limits,
        folders: list[Path],
        lock: MachineLock,
        on_progress: OnProgress,
        *,
        measures: bool,
    ) -> None:
        self._contained = contained
        self._limits = limits
        self._folders = folders
        self._turn = Turn(contained, lock, limits, wanted=measures)
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._deadline = self._started + limits.wall_clock_seconds
        self._progress = self._heard = Progress("loading", 0.0)
        self._line = b""
        self._tail = b""
        self._peak = 0
        self._next_look = self._next_look_at_files = self._next_sign = 0.0

    def run(self) -> Ending:
        """Stay with the child until it has ended. What `on_progress` raises ends it, and goes on.

        Raises SandboxUnavailable when the disk is nearly full without the child's having written too much.
        """
        process = self._contained.process
        assert process.stdout is not None
        assert process.stderr is not None
        breach: Breach | None = None
        try:
            with selectors.DefaultSelector() as selector:
                for stream in (process.stdout, process.stderr):
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ)
                while process.poll() is None and breach is None:
                    self._hear(selector)
                    breach = self._look()
                    self._tell()
        finally:
            self._contained.kill()
        self._finish_hearing(process.stderr)
        if breach is None and self._contained.ran_out_of_memory():
            breach = "memory"
        seconds = time.monotonic() - self._started
        complaints = self._tail.decode(errors="replace")
        return Ending(process.returncode, breach, seconds, self._peak, complaints, self._turn.refusal)

    def _hear(self, selector: selectors.BaseSelector) -> None:
        if not selector.get_map():
            time.sleep(_LOOK)
            return
        for key, _ in selector.select(_LOOK):
            stream = key.fileobj
            assert not isinstance(stream, int)
            content = os.read(stream.fileno(), _CHUNK)
            if not content:
                selector.unregister(stream)
            elif stream is self._contained.process.stdout:
                self._take(content)
            else:
                self._tail = (self._tail + content)[-_TAIL:]

    def _take(self, content: bytes) -> None:
        """Take lines in; what is longer than any line of ours is dropped."""
        *lines, self._line = (self._line + content).split(b"\n")
        self._line = self._line[: _LONGEST_LINE + 1]
        for line in lines[-100:]:
            if len(line) > _LONGEST_LINE:
                continue
            if is_question(line):
                self._turn.ask(time.monotonic())
            elif progress := read_progress(line, self._heard):
                self._progress = self._heard = progress

    def _finish_hearing(self, stderr: IO[bytes]) -> None:
        """What is left in the pipe when all is over."""
        while content := stderr.read(_CHUNK):
            self._tail = (self._tail + content)[-_TAIL:]

    def _look(self) -> Breach | None:
        """What the child uses too much of, if anything; and the answer to its question, once that can be given."""
        now = time.monotonic()
        if self._turn.waits:
            self._try_to_answer(now)
        if self._turn.is_restless or (now > self._deadline and not self._turn.is_stopped):
            return "timed_out"
        if now >= self._next_look:
            self._next_look = now + _LOOK
            usage = usage_of(self._contained.root)
            self._peak = max(self._peak, usage.memory)
            if usage.memory > self._limits.memory_bytes:
                return "memory"
            if usage.processes > self._limits.processes:
                return "processes"
        if now >= self._next_look_at_files:
            if exceeds(self._folders, self._limits.output_bytes, self._limits.files):
                return "disk"
            want_free_disk(self._folders[0], self._limits)
            # Looking costs time in proportion to the files: at most a tenth of ours goes there.
            self._next_look_at_files = time.monotonic() + max(_LOOK_AT_FILES, 9 * (time.monotonic() - now))
        return None

    def _try_to_answer(self, now: float) -> None:
        """Let the child go on once that can be. While it stands still its clock does too."""
        answered = self._turn.attempt(now)
        if not answered:
            self._progress = Progress(WAITING, 0.0, _WAITING)
            return
        self._progress = Progress("measuring", 0.0)
        self._deadline += self._turn.stood
        if self._turn.answer == "go":
            self._deadline = min(self._deadline, now + self._limits.measuring_seconds)

    def _tell(self) -> None:
        """Tell the caller where the child is, also when nothing changed: the caller may want to stop."""
        now = time.monotonic()
        if now >= self._next_sign:
            self._next_sign = now + _SIGN
            self._on_progress(self._progress.stage, self._progress.share, self._progress.note)
