"""A child's turn to measure: it asks, is stopped while it waits for the machine, and goes on with an answer."""

from __future__ import annotations

from typing import Literal

from evaluation.execution.job import ANSWER_GO, ANSWER_SKIP
from submissions.sandbox.backends import Contained
from submissions.sandbox.limits import Limits
from submissions.sandbox.machine_lock import MachineLock

Answer = Literal["go", "skip"]

#: Seconds that a child is given to be stopped; it works on meanwhile, under the lock that it has.
_PATIENCE = 10.0
#: How often it may be found running while it is stopped.
_MOST_STIRS = 3


class Turn:
    """One child's turn; a second question is not heard. `wanted` is whether its job has anything to measure.

    The lock is given up only while the child stands still, so that whoever has the machine alone does have it alone.
    """

    def __init__(self, contained: Contained, lock: MachineLock, limits: Limits, *, wanted: bool) -> None:
        self._contained = contained
        self._lock = lock
        self._limits = limits
        self._wanted = wanted
        self._asked_at: float | None = None
        self._stopped_at: float | None = None
        self._stirs = 0
        self.answer: Answer | None = None
        #: Why there is no measurement, where the child was told to do without.
        self.refusal = ""
        #: Seconds that the child stood still.
        self.stood = 0.0

    def ask(self, now: float) -> None:
        """Hear the child's question."""
        if self._asked_at is None:
            self._asked_at = now

    @property
    def waits(self) -> bool:
        """Whether the child has asked and has no answer yet."""
        return self._asked_at is not None and self.answer is None

    @property
    def is_stopped(self) -> bool:
        """Whether the child stands still, and its clock with it."""
        return self._stopped_at is not None and self.answer is None

    @property
    def is_restless(self) -> bool:
        """Whether the child had itself woken while it was stopped, again and again."""
        return self._stirs > _MOST_STIRS

    def attempt(self, now: float) -> bool:
        """Answer the child if that is possible now; whether it was."""
        assert self._asked_at is not None
        if not self._wanted:
            self._say("skip", now)
        elif self._stopped_at is None:
            if self._contained.stop():
                self._stopped_at = now
                self._take(now, 0.0)
            elif now - self._asked_at > _PATIENCE:
                self.refusal = "its processes could not be stopped while it waited for the machine"
                self._say("skip", now)
        elif not self._contained.is_stopped():
            self._stirs += 1
            self._contained.stop()
        else:
            self._take(now, now - self._stopped_at)
        return self.answer is not None

    def _take(self, now: float, waited: float) -> None:
        """The machine alone while there is time for that, then a share of it, as before."""
        longest = self._limits.waiting_seconds
        if waited <= longest:
            if self._lock.try_for("exclusive"):
                self._say("go", now)
        elif self._lock.try_for("shared"):
            self.refusal = f"the machine was not free for it within {longest / 60:.0f} minutes"
            self._say("skip", now)

    def _say(self, answer: Answer, now: float) -> None:
        self.answer = answer
        if self._stopped_at is not None:
            self.stood = now - self._stopped_at
            self._contained.go_on()
        stdin = self._contained.process.stdin
        assert stdin is not None
        try:
            stdin.write(f"{ANSWER_GO if answer == 'go' else ANSWER_SKIP}\n".encode())
            stdin.flush()
        except BrokenPipeError:  # it has ended, or closed the pipe: its end tells
            return
