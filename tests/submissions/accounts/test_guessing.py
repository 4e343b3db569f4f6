"""Limits of guessing: response times do not reveal accounts, codes expire, and users are not locked out for a day."""

from __future__ import annotations

import re
import time
from typing import Any, ClassVar

import pytest
from allauth.core.internal import ratelimit
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.hashers import MD5PasswordHasher
from django.test import Client

from leaderboard.models import User
from submissions.models import AccountMail
from tests.factories import make_user
from tests.submissions.totp import code_now

pytestmark = pytest.mark.django_db
PASSWORD = "a long passphrase"


class Counting(MD5PasswordHasher):
    """A hasher that notes how often it computes."""

    algorithm = "counting"
    hashed: ClassVar[list[str]] = []

    def encode(self, password: str, salt: str) -> str:
        """The hash."""
        self.hashed.append(password)
        return super().encode(password, salt)


class Clock:
    """The time by which attempts are counted."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.monotonic, self.sleep = time.monotonic, time.sleep

    def time(self) -> float:
        """Seconds since the epoch."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Set by the test."""
    clock = Clock()
    monkeypatch.setattr(ratelimit, "time", clock)
    return clock


@pytest.fixture
def person() -> User:
    """Somebody with a password."""
    person = make_user("Gwen")
    person.set_password(PASSWORD)
    person.save()
    return person


def test_signing_up_computes_as_much_for_an_address_that_has_an_account(settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    taken = make_user("Gwen").email
    settings.PASSWORD_HASHERS = [f"{__name__}.Counting"]
    counts = []
    for address in (taken, "nobody@example.org"):
        Counting.hashed.clear()
        sent = {"email": address, "team_name": "New Lab", "password1": PASSWORD, "password2": PASSWORD}
        assert Client().post("/account/signup/", sent).status_code == 302
        counts.append(len(Counting.hashed))
    assert counts == [1, 1]


def test_so_does_signing_in(settings: Any) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.Counting"]
    person = make_user("Gwen")
    person.set_password(PASSWORD)
    person.save()
    counts = []
    for address in (person.email, "nobody@example.org"):
        Counting.hashed.clear()
        assert Client().post("/account/login/", {"login": address, "password": "wrong"}).status_code == 200
        counts.append(len(Counting.hashed))
    assert counts[0] == counts[1] > 0


def test_codes_are_counted_by_the_hour_and_the_day(person: User, settings: Any, clock: Clock) -> None:
    limits = settings.ACCOUNT_RATE_LIMITS
    assert limits["second_factor"] == "20/h/key,50/d/key"
    settings.ACCOUNT_RATE_LIMITS = limits | {"second_factor": "2/h/key,3/d/key"}
    secret = generate_totp_secret()
    TOTP.activate(person, secret)
    assert Authenticator.objects.filter(user=person).exists()

    def answer(code: str) -> str:
        client = Client()
        client.post("/account/login/", {"login": person.email, "password": PASSWORD})
        response = client.post("/account/2fa/authenticate/", {"code": code})
        found = re.search(r"(This code is wrong|Too many wrong codes)", response.content.decode())
        return found[1] if found else "" if response.status_code == 302 else response.content.decode()

    assert [answer("000000") for _ in range(2)] == ["This code is wrong"] * 2
    assert answer(code_now(secret)) == "Too many wrong codes"
    clock.now += 3601
    assert answer("000000") == "This code is wrong"
    assert answer(code_now(secret)) == "Too many wrong codes"
    clock.now += 86_400
    assert answer("000000") == "This code is wrong"
    assert answer(code_now(secret)) == ""
    assert [answer("000000") for _ in range(2)] == ["This code is wrong"] * 2


def test_who_uses_up_somebodys_mails_keeps_them_waiting_for_two_hours(person: User, clock: Clock) -> None:
    def ask() -> int:
        return Client().post("/account/password/reset/", {"email": person.email}).status_code

    assert [ask() for _ in range(4)] == [302, 302, 302, 429]
    clock.now += 7201
    assert ask() == 302
    assert AccountMail.objects.count() == 4
