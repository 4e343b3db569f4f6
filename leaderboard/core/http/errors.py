"""What is answered when something of ours fails: an id, and whether trying again helps.

Nothing here asks the database or the broker, which may be what fails: not the page either, which is rendered without
the request, so that no context processor looks for who is signed in.
"""

import logging
import secrets
import sys
from typing import NamedTuple

from django.conf import settings
from django.db.utils import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.template.loader import render_to_string

from leaderboard.core.logging import view_of
from leaderboard.core.storage.disk import is_disk_full

logger = logging.getLogger("runboard.faults")


class Fault(NamedTuple):
    """A kind of fault: the API's code, the answer's status, when to come back (seconds), what is said of it."""

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
    "This is a fault of ours, not of your request. We have written down what happened; if it persists, tell us the id.",
)
AWAY = Fault(
    "unavailable",
    503,
    30,
    "We are briefly away",
    "The database does not answer. What was accepted before is kept; what you sent now may not be. "
    "Try again in a minute: the same file is never taken twice.",
)
DISK_FULL = Fault(
    "disk_full",
    503,
    300,
    "Our disk is full",
    "The site's disk is full: a fault of ours, not of your file. Nothing of what you sent was kept. "
    "Please try again later.",
)
TOO_SLOW = Fault(
    "too_slow",
    408,
    0,
    "Your request came too slowly",
    "What you sent did not come within its time, or the connection broke: nothing of it was kept. Send large files in "
    "pieces, which go on where they broke off.",
)


def kind_of(error: BaseException | None) -> Fault:
    """Which kind of fault an exception is."""
    if is_disk_full(error):
        return DISK_FULL
    if isinstance(error, UnreadablePostError):
        return TOO_SLOW
    return AWAY if isinstance(error, (OperationalError, InterfaceError)) else BROKEN


def error_response(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """The API's error or the page, under an id that the log has too."""
    fault, identifier = kind_of(error), secrets.token_hex(4)
    view = view_of(request)
    if fault is TOO_SLOW:  # the sender's affair
        logger.info("fault %s at %s %s: %s", identifier, request.method, view, fault.code)
    elif fault is BROKEN:
        logger.error("fault %s at %s %s", identifier, request.method, view, exc_info=error)
    else:  # one line each: while the database is away, every request comes here
        reason = " ".join(str(error).split())
        logger.error("fault %s at %s %s: %s: %s", identifier, request.method, view, fault.code, reason)
    response = _answer(request, fault, identifier)
    if fault.wait:
        response.headers["Retry-After"] = str(fault.wait)
    response.headers["Cache-Control"] = "no-store"
    return response


def _answer(request: HttpRequest, fault: Fault, identifier: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        detail = f"{fault.detail} Its id is {identifier}."
        body = {"code": fault.code, "detail": detail, "fault": identifier, "problems": []}
        return JsonResponse(body, status=fault.status)
    told = {"kind": fault, "fault": identifier, "site_name": settings.SITE_NAME}
    try:
        return HttpResponse(render_to_string("fault.html", told), status=fault.status)
    except Exception:
        logger.exception("the page of fault %s could not be made", identifier)
        text = f"{fault.heading}\n\n{fault.detail}\nFault {identifier}\n"
        return HttpResponse(text, content_type="text/plain; charset=utf-8", status=fault.status)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler of what no view raised: sessions, accounts, forms read before the view, and other middleware."""
    return error_response(request, sys.exc_info()[1])
