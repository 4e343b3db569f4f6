"""WSGI application for gunicorn: Django's, with error responses for failures outside of Django and slow-body limits.

Django converts exceptions of its middleware and views to responses. Code before and after them (closing old
connections at the start and end of a request, signal handlers, logging of errors) can fail outside of that, and
gunicorn would then send its own 500 response without an id.
"""

import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.util import setup_testing_defaults

from django.core.handlers.wsgi import WSGIRequest
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse

from leaderboard.core.http import errors
from leaderboard.core.http.middleware import policy_headers
from leaderboard.core.http.site_url import default_site_address
from leaderboard.core.http.slow_requests import watch_body

logger = logging.getLogger("runboard.faults")
#: Seconds at startup for loading boards of each kind; visitors trigger the rest.
_SECONDS = 0.1


class FaultTolerantApplication:
    """WSGI wrapper that responds to exceptions of the application."""

    def __init__(self, application: WSGIApplication) -> None:
        self.application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handle a request."""
        stop_watching = watch_body(environ)
        try:
            answer = self.application(environ, start_response)
        except Exception as error:
            logger.exception("exception outside of Django's error handling")
            _drop_connections()
            response = _answer(environ, error)
            status = f"{response.status_code} {response.reason_phrase}"
            # No data has been sent yet, so the headers are replaced.
            start_response(status, list(response.items()), sys.exc_info())
            return [response.content]
        finally:
            stop_watching()
        if isinstance(answer, HttpResponseBase):
            _close_quietly(answer)
        return answer

    def warm_up(self) -> None:
        """Import views, and load templates and some boards, as the first request of each process would.

        It is meant for servers that fork later, so no connection remains open. An unavailable database does not
        prevent the start.
        """
        try:
            for kind, slug in dict(reversed(read_boards(_SECONDS))).items():  # The first of each kind.
                self._visit(reverse(kind, args=[slug]))
        except Exception:
            logger.exception("cannot preload pages for the first visitors")
        finally:
            connections.close_all()

    def _visit(self, path: str) -> None:
        """Render a page and discard the response."""
        scheme, _, host = default_site_address().partition("://")
        environ: WSGIEnvironment = {"PATH_INFO": path, "HTTP_HOST": host, "wsgi.url_scheme": scheme}
        setup_testing_defaults(environ)
        answer = self.application({**environ, "HTTP_X_FORWARDED_PROTO": scheme}, lambda *_: lambda _: None)
        if isinstance(answer, HttpResponseBase):
            answer.close()


def _answer(environ: WSGIEnvironment, error: Exception) -> HttpResponse:
    """Return the usual error response; if that fails, a line of text without any dependencies."""
    try:
        response = errors.error_response(WSGIRequest(environ), error)
    except Exception:
        logger.exception("cannot render the response to a fault")
        fault = errors.classify_fault(error)
        response = HttpResponse(f"{fault.heading}\n", content_type="text/plain", status=fault.status)
    for name, value in policy_headers().items():
        response.headers[name] = value
    response.headers["Content-Length"] = str(len(response.content))
    return response


def _close_quietly(response: HttpResponseBase) -> None:
    """Log exceptions while closing a response that has been sent, so that gunicorn does not drop the connection."""
    close = response.close

    def closing() -> None:
        try:
            close()
        except Exception:
            logger.exception("fault after the response was sent")
            _drop_connections()

    response.close = closing  # type: ignore[method-assign]


def _drop_connections() -> None:
    """Discard this thread's database connections: a broken one would make every later request fail."""
    for connection in connections.all(initialized_only=True):
        with suppress(Exception):
            connection.close()
        if not connection.in_atomic_block:
            connection.connection = None


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")
_django = get_wsgi_application()

from leaderboard.boards.pages import read_boards  # noqa: E402  models, after Django is set up

application = FaultTolerantApplication(_django)
policy_headers()  # Computed now, while everything works.
