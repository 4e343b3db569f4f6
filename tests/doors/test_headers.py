"""What every answer of the site says to browsers, and what no page of it has: checked at every address."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.http import HttpResponseBase
from django.test import Client

from leaderboard.core.http.middleware import PERMISSIONS_POLICY
from leaderboard.settings.security import parse_hsts
from submissions.accounts.throttling import ChangeThrottle
from tests.doors.content import Site, build
from tests.doors.expected import PEOPLE, ROWS
from tests.doors.walking import doors_of
from tests.factories import make_user

pytestmark = [pytest.mark.django_db]

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": PERMISSIONS_POLICY,
}
FORM = "application/x-www-form-urlencoded"
#: Pictures that are made to be shown on other sites.
SHOWN_ELSEWHERE = {"system_badge", "dataset_share", "benchmark_share"}


class Inline(HTMLParser):
    """Finds scripts and styles that are in a page instead of in a file, and where else a page would send or load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at an element's name and attributes."""
        named = dict(attrs)
        is_data = named.get("type") in ("application/json", "application/ld+json")
        self._script = tag == "script" and "src" not in named and not is_data
        if tag == "style" or self._script:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            link = (value or "").strip().lower()
            if name == "style" or name.startswith("on") or link.startswith(("javascript:", "vbscript:")):
                self.found.append(f"<{tag} {name}={value!r}>")


@pytest.fixture
def site(db: None, settings: Any, tmp_path: Path) -> Iterator[Site]:
    """One of everything."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    logging.disable(logging.CRITICAL)
    yield build(tmp_path)
    logging.disable(logging.NOTSET)


def faults_of(response: HttpResponseBase, *, elsewhere: bool = False) -> list[str]:
    """What is wrong with an answer's headers, and with its page if it is one."""
    wanted = HEADERS | ({"Cross-Origin-Resource-Policy": "cross-origin"} if elsewhere else {})
    wrong = [
        f"{name}: {response.headers.get(name)}" for name, value in wanted.items() if response.headers.get(name) != value
    ]
    policy = response.headers.get("Content-Security-Policy", "")
    if "unsafe" in policy or "nonce" in policy or "default-src 'none'" not in policy:
        wrong.append(f"Content-Security-Policy: {policy}")
    if response.headers.get("Content-Type", "").startswith("text/html") and not response.streaming:
        page = Inline()
        page.feed(response.content.decode())  # type: ignore[attr-defined]
        wrong += page.found
    for cookie in response.cookies.values():
        if cookie["samesite"] != "Lax" or (cookie.key != "csrftoken" and not cookie["httponly"]):
            wrong.append(f"cookie {cookie.key}: {dict(cookie)}")
    return wrong


@pytest.mark.parametrize("by_turns", [True, pytest.param(False, marks=pytest.mark.long)])
def test_every_answer_has_its_headers_and_no_page_has_anything_inline(site: Site, by_turns: bool) -> None:
    """At every door as somebody who is let in, and as a stranger; `make test` has every third, and strangers at few."""
    wrong: list[str] = []
    for number, door in enumerate(doors_of(site, ROWS)):
        if by_turns and number % 3:
            continue
        let_in = [name for name, letter in zip(PEOPLE, door.row.get, strict=True) if letter == "."]
        strangers = set() if let_in and by_turns and number % 4 else {"anonymous"}
        for person in {let_in[-1] if let_in else "anonymous"} | strangers:
            response = site.people[person].get(door.address)
            for fault in faults_of(response, elsewhere=door.name in SHOWN_ELSEWHERE):
                wrong.append(f"{door.name} ({door.address}) as {person}, {response.status_code}: {fault}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("address", "status"),
    [("/nothing/", 404), ("/datasets/%00/", 400), ("/submissions/", 302), ("/api/v1/x/", 404)],
)
def test_refusals_have_them_too(address: str, status: int) -> None:
    response = Client().get(address)
    assert response.status_code == status
    assert not faults_of(response)


def test_so_have_forgeries_wrong_hosts_methods_and_faults_of_ours() -> None:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    answers = {
        403: client.post("/account/login/", {"login": "x"}),
        405: client.put("/datasets/"),
        400: client.get("/", headers={"host": "elsewhere.example"}),
    }
    with mock.patch("leaderboard.views.home.render", side_effect=RuntimeError("a fault of a test")):
        answers[500] = client.get("/datasets/")
    for status, response in answers.items():
        assert response.status_code == status
        assert not faults_of(response), status


def test_they_are_put_on_before_anything_answers(settings: Any) -> None:
    """They are served before anything else of the site is asked."""
    order = [name.rsplit(".", 1)[-1] for name in settings.MIDDLEWARE]
    whitenoise = order.index("WhiteNoiseMiddleware")
    for name in ("SecurityMiddleware", "CSPMiddleware", "HeadersMiddleware", "XFrameOptionsMiddleware"):
        assert order.index(name) < whitenoise, name


@pytest.fixture
def public(settings: Any, tmp_path: Path) -> Any:
    """A site on the internet, of which browsers are told to ask it by HTTPS alone, with one static file."""
    seconds, subdomains, preload = parse_hsts("max-age=31536000")
    settings.SECURE_HSTS_SECONDS, settings.SECURE_SSL_REDIRECT = seconds, True
    settings.SECURE_HSTS_INCLUDE_SUBDOMAINS, settings.SECURE_HSTS_PRELOAD = subdomains, preload
    settings.STATIC_ROOT = tmp_path
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    (tmp_path / "style.css").write_text("p { margin: 0 }")
    return settings


def _away(*_: Any, **__: Any) -> Any:
    raise OperationalError("the server closed the connection")


def test_the_public_site_tells_everybody_everything(public: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, static files and refusals of every kind: with HSTS, in the pages' form and in the API's."""
    client = Client(raise_request_exception=False)

    def ask(method: str, path: str, **more: Any) -> HttpResponseBase:
        return client.generic(method, path, secure=True, **more)

    monkeypatch.setitem(ChangeThrottle.THROTTLE_RATES, "change", "0/hour")
    public.UPLOAD_LIMIT_BYTES = 10
    answers = [
        (200, ask("GET", "/")),
        (200, ask("GET", "/static/style.css")),
        (404, ask("GET", "/static/none.css")),
        (404, ask("GET", "/none/")),
        (404, ask("GET", "/api/v1/none/")),
        (413, ask("POST", "/submit/", CONTENT_LENGTH=str(10**10))),
        (413, ask("POST", "/api/v1/submissions/", CONTENT_LENGTH=str(10**10))),
    ]
    with monkeypatch.context() as broken:
        broken.setattr("leaderboard.views.home.render", _away)
        answers.append((503, ask("GET", "/datasets/")))
    client.force_login(make_user("Rita"))
    answers.append((429, ask("POST", "/account/teams/", data="name=Team", content_type=FORM)))
    for status, response in answers:
        told = f"{response.request['PATH_INFO']}: {response.status_code}"  # type: ignore[attr-defined]
        assert response.status_code == status, told
        assert faults_of(response) == [], told
        assert response.headers["Strict-Transport-Security"] == "max-age=31536000", told


def test_plain_http_is_sent_on_unless_it_is_asked_from_inside(public: Any) -> None:
    """A scraper inside asks `web` by its name, where there is no TLS; everybody else is sent to HTTPS."""
    public.ALLOWED_HOSTS, public.METRICS_TOKEN = ["leaderboard.example.org", "web"], "a token"
    client, inside = Client(), {"host": "web:8000", "authorization": "Bearer a token"}
    assert client.get("/metrics", headers=inside).status_code == 200
    assert client.get("/readyz", headers=inside).status_code in (200, 503)
    assert client.get("/datasets/", headers=inside)["Location"] == "https://web:8000/datasets/"
    assert client.get("/metrics", headers={"host": "curation:8000"}).status_code == 400


@pytest.mark.parametrize(
    ("header", "means"),
    [
        ("max-age=31536000", (31536000, False, False)),
        ("max-age=60; includeSubDomains; preload", (60, True, True)),
        ("max-age=0", (0, False, False)),
    ],
)
def test_whoever_sets_up_the_site_says_what_hsts_promises(header: str, means: tuple[int, bool, bool]) -> None:
    assert parse_hsts(header) == means
    for wrong in ("31536000", "max-age=a year", f"{header}; everywhere"):
        with pytest.raises(ImproperlyConfigured, match="max-age=31536000"):
            parse_hsts(wrong)


def test_the_policy_names_every_source_and_allows_nothing_inline() -> None:
    policy = Client().get("/").headers["Content-Security-Policy"]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["script-src"] == parts["style-src"] == parts["connect-src"] == parts["font-src"] == "'self'"
    assert parts["frame-ancestors"] == parts["object-src"] == parts["base-uri"] == parts["frame-src"] == "'none'"
    assert parts["img-src"] == "'self' data:"
    assert not re.search("unsafe|nonce|https?:|\\*", policy)


@pytest.mark.parametrize(
    "there",
    ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example/", "javascript:alert(1)"],
)
def test_nobody_is_sent_elsewhere_after_signing_in(there: str) -> None:
    fields = {"login": make_user("Other").email, "password": "a long passphrase", "next": there}
    response = Client().post("/account/login/", fields)
    assert response.status_code == 302
    assert "elsewhere" not in response.headers["Location"]
    assert not response.headers["Location"].startswith(("javascript", "//", "/\\"))


def test_a_host_that_is_not_ours_reaches_no_page_and_no_link() -> None:
    assert Client().get("/news/atom.xml", headers={"host": "elsewhere.example"}).status_code == 400
    forwarded = Client().get("/news/atom.xml", headers={"x-forwarded-host": "elsewhere.example"})
    assert b"elsewhere.example" not in forwarded.content
