"""The child's side of the conversation: progress out, and the one question it asks."""

from __future__ import annotations

import os
import sys
from time import monotonic

from evaluation.execution.job import ANSWER_GO, ASK_TO_MEASURE, Progress

#: Seconds between two lines of progress of one stage.
_PAUSE = 0.2


class Channel:
    """Lines to the parent on what was standard output; whatever a library prints goes to standard error instead."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._stage = ""
        self._told = -_PAUSE

    def report(self, stage: str, share: float) -> None:
        """Tell the stage and its share: at once when the stage changes or ends, else a few times a second."""
        now = monotonic()
        if stage == self._stage and share < 1 and now - self._told < _PAUSE:
            return
        self._stage, self._told = stage, now
        self._say(Progress(stage, share).to_json())

    def ask_to_measure(self) -> bool:
        """Wait for the machine to be free; False if it is not to be. Raises EOFError when the parent is gone."""
        self._say(ASK_TO_MEASURE)
        answer = sys.stdin.readline()
        if not answer:
            raise EOFError("nobody answered")
        return answer.strip() == ANSWER_GO

    def _say(self, line: str) -> None:
        self._lines.write(line + "\n")
        self._lines.flush()
