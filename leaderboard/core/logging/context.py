"""What a log line belongs to: the request that is answered, the job that is done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

_request: ContextVar[str] = ContextVar("request_id", default="")
_job: ContextVar[str] = ContextVar("job_id", default="")


def request_id() -> str:
    """The id of the request that is answered here, empty outside of one."""
    return _request.get()


def job_id() -> str:
    """The id of the job that is done here, empty outside of one."""
    return _job.get()


@contextmanager
def request_context(identifier: str) -> Iterator[None]:
    """Lines written in the block belong to this request."""
    token = _request.set(identifier)
    try:
        yield
    finally:
        _request.reset(token)


@contextmanager
def job_context(identifier: int) -> Iterator[None]:
    """Lines written in the block, in this thread, belong to this job."""
    token = _job.set(str(identifier))
    try:
        yield
    finally:
        _job.reset(token)


class ContextFilter(logging.Filter):
    """Gives each record `request_id` and `job_id`, and `context`: both in brackets, for people's eyes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True."""
        record.request_id, record.job_id = request, job = request_id(), job_id()
        named = [
            f"{kind} {identifier}" for kind, identifier in (("request", request), ("job", job)) if identifier
        ]
        record.context = f" [{', '.join(named)}]" if named else ""
        return True


class JsonLines(JsonFormatter):
    """An object a line, with its time in UTC to the millisecond and without what the other format is helped by."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, reserved_attrs=[*RESERVED_ATTRS, "context"], **options)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Such as 2026-03-01T12:00:00.123Z."""
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
