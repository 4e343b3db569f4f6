"""Supervision of a running child: read its output, check its resource use, and end it if it exceeds a limit.

A child asks before it measures. It is stopped while it waits for the machine, and continues with the answer.
"""

import math
import os
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from evaluation.efficiency.measurements import MIN_SECONDS, SHARE_OF_JOB
from evaluation.execution import job
from evaluation.execution.outcome import read_progress
from submissions.sandbox.backends import SandboxedProcess, SandboxLimits, SandboxUnavailable
from submissions.sandbox.machine_lock import WAITING_STAGE, MachineLock
from submissions.sandbox.processes import exceeds_limits, free_bytes, measure_deleted_files, measure_usage

Breach = Literal["timed_out", "memory", "disk", "processes"]
Answer = Literal["go", "skip"]
OnProgress = Callable[[str, float, str], None]

#: Seconds between checks of processes and memory, between checks of files, and between progress reports.
_LOOK = 0.2
_LOOK_AT_FILES = 0.5
_SIGN = 0.25
_CHUNK = 1 << 16
_LONGEST_LINE = 4096
_TAIL = 8192
#: Timeout in seconds for stopping a child, which continues to work under its lock in the meantime.
_STOP_SECONDS = 10.0
#: Maximum number of times that a stopped child may be found running.
_MAX_WAKEUPS = 3
_WAITING = "until nothing else runs on this machine, for timing"


def require_free_disk(folder: Path, limits: SandboxLimits) -> None:
    """Raise SandboxUnavailable if the disk is nearly full, which is not attributed to the model."""
    if free_bytes(folder) < limits.reserve_bytes:
        raise SandboxUnavailable("The disk of this worker is nearly full.")


class MeasuringTurn:
    """A child's turn to measure. Further requests are ignored. `measures` states whether its job measures anything.

    The lock is released only while the child is stopped, so that another process with the exclusive lock is really
    alone.
    """

    def __init__(self, child: SandboxedProcess, lock: MachineLock, limits: SandboxLimits, *, measures: bool) -> None:
        self._child = child
        self._lock = lock
        self._limits = limits
        self._measures = measures
        self._asked_at: float | None = None
        self._stopped_at: float | None = None
        #: Number of times that the child was found running while it was stopped.
        self.wakeups = 0
        self.answer: Answer | None = None
        #: Reason why the measurement was skipped.
        self.refusal = ""
        #: Seconds for which the child was stopped.
        self.stopped_seconds = 0.0

    def ask(self) -> None:
        self._asked_at = self._asked_at or time.monotonic()

    def end(self) -> None:
        """Share the lock again while the child finishes its work."""
        self._lock.share()

    @property
    def was_asked(self) -> bool:
        """Whether the child asked to measure something."""
        return self._measures and self._asked_at is not None

    @property
    def waits(self) -> bool:
        return self._asked_at is not None and self.answer is None

    @property
    def is_stopped(self) -> bool:
        """Whether the child is stopped, so that its time is not counted."""
        return self._stopped_at is not None and self.answer is None

    def attempt(self, now: float) -> bool:
        """Answer the child's request if possible. Return whether it was answered.

        The child is stopped until the lock is free. It must not measure if its job measures nothing, or if it cannot be
        stopped or the lock is not free in time.
        """
        assert self._asked_at is not None
        if not self._measures:
            self._give("skip", now)
        elif self._stopped_at is None:
            if self._child.stop():
                self._stopped_at = now
                self._take_lock(now, 0.0)
            elif now - self._asked_at > _STOP_SECONDS:
                self.refusal = "the processes could not be stopped while waiting for the machine"
                self._give("skip", now)
        elif not self._child.is_stopped():
            self.wakeups += 1
            self._child.stop()
        else:
            self._take_lock(now, now - self._stopped_at)
        return self.answer is not None

    def _take_lock(self, now: float, waited: float) -> None:
        """Acquire the exclusive lock while time remains, then the shared lock as before, and answer the child.

        Without the lock, the child receives no answer yet.
        """
        max_wait = self._limits.waiting_seconds
        if waited <= max_wait:
            if self._lock.try_acquire("exclusive"):
                self._give("go", now)
        elif self._lock.try_acquire("shared"):
            self.refusal = f"the machine was not free within {max_wait / 60:.0f} minutes"
            self._give("skip", now)

    def _give(self, answer: Answer, now: float) -> None:
        """Send the answer to the child, after resuming it if it was stopped."""
        self.answer = answer
        if self._stopped_at is not None:
            self.stopped_seconds = now - self._stopped_at
            self._child.resume()
        self._child.tell(job.ANSWER_GO if answer == "go" else job.ANSWER_SKIP)


class Supervision:
    """Supervision of a child until its end, which is described by its `status` or a `breach` of its limits.

    The child may write to `folders`. `measures` states whether it may ask to measure. With `resumes`, an earlier child
    did part of the work, so that this child's time does not limit the measurement.
    """

    #: Whether the child counts as the cause if the disk is nearly full, because not all of its use can be measured.
    blames_child_for_full_disk = False

    def __init__(
        self,
        child: SandboxedProcess,
        limits: SandboxLimits,
        folders: list[Path],
        lock: MachineLock,
        on_progress: OnProgress,
        *,
        measures: bool,
        resumes: bool = False,
    ) -> None:
        self._child = child
        self._limits = limits
        self._folders = folders
        self.turn = MeasuringTurn(child, lock, limits, measures=measures)
        self._on_progress = on_progress
        self._started_at = time.monotonic()
        self._ended_at: float | None = None
        self._deadline = self._started_at + limits.wall_clock_seconds
        self._resumes = resumes
        self._timed_until = math.inf
        self._progress = self._heard = job.Progress("loading", 0.0)
        self._line = b""
        #: Last bytes of the child's standard error.
        self.tail = b""
        #: Peak memory in bytes.
        self.peak_memory = 0
        #: Limit that the child exceeded.
        self.breach: Breach | None = None
        self._next_look = self._next_look_at_files = self._next_sign = 0.0
        self._awaits_shard = False

    def run(self) -> None:
        """Supervise the child until it has ended. If `on_progress` raises, end the child and propagate the exception.

        Raises SandboxUnavailable if the disk is nearly full although the child is within its limits. It exceeds them if
        it asked to measure before, because there is a result then, and if it is an image.
        """
        try:
            self._watch()
        finally:
            self.end()

    def encode_shard(self, number: int, on_progress: OnProgress) -> bool:
        """Let the child encode a shard, with a new time limit, and supervise it. Return whether it succeeded."""
        self._started_at, self._on_progress = time.monotonic(), on_progress
        self._deadline = self._started_at + self._limits.wall_clock_seconds
        self._progress = self._heard = job.Progress("loading", 0.0)
        self._awaits_shard = True
        self._child.tell(str(number))
        self._watch()
        return not self._awaits_shard and self.breach is None

    def end(self) -> None:
        """End the child, if it still runs, and read the rest of its errors. Record a breach if it ran out of memory."""
        process = self._child.process
        assert process.stderr is not None
        self._child.kill()
        self._ended_at = time.monotonic()
        while content := process.stderr.read(_CHUNK):  # drain the pipe
            self.tail = (self.tail + content)[-_TAIL:]
        if self.breach is None and self._child.ran_out_of_memory():
            self.breach = "memory"

    def _watch(self) -> None:
        """Supervise the child until it has ended, exceeds a limit, or has encoded the requested shard."""
        process = self._child.process
        assert process.stdout is not None
        assert process.stderr is not None
        awaits_shard = self._awaits_shard
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while process.poll() is None and self.breach is None and self._awaits_shard == awaits_shard:
                self._read_output(selector)
                self.breach = self._check_usage()
                self._report()

    @property
    def seconds(self) -> float:
        """Seconds that the child has run: on its last shard if it encodes shards, otherwise in total."""
        return (self._ended_at or time.monotonic()) - self._started_at

    @property
    def status(self) -> int | None:
        """Exit status of the child, or None while it runs."""
        return self._child.process.returncode

    def _read_output(self, selector: selectors.BaseSelector) -> None:
        """Wait briefly for output of the child. Parse standard output, and keep the end of standard error in `tail`."""
        if not selector.get_map():
            time.sleep(_LOOK)
            return
        for key, _ in selector.select(_LOOK):
            stream = key.fileobj
            assert not isinstance(stream, int)
            content = os.read(stream.fileno(), _CHUNK)
            if not content:
                selector.unregister(stream)
            elif stream is self._child.process.stdout:
                self._read_lines(content)
            else:
                self.tail = (self.tail + content)[-_TAIL:]

    def _read_lines(self, content: bytes) -> None:
        """Process the messages and progress in the child's output, without overlong lines and all but the last 100."""
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
        """Return the limit that the child exceeds, if any, and answer its question if possible.

        Raises SandboxUnavailable if the disk is nearly full and there is no result yet.
        """
        now = time.monotonic()
        if self.turn.waits:
            self._answer_question(now)
        is_late = now > min(self._deadline, self._timed_until) and not self.turn.is_stopped
        if self.turn.wakeups > _MAX_WAKEUPS or is_late:
            return "timed_out"
        if now >= self._next_look:
            self._next_look = now + _LOOK
            threads, memory = measure_usage(self._child.root, self._limits.processes)
            self.peak_memory = max(self.peak_memory, memory)
            if memory > self._limits.memory_bytes:
                return "memory"
            if threads > self._limits.processes:
                return "processes"
        if now >= self._next_look_at_files:
            deleted_bytes = measure_deleted_files(self._child.root, self._limits.processes)
            if exceeds_limits(self._folders, self._limits.output_bytes - deleted_bytes, self._limits.files):
                return "disk"
            if not self.turn.was_asked and not self.blames_child_for_full_disk:
                require_free_disk(self._folders[0], self._limits)
            elif free_bytes(self._folders[0]) < self._limits.reserve_bytes:
                return "disk"  # a run that already exists counts
            # The time of checks is proportional to the number of files; spend at most a tenth of the time on them.
            self._next_look_at_files = time.monotonic() + max(_LOOK_AT_FILES, 9 * (time.monotonic() - now))
        return None

    def _answer_question(self, now: float) -> None:
        """Answer the child's request to measure if possible. Time for which it was stopped is not counted.

        After the answer "go", the measurement has a time limit of its own.
        """
        is_answered = self.turn.attempt(now)
        if not is_answered:
            self._progress = job.Progress(WAITING_STAGE, 0.0, _WAITING)
            return
        self._progress = job.Progress("measuring", 0.0)
        self._deadline += self.turn.stopped_seconds
        if self.turn.answer == "go":
            # Allow twice the expected duration of the measurement, which depends on the time worked.
            worked_seconds, longest = now - self._started_at - self.turn.stopped_seconds, self._limits.measuring_seconds
            expected_limit = longest if self._resumes else 2 * max(MIN_SECONDS, SHARE_OF_JOB * worked_seconds)
            self._timed_until = now + min(longest, expected_limit)

    def _report(self) -> None:
        """Report progress regularly, even without changes, because the caller may want to stop the child."""
        now = time.monotonic()
        if now >= self._next_sign:
            self._next_sign = now + _SIGN
            self._on_progress(self._progress.stage, self._progress.share, self._progress.note)
