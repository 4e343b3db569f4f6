"""Which passwords are taken, what follows a reset, and how often somebody may try."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from leaderboard.models import User
from submissions.accounts import passwords
from submissions.accounts.access import end_sessions, make_token
from submissions.models import ApiToken
from tests.factories import make_user
from tests.submissions.outbox import account_mail

STOLEN = "correct horse battery staple"
PASSWORD = "a long passphrase"
ROOT = Path(__file__).resolve().parents[3]


def sha1(password: str) -> str:
    """As lists of stolen passwords have them."""
    return hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()


@pytest.mark.parametrize("length", [12, 64, 128, 4096])
def test_long_passwords_of_any_characters_are_taken(length: int) -> None:
    validate_password(("Wörter mit Räumen ✓ " * 300)[:length])


@pytest.mark.parametrize("password", ["elevenchars", "x" * 4097, "password1234"])
def test_short_huge_and_common_ones_are_not(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password)


def test_a_password_is_not_ones_address(db: None) -> None:
    with pytest.raises(ValidationError, match="too similar to your"):
        validate_password("katharina.maier", make_user("K", email="katharina.maier@example.org"))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_a_file_of_hashes_is_searched_from_end_to_end(tmp_path: Path, settings: Any, count: int) -> None:
    words = [f"password number {number}" for number in range(count)]
    path = tmp_path / "hashes.txt"
    path.write_text("".join(f"{each}:7\n" for each in sorted(map(sha1, words))))
    settings.BREACHED_PASSWORDS = str(path)
    for word in words[:50]:
        with pytest.raises(ValidationError, match="stolen"):
            validate_password(word)
    for number in range(50):
        validate_password(f"another phrase {number}")


class Pwned(BaseHTTPRequestHandler):
    """The service: all suffixes of a range, padded."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        """Answer as haveibeenpwned.com does."""
        self.asked.append((self.path, self.headers.get("Add-Padding")))
        body = f"{'0' * 35}:0\r\n{sha1(STOLEN)[5:]}:4711\r\n{sha1('padded password')[5:]}:0\r\n".encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet."""


@pytest.fixture
def pwned(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None]]]:
    """The service on this machine, switched on."""
    server = HTTPServer(("127.0.0.1", 0), Pwned)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Pwned.asked.clear()
    settings.BREACHED_PASSWORDS = "on"
    monkeypatch.setattr(passwords, "BREACHED_PASSWORDS_API", f"http://127.0.0.1:{server.server_port}/range/")
    yield Pwned.asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("value", "setting"), [("true", "on"), ("On", "on"), ("0", "off"), ("", "off"), ("/x", "/x")])
def test_switching_the_service_on_takes_any_spelling(value: str, setting: str) -> None:
    program = "from leaderboard.settings import security; print(security.BREACHED_PASSWORDS)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env={**os.environ, "BREACHED_PASSWORDS": value}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == setting


def test_the_service_learns_five_digits_and_no_more(pwned: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ValidationError, match="stolen"):
        validate_password(STOLEN)
    validate_password("never seen before")
    validate_password("padded password")  # a line that only pads has a count of 0
    assert pwned[0] == (f"/range/{sha1(STOLEN)[:5]}", "true")


def test_a_service_that_is_away_refuses_nobody(settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    settings.BREACHED_PASSWORDS = "on"
    monkeypatch.setattr(passwords, "BREACHED_PASSWORDS_API", "http://127.0.0.1:1/range/")
    validate_password(STOLEN)
    assert "cannot query the list of breached passwords" in caplog.text
    settings.BREACHED_PASSWORDS = "/nowhere/at/all"
    validate_password(STOLEN)
    assert "cannot read the BREACHED_PASSWORDS file" in caplog.text
    assert STOLEN not in caplog.text


@pytest.mark.django_db
def test_signing_up_refuses_a_stolen_one(client: Client, pwned: Any) -> None:
    fields = {"email": "new@example.org", "password1": STOLEN, "password2": STOLEN}
    assert "list of stolen passwords" in client.post("/account/signup/", fields).content.decode()
    assert not User.objects.exists()


@pytest.mark.django_db
def test_a_reset_ends_sessions_and_tokens(client: Client) -> None:
    person = make_user("Rita")
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    thief = Client()
    thief.force_login(person)
    make_token(person, "theirs")
    client.post("/account/password/reset/", {"email": person.email})
    found = re.search(r"https?://[^/]+(/account/password/reset/key/\S+)", account_mail()[0].body)
    assert found
    form = client.get(found[1], follow=True)
    address = form.redirect_chain[-1][0]
    fields = {"password1": "an entirely new phrase", "password2": "an entirely new phrase"}
    assert client.post(address, fields).status_code == 302
    assert not ApiToken.objects.exists()
    assert thief.get("/submissions/").status_code == 302
    assert "password" in account_mail()[-1].subject.lower()


@pytest.mark.django_db
def test_a_link_opens_a_limited_number_of_sessions(client: Client, settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "open_reset_link": "4/h/ip"}
    person = make_user("Rita")
    client.post("/account/password/reset/", {"email": person.email})
    found = re.search(r"https?://[^/]+(/account/password/reset/key/\S+)", account_mail()[0].body)
    assert found
    answers = [Client().get(found[1]).status_code for _ in range(6)]
    assert answers == [302] * 4 + [429] * 2
    assert Session.objects.count() == 4


@pytest.mark.django_db
def test_signing_out_elsewhere_does_not_look_into_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of somebody else's would take a minute; the person's own are listed, or were begun lately."""
    person, browsers = make_user("Rita"), [Client() for _ in range(3)]
    for browser in browsers:
        browser.force_login(person)
        browser.get("/account/")
    UserSession.objects.filter(session_key=browsers[1].session.session_key).delete()  # one is not listed
    old = timezone.now() + timedelta(days=1)
    Session.objects.bulk_create(
        Session(session_key=f"old{number}", session_data="", expire_date=old) for number in range(50)
    )
    decoded: list[str] = []
    decode = Session.get_decoded
    monkeypatch.setattr(Session, "get_decoded", lambda row: decoded.append(row.session_key) or decode(row))
    assert end_sessions(person, keep=browsers[0].session.session_key) == 2
    assert [browser.get("/submissions/").status_code for browser in browsers] == [200, 302, 302]
    assert not [key for key in decoded if key.startswith("old")]


@pytest.mark.django_db
def test_asking_for_a_reset_tells_nobody_who_has_an_account(client: Client) -> None:
    make_user("Rita", email="rita@example.org")
    known, unknown = (
        client.post("/account/password/reset/", {"email": f"{name}@example.org"}) for name in ("rita", "nobody")
    )
    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])


@pytest.mark.django_db
def test_guessing_ends_in_429_that_says_when(client: Client, caplog: Any) -> None:
    person = make_user("Rita")
    with caplog.at_level(logging.WARNING):
        answers = [
            client.post("/account/login/", {"login": person.email, "password": f"guess number {number}"})
            for number in range(6)
        ]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert answers[-1]["Retry-After"] == "300"
    assert "Wait 5 minutes" in answers[-1].content.decode()
    assert caplog.text.count("sign-in failed") == 5
    assert person.email not in caplog.text
    assert "guess number" not in caplog.text


@pytest.mark.django_db
def test_pages_that_are_throttled_say_when_too(client: Client, settings: Any, monkeypatch: Any) -> None:
    from submissions.accounts.throttling import ChangeThrottle

    monkeypatch.setitem(ChangeThrottle.THROTTLE_RATES, "change", "1/hour")
    client.force_login(make_user("Rita"))
    answers = [client.post("/account/teams/", {"name": f"Team {number}"}) for number in range(2)]
    assert answers[1].status_code == 429
    assert 3590 <= int(answers[1]["Retry-After"]) <= 3600
