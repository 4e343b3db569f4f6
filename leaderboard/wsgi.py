"""The WSGI application that gunicorn serves: Django's, an answer of ours where Django itself fails around it, and an
end to bodies that come too slowly.

Django turns what its middleware and views raise into answers. What is done before and after them (connections that are
too old are looked at when a request begins and when it ends, the error is told to whoever listens, the refusal is
logged) fails outside of that, and gunicorn would answer for us: 500, without an id, in a text of its own.
"""

import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.util import setup_testing_defaults

from django.core.handlers.wsgi import WSGIRequest
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse

from leaderboard.core.http import errors
from leaderboard.core.http.middleware import policy_headers
from leaderboard.core.http.site_url import own_address
from leaderboard.core.http.slow_requests import watch_body

logger = logging.getLogger("runboard.faults")
#: So long a start may take to read boards, and again to make their pages; visitors do the others.
_SECONDS = 2.0


class Answering:
    """The application within, with an answer for what comes out of it as an exception."""

    def __init__(self, within: WSGIApplication) -> None:
        self.within = within

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass the request on."""
        over = watch_body(environ)
        try:
            answer = self.within(environ, start_response)
        except Exception as error:
            logger.exception("outside of Django's handling of errors")
            _drop_connections()
            answered = _answer(environ, error)
            status = f"{answered.status_code} {answered.reason_phrase}"
            # Nothing was sent yet: headers that were begun are replaced.
            start_response(status, list(answered.items()), sys.exc_info())
            return [answered.content]
        finally:
            over()
        if isinstance(answer, HttpResponseBase):
            _close_quietly(answer)
        return answer

    def warm_up(self) -> None:
        """Do once what the first request of every process would: import views, load templates, read boards, make pages.

        For a server that forks afterwards: no connection stays open. A database that is away stops no start.
        """
        try:
            read = read_boards(_SECONDS)
            end = monotonic() + _SECONDS
            for kind, slug in dict.fromkeys((*dict(reversed(read)).items(), *read)):  # one of each kind first
                if monotonic() < end:
                    self._visit(reverse(kind, args=[slug]))
        except Exception:
            logger.exception("what the first visitors need could not be loaded before they come")
        finally:
            connections.close_all()

    def _visit(self, path: str) -> None:
        """Answer a page to nobody."""
        scheme, _, host = own_address().partition("://")
        environ: WSGIEnvironment = {"PATH_INFO": path, "HTTP_HOST": host, "wsgi.url_scheme": scheme}
        setup_testing_defaults(environ)
        answer = self.within({**environ, "HTTP_X_FORWARDED_PROTO": scheme}, lambda *_: lambda _: None)
        if isinstance(answer, HttpResponseBase):
            answer.close()


def _answer(environ: WSGIEnvironment, error: Exception) -> HttpResponse:
    """As everywhere; a line of text where that fails as well, which asks nothing of anybody."""
    try:
        answered = errors.error_response(WSGIRequest(environ), error)
    except Exception:
        logger.exception("a fault could not be answered as others are")
        fault = errors.kind_of(error)
        answered = HttpResponse(f"{fault.heading}\n", content_type="text/plain", status=fault.status)
    for name, value in policy_headers().items():
        answered.headers[name] = value
    answered.headers["Content-Length"] = str(len(answered.content))
    return answered


def _close_quietly(response: HttpResponseBase) -> None:
    """What fails once the answer is out is logged: the sender has it, and gunicorn would cut their connection."""
    close = response.close

    def closing() -> None:
        try:
            close()
        except Exception:
            logger.exception("fault after the answer was sent")
            _drop_connections()

    response.close = closing  # type: ignore[method-assign]


def _drop_connections() -> None:
    """Forget this thread's connections: one that could not even be looked at would fail its every later request."""
    for connection in connections.all(initialized_only=True):
        with suppress(Exception):
            connection.close()
        if not connection.in_atomic_block:
            connection.connection = None


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")
_django = get_wsgi_application()

from leaderboard.boards.pages import read_boards  # noqa: E402  models: after Django is set up

application = Answering(_django)
policy_headers()  # made now, when nothing is wrong
