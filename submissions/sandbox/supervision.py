"""Beside a running child: read what it says, look at what it uses, and end it when that is too much.

A child that has something to measure asks for its turn: it is stopped while it waits for the machine, and goes on with
an answer.
"""

import math
import os
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from evaluation.efficiency.measurements import LEAST_SECONDS, SHARE_OF_JOB
from evaluation.execution import job
from evaluation.execution.outcome import read_progress
from submissions.sandbox.backends import SandboxedProcess, SandboxLimits, SandboxUnavailable
from submissions.sandbox.machine_lock import WAITING, MachineLock
from submissions.sandbox.processes import exceeds_limits, free_bytes, usage_of

Breach = Literal["timed_out", "memory", "disk", "processes"]
Answer = Literal["go", "skip"]
OnProgress = Callable[[str, float, str], None]

#: Seconds between two looks at what is used, at what is written, and between two signs of life to the caller.
_LOOK = 0.2
_LOOK_AT_FILES = 0.5
_SIGN = 0.25
_CHUNK = 1 << 16
_LONGEST_LINE = 4096
_TAIL = 8192
#: Seconds that a child is given to be stopped; it works on meanwhile, under the lock that it has.
_STOP_SECONDS = 10.0
#: How often it may be found running while it is stopped.
_MOST_STIRS = 3
_WAITING = "until nothing else runs on this machine, to be timed"


def require_free_disk(folder: Path, limits: SandboxLimits) -> None:
    """Raise SandboxUnavailable where the disk is nearly full: who filled it is not known, so no model is to blame."""
    if free_bytes(folder) < limits.reserve_bytes:
        raise SandboxUnavailable("The disk of this worker is nearly full.")


class MeasuringTurn:
    """One child's turn; a second question is not heard. `wanted` is whether its job has anything to measure.

    The lock is given up only while the child stands still, so that whoever has the machine alone does have it alone.
    """

    def __init__(
        self, contained: SandboxedProcess, lock: MachineLock, limits: SandboxLimits, *, wanted: bool
    ) -> None:
        self._contained = contained
        self._lock = lock
        self._limits = limits
        self._wanted = wanted
        self._asked_at: float | None = None
        self._stopped_at: float | None = None
        #: How often the child had itself woken while it was stopped.
        self.stirs = 0
        self.answer: Answer | None = None
        #: Why there is no measurement, where the child was told to do without.
        self.refusal = ""
        #: Seconds that the child stood still.
        self.stood = 0.0

    def ask(self) -> None:
        """Note the child's question, the first one."""
        self._asked_at = self._asked_at or time.monotonic()

    def end(self) -> None:
        """Let others work beside what the child still has to do."""
        self._lock.share()

    @property
    def was_asked(self) -> bool:
        """Whether the child had something to measure, and asked."""
        return self._wanted and self._asked_at is not None

    @property
    def waits(self) -> bool:
        """Whether the child has asked and has no answer yet."""
        return self._asked_at is not None and self.answer is None

    @property
    def is_stopped(self) -> bool:
        """Whether the child stands still, and its clock with it."""
        return self._stopped_at is not None and self.answer is None

    def attempt(self, now: float) -> bool:
        """Answer the child if that is possible now; whether it was."""
        assert self._asked_at is not None
        if not self._wanted:
            self._give("skip", now)
        elif self._stopped_at is None:
            if self._contained.stop():
                self._stopped_at = now
                self._take_lock(now, 0.0)
            elif now - self._asked_at > _STOP_SECONDS:
                self.refusal = "its processes could not be stopped while it waited for the machine"
                self._give("skip", now)
        elif not self._contained.is_stopped():
            self.stirs += 1
            self._contained.stop()
        else:
            self._take_lock(now, now - self._stopped_at)
        return self.answer is not None

    def _take_lock(self, now: float, waited: float) -> None:
        """The machine alone while there is time for that, then a share of it, as before."""
        longest = self._limits.waiting_seconds
        if waited <= longest:
            if self._lock.try_acquire("exclusive"):
                self._give("go", now)
        elif self._lock.try_acquire("shared"):
            self.refusal = f"the machine was not free for it within {longest / 60:.0f} minutes"
            self._give("skip", now)

    def _give(self, answer: Answer, now: float) -> None:
        self.answer = answer
        if self._stopped_at is not None:
            self.stood = now - self._stopped_at
            self._contained.resume()
        self._contained.tell(job.ANSWER_GO if answer == "go" else job.ANSWER_SKIP)


class Supervision:
    """One child from its start to its end, and then how it ended: by its `status`, or for a `breach` of its limits.

    `folders` are those it may write to; `measures` is whether it may ask. `resumes`: an earlier child did a part of its
    work, so that its own time does not say how long it may measure.
    """

    def __init__(
        self,
        contained: SandboxedProcess,
        limits: SandboxLimits,
        folders: list[Path],
        lock: MachineLock,
        on_progress: OnProgress,
        *,
        measures: bool,
        resumes: bool = False,
    ) -> None:
        self._contained = contained
        self._limits = limits
        self._folders = folders
        self.turn = MeasuringTurn(contained, lock, limits, wanted=measures)
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._ended: float | None = None
        self._deadline = self._started + limits.wall_clock_seconds
        self._resumes = resumes
        self._timed_until = math.inf
        self._progress = self._heard = job.Progress("loading", 0.0)
        self._line = b""
        #: The end of what the child wrote to its standard error.
        self.tail = b""
        #: The most memory found, in bytes.
        self.peak_memory = 0
        #: What the child used too much of.
        self.breach: Breach | None = None
        self._next_look = self._next_look_at_files = self._next_sign = 0.0
        self._awaits_shard = False

    def run(self) -> None:
        """Stay with the child until it has ended. What `on_progress` raises ends it, and goes on.

        Raises SandboxUnavailable when the disk is nearly full without the child's having written too much, and before
        it asked to measure: then there is a result.
        """
        try:
            self._watch()
        finally:
            self.end()

    def encode_shard(self, number: int, on_progress: OnProgress) -> bool:
        """Have the child encode a shard, with all the time there is for it. Return whether it is there."""
        self._started, self._on_progress = time.monotonic(), on_progress
        self._deadline = self._started + self._limits.wall_clock_seconds
        self._progress = self._heard = job.Progress("loading", 0.0)
        self._awaits_shard = True
        self._contained.tell(str(number))
        self._watch()
        return not self._awaits_shard and self.breach is None

    def end(self) -> None:
        """End the child, if it has not ended by itself, and note how it ended."""
        process = self._contained.process
        assert process.stderr is not None
        self._contained.kill()
        self._ended = time.monotonic()
        while content := process.stderr.read(_CHUNK):  # what is left in the pipe
            self.tail = (self.tail + content)[-_TAIL:]
        if self.breach is None and self._contained.ran_out_of_memory():
            self.breach = "memory"

    def _watch(self) -> None:
        """Stay with the child until it has ended, uses too much, or has encoded the shard that is waited for."""
        process = self._contained.process
        assert process.stdout is not None
        assert process.stderr is not None
        awaited = self._awaits_shard
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while process.poll() is None and self.breach is None and self._awaits_shard == awaited:
                self._read_output(selector)
                self.breach = self._check_usage()
                self._report()

    @property
    def seconds(self) -> float:
        """How long the child has been at work, or at work on its last shard."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def status(self) -> int | None:
        """The exit status, once the child has ended."""
        return self._contained.process.returncode

    def _read_output(self, selector: selectors.BaseSelector) -> None:
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
                self._read_lines(content)
            else:
                self.tail = (self.tail + content)[-_TAIL:]

    def _read_lines(self, content: bytes) -> None:
        """Take lines in; what is longer than any line of ours is dropped."""
        *lines, self._line = (self._line + content).split(b"\n")
        self._line = self._line[: _LONGEST_LINE + 1]
        for line in lines[-100:]:
            if len(line) > _LONGEST_LINE:
                continue
            text = line.strip().decode("ascii", "replace")
            if text == job.ASK_TO_MEASURE:
                self.turn.ask()
            elif text == job.MEASURED:
                self.turn.end()
                self._timed_until = math.inf
            elif text == job.SHARD_DONE:
                self._awaits_shard = False
            elif progress := read_progress(line, self._heard):
                self._progress = self._heard = progress

    def _check_usage(self) -> Breach | None:
        """What the child uses too much of, if anything; and the answer to its question, once that can be given."""
        now = time.monotonic()
        if self.turn.waits:
            self._answer_question(now)
        late = now > min(self._deadline, self._timed_until) and not self.turn.is_stopped
        if self.turn.stirs > _MOST_STIRS or late:
            return "timed_out"
        if now >= self._next_look:
            self._next_look = now + _LOOK
            threads, memory = usage_of(self._contained.root)
            self.peak_memory = max(self.peak_memory, memory)
            if memory > self._limits.memory_bytes:
                return "memory"
            if threads > self._limits.processes:
                return "processes"
        if now >= self._next_look_at_files:
            if exceeds_limits(self._folders, self._limits.output_bytes, self._limits.files):
                return "disk"
            if not self.turn.was_asked:
                require_free_disk(self._folders[0], self._limits)
            elif free_bytes(self._folders[0]) < self._limits.reserve_bytes:
                return "disk"  # its run is there, and counts
            # Looking costs time in proportion to the files: at most a tenth of ours goes there.
            self._next_look_at_files = time.monotonic() + max(_LOOK_AT_FILES, 9 * (time.monotonic() - now))
        return None

    def _answer_question(self, now: float) -> None:
        """Let the child go on once that can be. While it stands still its clock does too."""
        answered = self.turn.attempt(now)
        if not answered:
            self._progress = job.Progress(WAITING, 0.0, _WAITING)
            return
        self._progress = job.Progress("measuring", 0.0)
        self._deadline += self.turn.stood
        if self.turn.answer == "go":
            # It may have the machine twice as long as it should, by the seconds that it has worked.
            worked, longest = now - self._started - self.turn.stood, self._limits.measuring_seconds
            usual = longest if self._resumes else 2 * max(LEAST_SECONDS, SHARE_OF_JOB * worked)
            self._timed_until = now + min(longest, usual)

    def _report(self) -> None:
        """Tell the caller where the child is, also when nothing changed: the caller may want to stop."""
        now = time.monotonic()
        if now >= self._next_sign:
            self._next_sign = now + _SIGN
            self._on_progress(self._progress.stage, self._progress.share, self._progress.note)
