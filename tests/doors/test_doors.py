"""Every address of the site, asked for by everybody in every way: each gets what the table says, and no more.

The addresses come from the URL configuration, so a new one without a row fails here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from tests.doors.content import Site, build
from tests.doors.expected import PEOPLE, ROWS, Row
from tests.doors.walking import Door, doors_of, knock, unrendered
from tests.leaks.routes import routes

pytestmark = [pytest.mark.django_db]

#: What a visit that only reads may write all the same: the record of the reading, and allauth's of one's own address.
RECORDS = {"leaderboard_auditrecord", "account_emailaddress"}


@pytest.fixture
def site(db: None, settings: Any, tmp_path: Path) -> Iterator[Site]:
    """One of everything; refusals by the thousand are not logged, and limits are counted in this process."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    logging.disable(logging.CRITICAL)
    yield build(tmp_path)
    logging.disable(logging.NOTSET)


def test_every_address_has_a_row_and_every_row_an_address() -> None:
    asked = {route.name or route.text for route in routes()}
    rows = {name.split(" (")[0] for name in ROWS}
    assert not asked - rows, "say in tests/doors/expected.py who may go through these doors"
    assert not rows - asked, "rows for addresses that are no more"


def test_everybody_gets_what_the_table_says(site: Site) -> None:
    wrong: list[str] = []
    with unrendered():
        for number, door in enumerate(doors_of(site, ROWS)):
            for method, person in _asked(door, number):
                got, written = knock(site.people[person], method, door.address)
                wanted = door.row.of(method, api=door.is_api)[PEOPLE.index(person)]
                if got != wanted:
                    wrong.append(f"{method} {door.name} ({door.address}) as {person}: {got}, not {wanted}")
                if method in ("GET", "HEAD", "OPTIONS"):
                    written -= RECORDS
                if written and (got != "." or method in ("GET", "HEAD", "OPTIONS")):
                    wrong.append(f"{method} {door.name} as {person} was answered {got} and wrote {written}")
    assert not wrong, "\n".join(wrong)


def _asked(door: Door, number: int) -> Iterator[tuple[str, str]]:
    """GET and POST by everybody (a superuser where it is not as for a curator), and what else the API takes.

    What is decided before anybody is looked at (HEAD is GET to every view, pages take no other method) is asked by
    one of the people at each door, by turns.
    """
    by_turns = PEOPLE[number % len(PEOPLE)]
    everybody = [name for name in PEOPLE if name != "root" or not number % 4 or not _like_curators(door)]
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        full = method in ("GET", "POST") or (door.is_api and method != "HEAD")
        yield from ((method, person) for person in (everybody if full else (by_turns,)))


def _like_curators(door: Door) -> bool:
    curator, root = PEOPLE.index("curator"), PEOPLE.index("root")
    return all(letters[curator] == letters[root] for letters in (door.row.get, door.row.post))


def test_the_table_is_held_against_what_is_answered(site: Site) -> None:
    """A row that lets in whom the site turns away, or the other way round, is found."""
    door = next(each for each in doors_of(site, ROWS) if each.name == "submission")
    assert (
        knock(site.people["other"], "GET", door.address)[0] == "4" != Row("........").of("GET", api=False)[1]
    )
    assert knock(site.people["owner"], "GET", door.address)[0] == "."
    cancel = next(each for each in doors_of(site, ROWS) if each.name == "submission-visibility")
    letter, written = knock(site.people["owner"], "POST", cancel.address)
    assert letter == "."
    assert "submissions_submission" in written
    assert knock(site.people["owner"], "POST", cancel.address)[1] == written  # what it did was taken back


def test_every_list_of_the_curators_has_a_row_to_ask_for(site: Site) -> None:
    empty = [model._meta.label for model in admin.site._registry if not model._default_manager.exists()]
    assert not empty, "make one in tests/doors/content.py"


def test_nothing_is_changed_without_the_token_against_forgery(site: Site) -> None:
    """Whoever is signed in, and everywhere: by a page of another site nothing is sent in their name."""
    forged = Client(enforce_csrf_checks=True, raise_request_exception=False)
    forged.cookies = site.people["root"].cookies
    let_through = []
    with unrendered():
        for door in doors_of(site, ROWS):
            if door.row.of("POST", api=door.is_api)[PEOPLE.index("root")] == ".":
                got, written = knock(forged, "POST", door.address)
                if got != "3" or written:
                    let_through.append(f"{door.name}: {got} {written}")
    assert not let_through, let_through
