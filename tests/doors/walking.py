"""Knock at a door as somebody, and see what comes of it: a letter, and the tables that were written to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple
from unittest import mock

from django.conf import settings
from django.core.cache import cache
from django.db import connection, transaction
from django.shortcuts import resolve_url
from django.test import Client
from django.urls import reverse

from tests.doors.content import VARIANTS, Places, Site
from tests.doors.expected import Row
from tests.leaks.routes import Route, fill, routes, samples
from tests.pages import clear_page_cache

#: Statuses of whom a door was opened to: what they sent may be refused for what is in it.
_CONTENT = {400, 409, 411, 412, 413, 415, 422, 429}
_WRITE = re.compile(r'^\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+"?(\w+)', re.IGNORECASE)
#: What anybody's visit may write: who is signed in, and when a token was last used.
VISITS = {"django_session", "submissions_apitoken", "usersessions_usersession"}


class Door(NamedTuple):
    """A row of the table and an address that it is about."""

    name: str
    address: str
    row: Row

    @property
    def is_api(self) -> bool:
        """Whether it is a call, which says itself what methods it takes."""
        return self.address.startswith("/api/") and not self.name.startswith("api-docs")


def doors_of(site: Site, rows: Mapping[str, Row]) -> Iterator[Door]:
    """Every address of the URL configuration that has a row, with the row's variants."""
    for route in routes():
        name = route.name or route.text
        if name in rows:
            yield Door(name, address_of(route, site.places), rows[name])
        for variant in VARIANTS:
            if row := rows.get(f"{name} ({variant})"):
                yield Door(f"{name} ({variant})", address_of(route, site.variant(variant)), row)


@contextmanager
def unrendered() -> Iterator[None]:
    """Templates give nothing: who is let in was decided before, and a thousand pages take minutes."""
    with mock.patch("django.template.backends.django.Template.render", return_value=""):
        yield
    clear_page_cache()  # else later tests are given empty ones


def address_of(route: Route, places: Places) -> str:
    """The route's address, filled with what the site has."""
    return fill(route, {part: _value(route, part, places) for part in route.parts})


def _value(route: Route, part: str, places: Places) -> str:
    first = route.text.removeprefix("api/v1/").split("/")[0]
    found = places.get((route.name, part)) or places.get((first, part))
    return found or samples(route, part)[0]


@contextmanager
def writes() -> Iterator[set[str]]:
    """The tables that are written to inside."""
    tables: set[str] = set()

    def look(execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if found := _WRITE.match(sql):
            tables.add(found[1])
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(look):
        yield tables


def knock(client: Client, method: str, address: str) -> tuple[str, set[str]]:
    """Ask, take back what it did, and say what came: a letter of the table, and the tables that were written to."""
    cookies = deepcopy(client.cookies)
    safe = method in ("GET", "HEAD", "OPTIONS")
    if not safe:
        cache.clear()  # whoever asked too often would be told so before anything else
    with transaction.atomic(), writes() as tables:
        response = _send(client, method, address)
        transaction.set_rollback(True)
    client.cookies = cookies
    return letter(response), tables - VISITS


def _send(client: Client, method: str, address: str) -> Any:
    headers = {"Tus-Resumable": "1.0.0"}  # without, uploads in pieces say so to anybody
    if method in ("PUT", "PATCH", "DELETE"):
        return client.generic(method, address, b"{}", content_type="application/json", headers=headers)
    if method == "POST":
        return client.post(address, {"why": "because"}, headers=headers)
    return getattr(client, method.lower())(address, headers=headers)


def letter(response: Any) -> str:
    """`.` let in, `>` to the page that signs in, else the last digit of the refusal, `!` for a fault of ours."""
    status = response.status_code
    if status in (301, 302, 303, 307, 308):
        sign_in = [resolve_url(settings.LOGIN_URL), reverse("admin:login")]
        if response.wsgi_request.path.startswith(reverse("admin:index")):  # staff without a second factor set it up
            sign_in += [reverse("mfa_index"), reverse("mfa_reauthenticate")]
        return ">" if response.headers["Location"].split("?")[0] in sign_in else "."
    if status < 300 or status == 304 or status in _CONTENT:
        return "."
    return {401: "1", 403: "3", 404: "4", 405: "5"}.get(status, "!")
