"""Every address of the site, asked for by everybody in every way: each gets what the table says, and no more.

The addresses come from the URL configuration, so a new one without a row fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from tests.doors.content import Site
from tests.doors.derived import EVERYBODY, letters_of
from tests.doors.expected import PEOPLE, ROWS, Row
from tests.doors.walking import Door, doors_of, knock, unrendered
from tests.leaks.routes import routes

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning"),  # sessions in cookies have long names
]

#: What a visit that only reads may write all the same: the record of the reading, and allauth's of one's own address.
RECORDS = {"leaderboard_auditrecord", "account_emailaddress"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ALIKE = (
    ("anonymous", "expired", "token"), ("other", "staff", "restrained"), ("owner", "teammate"), ("curator", "root"),
)  # fmt: skip


def test_every_address_has_a_row_and_every_row_an_address() -> None:
    asked = {route.name or route.text for route in routes()}
    rows = {name.split(" (")[0] for name in ROWS}
    assert not asked - rows, "say in tests/doors/expected.py who may go through these doors"
    assert not rows - asked, "rows for addresses that are no more"


@pytest.mark.parametrize("by_turns", [True, pytest.param(False, marks=pytest.mark.long)])
def test_everybody_gets_what_the_table_says(site: Site, by_turns: bool) -> None:
    wrong: list[str] = []
    with unrendered():
        for number, door in enumerate(doors_of(site, ROWS)):
            for method, person in _in_turn(door, number) if by_turns else product(METHODS, EVERYBODY):
                got, written = knock(site.people[person], method, door.address)
                wanted = letters_of(door, method)[person]
                if got != wanted:
                    wrong.append(f"{method} {door.name} ({door.address}) as {person}: {got}, not {wanted}")
                if method in ("GET", "HEAD", "OPTIONS"):
                    written -= RECORDS
                if written and (got != "." or method in ("GET", "HEAD", "OPTIONS")):
                    wrong.append(f"{method} {door.name} as {person} was answered {got} and wrote {written}")
    assert not wrong, "\n".join(wrong)


def _in_turn(door: Door, number: int) -> Iterator[tuple[str, str]]:
    """What `make test` asks; `make test-long` asks everything by everybody.

    GET, POST and what else a call has rights for by everybody, except as `_askers` has it; of GET and POST to the pages
    of curators, which are made alike, one by turns. What is decided before anybody is looked at (HEAD is GET to every
    view, pages take no other method) by one of the people, and one such method at each door, by turns.
    """
    own = [method for method in METHODS if method in ("GET", "POST") or method in door.row.others]
    for method in [own[number % 2]] if door.address.startswith("/admin/") else own:
        yield from ((method, person) for person in _askers(door, method, number))
    others = [method for method in METHODS if method not in own]
    yield others[number % len(others)], EVERYBODY[number // len(others) % len(EVERYBODY)]


def _askers(door: Door, method: str, turn: int) -> list[str]:
    """Those who are alike take turns where they get the same; so do all who go to the page that signs in from the
    curators' pages, which have one entrance, and all but a stranger where everybody is let in. Whose rights rest asks
    wherever rights open a door.
    """
    letters = letters_of(door, method)
    if len({letters[person] for person in PEOPLE if person != "expired"}) == 1:
        return ["anonymous", PEOPLE[1 + turn % (len(PEOPLE) - 1)]]
    asked = [
        person
        for alike in ALIKE
        for person in (alike if len({letters[each] for each in alike}) > 1 else [alike[turn % len(alike)]])
    ]
    if door.address.startswith("/admin/"):
        outside = [person for person in asked if letters[person] == ">"]
        return [person for person in asked if person not in outside] + outside[turn % max(len(outside), 1) :][:1]
    if len({letters[person] for person in ("other", "curator", "staff", "root")}) > 1:
        asked.append("restrained")
    return list(dict.fromkeys(asked))


@pytest.mark.long
def test_a_site_for_members_lets_in_nobody_else(site: Site, settings: Any) -> None:
    """A stranger gets the health of the site, where to report a fault, and the way to sign in: nothing else."""
    settings.ACCESS = "members"
    let_in = set()
    with unrendered():
        for door in doors_of(site, ROWS):
            for person in ("anonymous", "expired"):
                for method in ("GET", "POST"):
                    got, _ = knock(site.people[person], method, door.address)
                    if got not in ">15" and not (got == "4" and door.address.startswith("/admin/")):
                        let_in.add(door.name)
            if door.name in ("dataset", "api-dataset", "dataset_csv", "news_atom", "dataset_share"):
                assert knock(site.people["other"], "GET", door.address)[0] == ".", door.name
    signing_in = {
        name for name in let_in if name.startswith(("account_", "mfa_", "socialaccount_", "github_", "openid_"))
    }
    assert let_in - signing_in == {
        "healthz", "readyz", "metrics", "security-txt", "robots-txt", "favicon", "site-css", "site-logo",
    }  # fmt: skip
    assert signing_in >= {"account_login", "account_reset_password"}
    assert not signing_in & {
        "account_email",
        "account_change_password",
        "account_reauthenticate",
        "mfa_index",
    }
    answer = site.people["other"].get("/")
    assert answer.headers["Cache-Control"] == "private, no-cache"


def test_the_table_is_held_against_what_is_answered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that lets in whom the site turns away, or the other way round, is found."""
    door = next(each for each in doors_of(site, ROWS) if each.name == "submission")
    assert knock(site.people["other"], "GET", door.address)[0] == "4" != Row("........").of("GET", api=False)[1]
    assert knock(site.people["owner"], "GET", door.address)[0] == "."
    cancel = next(each for each in doors_of(site, ROWS) if each.name == "submission-visibility")
    letter, written = knock(site.people["owner"], "POST", cancel.address)
    assert letter == "."
    assert "submissions_submission" in written
    assert knock(site.people["owner"], "POST", cancel.address)[1] == written  # what it did was taken back
    for address in (door.address, "/admin/leaderboard/dataset/"):
        assert knock(site.people["restrained"], "GET", address)[0] in "4>"
    monkeypatch.setattr("submissions.accounts.middleware._mark_restrained", lambda request, person: person)
    for address in (door.address, "/admin/leaderboard/dataset/"):  # were rights not to rest
        assert knock(site.people["restrained"], "GET", address)[0] == "."


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
