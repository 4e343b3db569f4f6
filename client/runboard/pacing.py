"""Backoff that all concurrent requests to an API share."""

from __future__ import annotations

import math
import threading
import time

#: Pauses in seconds after consecutive failures, and the longest pause that an API can request.
WAITS = (1, 2, 4, 8, 16, 30, 60)
LONGEST_PAUSE = 120.0


class Pacing:
    """Shared backoff while an API is busy. It stops early if the command ends."""

    def __init__(self) -> None:
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self.waits, self._failures, self._failed_at, self._resume_at = WAITS, 0, 0.0, 0.0
        #: Monotonic time in seconds at which requests in flight are abandoned.
        self.ends_at = math.inf

    def wait(self) -> bool:
        """Wait until requests may be sent. Return False if the command has ended."""
        while not self._stopped.is_set() and (pause := self._resume_at - time.monotonic()) > 0:
            self._stopped.wait(pause)
        return not self._stopped.is_set()

    def succeed(self) -> None:
        with self._lock:
            self._failures = 0

    def pause(self, sent_at: float, seconds: float) -> bool:
        """Pause all requests for at least `seconds`. Return False after too many consecutive failures.

        Failures of requests sent before the last failure are not counted again, because they have the same cause.
        """
        with self._lock:
            if sent_at >= self._failed_at:
                self._failures += 1
                self._failed_at = time.monotonic()
            if self._failures > len(self.waits):
                return False
            pause = max(self.waits[max(self._failures, 1) - 1], min(seconds, LONGEST_PAUSE))
            self._resume_at = max(self._resume_at, time.monotonic() + pause)
            return True

    def stop(self, seconds: float = math.inf) -> None:
        """End all pauses, refuse further requests, and abandon those in flight after `seconds`."""
        self.ends_at = time.monotonic() + seconds
        self._stopped.set()
