"""What is written to the log, and to what each line belongs: the request that is answered, or the job that is done."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.http import HttpRequest
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
def _bound(variable: ContextVar[str], identifier: object) -> Iterator[None]:
    token = variable.set(str(identifier))
    try:
        yield
    finally:
        variable.reset(token)


#: Lines written in the block belong to this request, or in this thread to this job.
request_context, job_context = partial(_bound, _request), partial(_bound, _job)


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


class ClientErrorsAsInfo(logging.Filter):
    """Puts what Django says of an answer 4xx at INFO, in one line: a visitor's mistake is nothing that an operator must
    look at, and a visitor could write many."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lower the record's level; False where that level is not logged."""
        if 400 <= getattr(record, "status_code", 0) < 500 and record.levelno >= logging.WARNING:
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.exc_info = record.exc_text = None
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


class PathsAsViewNames(logging.Filter):
    """Puts the view's name for the address in what Django says of a request.

    Addresses carry invitations and keys to reset passwords. The request itself goes too, which JSON would spell out.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; always True."""
        request = record.__dict__.pop("request", None)
        if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
            view = view_of(request)
            record.args = tuple(view if argument == request.path else argument for argument in record.args)
        return True


def view_of(request: HttpRequest) -> str:
    """What a log may call the address: the view's name, `-` where there is none."""
    return request.resolver_match.view_name if request.resolver_match else "-"


#: What an event may say of a request. Bodies, cookies, headers, addresses with keys in them and people stay here.
_OF_REQUESTS = ("method",)


def init_sentry(dsn: str) -> None:
    """Send what is logged as an error, and exceptions that nobody caught, to the server that the DSN names.

    Local variables are not sent: the scorer's hold judgements.
    """
    import sentry_sdk

    sentry_sdk.init(
        dsn=dsn,
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        max_breadcrumbs=0,
        before_send=_scrub_event,
    )


def _scrub_event(event: Any, hint: dict[str, Any]) -> Any:
    """The event without what may hold a secret, and with the ids under which our own log knows it."""
    request = event.pop("request", None) or {}
    event["request"] = {name: request[name] for name in _OF_REQUESTS if name in request}
    for name in ("user", "extra", "breadcrumbs", "server_name", "logentry"):
        event.pop(name, None)
    for exception in (event.get("exception") or {}).get("values", []):
        exception["value"] = ""  # a database quotes rows in its messages; the log has them whole
    ids = {"request_id": request_id(), "job_id": job_id()}
    event["tags"] = {name: identifier for name, identifier in ids.items() if identifier}
    return event
