"""Logging: filters and formatters that add the current request or job to each record, and error reports to Sentry."""

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
    """Return the id of the request being handled; empty outside of a request."""
    return _request.get()


def job_id() -> str:
    """Return the id of the job being run; empty outside of a job."""
    return _job.get()


@contextmanager
def _bind_id(variable: ContextVar[str], identifier: object) -> Iterator[None]:
    """Set the context variable to an identifier within the block."""
    token = variable.set(str(identifier))
    try:
        yield
    finally:
        variable.reset(token)


#: Context managers that attribute log records to a request, or in this thread to a job.
request_context, job_context = partial(_bind_id, _request), partial(_bind_id, _job)


class ContextFilter(logging.Filter):
    """Filter that adds `request_id`, `job_id` and, for readable lines, both in brackets as `context`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes and return True."""
        record.request_id, record.job_id = request, job = request_id(), job_id()
        labels = [f"{kind} {identifier}" for kind, identifier in (("request", request), ("job", job)) if identifier]
        record.context = f" [{', '.join(labels)}]" if labels else ""
        return True


class JsonLines(JsonFormatter):
    """Formatter that writes one JSON object per line, with the time in UTC to the millisecond."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, reserved_attrs=[*RESERVED_ATTRS, "context"], **options)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Format the time such as 2026-03-01T12:00:00.123Z."""
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ClientErrorsAsInfo(logging.Filter):
    """Filter that lowers Django's records of 4xx responses to one line at INFO.

    Client errors need no attention from operators, and visitors can cause many.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Lower a 4xx record to INFO without its traceback, and return whether the record's level is logged."""
        if 400 <= getattr(record, "status_code", 0) < 500 and record.levelno >= logging.WARNING:
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.exc_info = record.exc_text = None
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


class PathsAsViewNames(logging.Filter):
    """Filter that replaces URLs in Django's request records by the name of the view.

    URLs contain invitations and password reset keys. The request is removed as well, because JSON would include it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the URL and return True."""
        request = record.__dict__.pop("request", None)
        if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
            view = view_name(request)
            record.args = tuple(view if argument == request.path else argument for argument in record.args)
        return True


def view_name(request: HttpRequest) -> str:
    """Return the view's name for logs; `-` if the URL matches no view."""
    return request.resolver_match.view_name if request.resolver_match else "-"


#: Attributes of a request that Sentry events include. They exclude bodies, cookies, headers, users, and
#: URLs, which may contain keys.
_REQUEST_ATTRIBUTES = ("method",)


def init_sentry(dsn: str) -> None:
    """Report logged errors and uncaught exceptions to the server of the DSN.

    Local variables are not sent, because the scorer's contain judgments.
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
    """Remove everything that may be secret from an event, and tag it with the ids that our log uses."""
    request = event.pop("request", None) or {}
    event["request"] = {name: request[name] for name in _REQUEST_ATTRIBUTES if name in request}
    for name in ("user", "extra", "breadcrumbs", "server_name", "logentry"):
        event.pop(name, None)
    for exception in (event.get("exception") or {}).get("values", []):
        exception["value"] = ""  # Databases quote rows in their messages. The log contains the full message.
    ids = {"request_id": request_id(), "job_id": job_id()}
    event["tags"] = {name: identifier for name, identifier in ids.items() if identifier}
    return event
