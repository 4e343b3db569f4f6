"""Responses to internal faults: an id, and whether trying again helps.

This module must not use the database or the broker, which may be the cause. Pages are therefore rendered without the
request, so that no context processor loads the user.
"""

import logging
import secrets
import sys
from typing import NamedTuple

from django.conf import settings
from django.db.utils import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.template.loader import render_to_string

from leaderboard.core.logging import view_name
from leaderboard.core.storage.disk import is_disk_full

logger = logging.getLogger("runboard.faults")


class Fault(NamedTuple):
    """A kind of fault: API code, HTTP status, seconds until a retry, heading and description."""

    code: str
    status: int
    wait: int
    heading: str
    detail: str


BROKEN = Fault(
    "fault",
    500,
    0,
    "Something broke, and it is our fault",
    "This error is our fault, not a problem with your request. We have logged it; if it persists, send us the id.",
)
DATABASE_AWAY = Fault(
    "unavailable",
    503,
    30,
    "We are briefly unavailable",
    "The database does not answer. Earlier submissions are safe, but this request may be lost. "
    "Try again in a minute: the same file is never accepted twice.",
)
DISK_FULL = Fault(
    "disk_full",
    503,
    300,
    "Our disk is full",
    "The site's disk is full. This is our fault, not a problem with your file. Your request was not stored. "
    "Please try again later.",
)
TOO_SLOW = Fault(
    "too_slow",
    408,
    0,
    "Your request arrived too slowly",
    "The request timed out or the connection broke, and nothing was stored. Send large files in pieces: such uploads "
    "can be resumed.",
)


def classify_fault(error: BaseException | None) -> Fault:
    """Return the kind of fault that an exception indicates."""
    if is_disk_full(error):
        return DISK_FULL
    if isinstance(error, UnreadablePostError):
        return TOO_SLOW
    return DATABASE_AWAY if isinstance(error, (OperationalError, InterfaceError)) else BROKEN


def error_response(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """Log the error under a new id and return the API's error or the error page with that id."""
    fault, identifier = classify_fault(error), secrets.token_hex(4)
    view = view_name(request)
    if fault is TOO_SLOW:  # Caused by the sender.
        logger.info("fault %s at %s %s: %s", identifier, request.method, view, fault.code)
    elif fault is BROKEN:
        logger.error("fault %s at %s %s", identifier, request.method, view, exc_info=error)
    else:  # One line each, because every request fails while the database is unavailable.
        reason = " ".join(str(error).split())
        logger.error("fault %s at %s %s: %s: %s", identifier, request.method, view, fault.code, reason)
    response = _fault_response(request, fault, identifier)
    if fault.wait:
        response.headers["Retry-After"] = str(fault.wait)
    response.headers["Cache-Control"] = "no-store"
    return response


def _fault_response(request: HttpRequest, fault: Fault, identifier: str) -> HttpResponse:
    """Return the API's error for API paths, or else the error page, or plain text if the page cannot be rendered."""
    if request.path.startswith("/api/"):
        detail = f"{fault.detail} Its id is {identifier}."
        body = {"code": fault.code, "detail": detail, "fault": identifier, "problems": []}
        return JsonResponse(body, status=fault.status)
    context = {"kind": fault, "fault": identifier, "site_name": settings.SITE_NAME}
    try:
        return HttpResponse(render_to_string("fault.html", context), status=fault.status)
    except Exception:
        logger.exception("cannot render the page of fault %s", identifier)
        text = f"{fault.heading}\n\n{fault.detail}\nFault {identifier}\n"
        return HttpResponse(text, content_type="text/plain; charset=utf-8", status=fault.status)


def server_error(request: HttpRequest) -> HttpResponse:
    """Handle exceptions outside of views, such as in sessions, accounts, early form parsing, and middleware."""
    return error_response(request, sys.exc_info()[1])
