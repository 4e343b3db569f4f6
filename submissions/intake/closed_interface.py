"""Runs whose header says `closed_interface: true`: their system says so too, since boards rank those apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from evaluation.archives.compression import open_blocks
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import ProblemCode
from evaluation.runs.header import MAX_HEADER_BYTES, read_header
from leaderboard.models import System
from leaderboard.systems.records import SystemFields
from submissions.core.errors import Refused
from submissions.intake.files import CheckedFile

CLOSED_INTERFACE = ProblemCode("closed_interface", "A run that says that it came from a closed interface, for a system "
    "that does not say that it runs behind somebody's paid API.", "Edit the system to say so, or submit the run as "
    "another system.", "# closed_interface: true")  # fmt: skip


def as_runs_say(system: System | SystemFields, files: Iterable[CheckedFile]) -> System | SystemFields:
    """The system; a new one is marked as closed where the header of a run says so.

    Raises Refused for a system that there is and that says otherwise: its other results would be ranked apart too.
    """
    if system.closed_api:
        return system
    closed = [file.run.name for file in files if _says_closed(_metadata(file))]
    if closed and isinstance(system, System):
        raise Refused.of(
            CLOSED_INTERFACE,
            f"{closed[0]} says that it came from a closed interface, and “{system.name}” does not say that it runs "
            "behind somebody's paid API.",
            "Edit the system to say so, or submit the run as another system.",
        )
    return replace(system, closed_api=True) if closed and isinstance(system, SystemFields) else system


def _metadata(file: CheckedFile) -> dict[str, Any]:
    """What stands before the run's first line; nothing where the file cannot be read, which others say."""
    if file.text is not None:
        return read_header(file.text[:MAX_HEADER_BYTES]).metadata
    start = b""
    try:
        for block in open_blocks(file.run.path):
            start += block
            if len(start) >= MAX_HEADER_BYTES:
                break
    except InvalidContent:
        return {}
    return read_header(start).metadata


def _says_closed(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_says_closed, value))
    if not isinstance(value, dict):
        return False
    return str(value.get("closed_interface")).lower() == "true" or any(map(_says_closed, value.values()))
