"""Telling Sentry of faults: the traceback and the ids, nothing of what people sent."""

from __future__ import annotations

from typing import Any

from leaderboard.core.logging.context import job_id, request_id

#: What an event may say of a request. Bodies, cookies, headers, addresses with keys in them and people stay here.
_OF_REQUESTS = ("method",)


def init_sentry(dsn: str, environment: str) -> None:
    """Send what is logged as an error, and exceptions that nobody caught, to the server that the DSN names.

    Local variables are not sent: the scorer's hold judgements.
    """
    import sentry_sdk

    sentry_sdk.init(
        dsn=dsn,
        environment=environment,
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
