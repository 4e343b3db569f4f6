"""The database goes away at each place that a request passes: a whole 503 of ours with an id, never a bare error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.backends.db import SessionStore
from django.core import signals
from django.core.cache import cache
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from leaderboard import wsgi
from leaderboard.core.http import errors, middleware
from leaderboard.views import home
from submissions.notifications import inbox as notices
from tests.factories import make_user

pytestmark = pytest.mark.django_db

AWAY = OperationalError("server closed the connection unexpectedly")


#: Each time that something failed.
failed: list[None] = []


def fail(*arguments: Any, **options: Any) -> Any:
    failed.append(None)
    raise AWAY


Patch = pytest.MonkeyPatch


def _at_the_beginning(patch: Patch) -> None:
    """Where Django looks whether this thread's connection is too old: before any middleware."""
    _connected(patch, signals.request_started)


def _while_the_error_is_told(patch: Patch) -> None:
    patch.setattr(home, "render", fail)
    patch.setattr(middleware.FaultMiddleware, "process_exception", lambda *_: None)
    _connected(patch, signals.got_request_exception)


def _while_it_is_answered(patch: Patch) -> None:
    """The answer to the fault fails: at every layer of middleware anew."""
    patch.setattr(home, "render", fail)
    patch.setattr(errors, "view_name", _failing_first(4, errors.view_name))


def _failing_first(times: int, real: Callable[..., Any]) -> Callable[..., Any]:
    left = [None] * times

    def function(*arguments: Any) -> Any:
        if left:
            left.pop()
            fail()
        return real(*arguments)

    return function


def _saving(patch: Patch) -> None:
    """Behind the view, where the answer is there already."""
    patch.setattr(SessionStore, "save", fail)
    real = home.render

    def render(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        request.session["seen"] = True
        return real(request, *arguments, **options)

    patch.setattr(home, "render", render)


def _connected(patch: Patch, signal: Signal) -> None:
    patch.setattr(signal, "send", fail)


PLACES: dict[str, Callable[[Patch], None]] = {
    "the request begins": _at_the_beginning,
    "the line of the log": lambda patch: patch.setattr(middleware, "view_name", fail),
    "headers": lambda patch: patch.setattr(middleware.HeadersMiddleware, "__call__", fail),
    "the session is read": lambda patch: patch.setattr(SessionStore, "load", fail),
    "the session is saved": _saving,
    "the list of sessions": lambda patch: patch.setattr(UserSession.objects, "create_from_request", fail),
    "the view": lambda patch: patch.setattr(home, "render", fail),
    "the page's head": lambda patch: patch.setattr(notices, "unread_count", fail),
    "any question": lambda patch: patch.setattr(BaseDatabaseWrapper, "cursor", fail),
    "the error is told": _while_the_error_is_told,
    "the error is answered": _while_it_is_answered,
}


class Answer:
    """What a server would send."""

    def __init__(self, path: str, client: Client) -> None:
        self.started: list[Any] = []
        cookies = "; ".join(f"{name}={each.value}" for name, each in client.cookies.items())
        environ = RequestFactory().get(path, headers={"Cookie": cookies}).environ
        parts = wsgi.application(environ, lambda *said: self.started.append(said))  # type: ignore[arg-type,return-value]
        self.body = b"".join(parts).decode()
        if hasattr(parts, "close"):
            parts.close()

    @property
    def status(self) -> str:
        return str(self.started[-1][0])

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.started[-1][1])


@pytest.fixture
def signed_in(client: Client) -> Client:
    """Somebody whose every page asks the database; this test's own connection outlives its thread's requests."""
    client.force_login(make_user())
    cache.clear()
    return client


@contextmanager
def kept(patch: Patch) -> Iterator[None]:
    """The test's transaction is on the connection that a server's thread would look at, and drop."""
    with patch.context() as own:
        own.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda self: None)
        own.setattr(BaseDatabaseWrapper, "close", lambda self: None)
        yield


@pytest.mark.parametrize("path", ["/datasets/", "/api/v1/datasets/", "/no-such-page/"])
@pytest.mark.parametrize("place", PLACES)
def test_wherever_the_database_goes_away_there_is_a_whole_answer(
    place: str, path: str, signed_in: Client, monkeypatch: Patch
) -> None:
    failed.clear()
    with kept(monkeypatch), monkeypatch.context() as patch:
        PLACES[place](patch)
        answer = Answer(path, signed_in)
    if not failed:
        assert path != "/datasets/", "nothing failed here: the place is no more"
        return
    assert answer.status == "503 Service Unavailable"
    assert answer.headers["Retry-After"] == "30"
    if path.startswith("/api/"):
        assert re.search(r'"fault": "[0-9a-f]{8}"', answer.body)
    else:
        assert re.search(r"Fault <code>[0-9a-f]{8}</code>", answer.body)
        assert answer.body.rstrip().endswith("</html>")


def test_what_fails_behind_the_answer_takes_nothing_of_it(signed_in: Client, monkeypatch: Patch) -> None:
    with kept(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(signals.request_finished, "send", fail)
        answer = Answer("/datasets/", signed_in)
    assert answer.status == "200 OK"
    assert answer.body.rstrip().endswith("</html>")


def test_without_that_it_would_be_the_servers_own_error(signed_in: Client, monkeypatch: Patch) -> None:
    with kept(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(wsgi, "application", wsgi.application.application)
        PLACES["the request begins"](patch)
        with pytest.raises(OperationalError):
            Answer("/datasets/", signed_in)
    assert connection.is_usable()
