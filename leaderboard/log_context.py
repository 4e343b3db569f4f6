"""What a log line belongs to: the request that is answered, the job that is done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_request: ContextVar[str] = ContextVar("request_id", default="")
_job: ContextVar[str] = ContextVar("job_id", default="")


def request_id() -> str:
    """The id of the request that is answered here, empty outside of one."""
    return _request.get()


def job_id() -> str:
    """The id of the job that is done here, empty outside of one."""
    return _job.get()


@contextmanager
def of_request(identifier: str) -> Iterator[None]:
    """Lines written in the block belong to this request."""
    token = _request.set(identifier)
    try:
        yield
    finally:
        _request.reset(token)


@contextmanager
def of_job(identifier: int) -> Iterator[None]:
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
