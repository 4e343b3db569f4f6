"""How much a sandboxed child may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from django.conf import settings

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a child may use before it is ended. Bytes, seconds and counts.

    `processes` counts threads. `output_bytes` and `files` are of everything it writes, `scratch_bytes` of its /tmp,
    which lies in memory; `waiting_seconds` is how long it may wait for the machine to itself, and `measuring_seconds`
    how long it may have it; below `reserve_bytes` of
    free disk it is ended whatever it wrote, which is then no fault of its own.
    """

    memory_bytes: int
    wall_clock_seconds: float
    output_bytes: int
    processes: int = 1024
    open_files: int = 4096
    files: int = 20_000
    scratch_bytes: int = 512 * MEBIBYTE
    waiting_seconds: float = 1800
    measuring_seconds: float = 3600
    reserve_bytes: int = 512 * MEBIBYTE

    @property
    def most_processes(self) -> int:
        """Where the kernel refuses another process: above `processes`, so that the parent sees that limit passed."""
        return self.processes + 32

    @classmethod
    def from_settings(cls) -> Self:
        """The limits that MODEL_MEMORY_BYTES, MODEL_WALL_CLOCK_SECONDS, … give."""
        return cls(
            memory_bytes=settings.MODEL_MEMORY_BYTES,
            wall_clock_seconds=settings.MODEL_WALL_CLOCK_SECONDS,
            output_bytes=settings.MODEL_OUTPUT_BYTES,
            waiting_seconds=settings.MEASURING_WAIT_SECONDS,
        )
