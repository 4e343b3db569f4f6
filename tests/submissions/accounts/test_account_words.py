"""Pages, messages and mails about accounts are in the site's words, and what strangers type stays text in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import allauth
import pytest
from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from allauth.core import context
from django.conf import settings
from django.db import transaction
from django.test import Client, RequestFactory
from django.utils import timezone

from leaderboard.models import User
from tests.factories import make_user
from tests.submissions.clients import show_again
from tests.submissions.outbox import account_mail

pytestmark = pytest.mark.django_db
PASSWORD = "a long passphrase"
THEIRS = Path(allauth.__file__).parent / "templates"
OURS = Path(settings.BASE_DIR) / "templates"
#: Templates that allauth uses only with features that this site has disabled: codes by email, phone numbers.
NOT_HERE = re.compile(r"login_code|reset_code|phone|base_")
#: Phrases of allauth and Django that the site does not use.
FOREIGN = re.compile(r"Hello from|Thank you for using|Remember Me|successfully|your user account")


@pytest.fixture(autouse=True)
def commit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the callbacks of commits inside the request, as on the site."""
    monkeypatch.setattr(transaction, "on_commit", lambda then, **options: then())


@pytest.fixture
def person() -> User:
    """Somebody with a password and an address that they verified."""
    person = make_user("Ada")
    person.set_password(PASSWORD)
    person.save()
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    return person


def templates(folder: str) -> list[str]:
    """Return the templates that allauth may use for emails (`email`) or messages (`messages`) on this site."""
    found = [path for app in ("account", "mfa") for path in (THEIRS / app / folder).glob("*.txt")]
    return sorted(str(each.relative_to(THEIRS)) for each in found if not NOT_HERE.search(each.name))


MAILS = [name.removesuffix("_message.txt") for name in templates("email") if name.endswith("_message.txt")]


@pytest.mark.parametrize("folder", ["email", "messages"])
def test_everything_that_is_sent_or_said_has_our_words(folder: str) -> None:
    names = templates(folder)
    assert len(names) > 10
    assert [name for name in names if not (OURS / name).is_file()] == []


def test_every_mail_names_the_site_and_carries_no_strangers_words(rf: RequestFactory, settings: Any) -> None:
    settings.SITE_NAME = "The Board"
    settings.SITE_ADDRESS = "https://board.example"
    hostile = "x\r\nBcc: victim@example.org\n\n<b>http://evil.example</b>\u202e"
    request = rf.get("/", headers={"user-agent": hostile, "host": "testserver:666"})
    said = {
        "activate_url": "http://testserver:666/account/confirm-email/KEY/",
        "password_reset_url": "http://testserver:666/account/password/reset/key/KEY/",
        "signup_url": "http://testserver:666/account/signup/",
        "from_email": hostile, "to_email": hostile, "deleted_email": hostile,
        "timestamp": timezone.now(), "ip": "192.0.2.1", "user_agent": hostile,
    }  # fmt: skip
    with context.request_context(request):
        for prefix in MAILS:
            get_adapter().send_mail(prefix, "ada@example.org", said)
    sent = account_mail()
    assert len(sent) == len(MAILS)
    for mail in sent:
        assert "The Board" in mail.subject
        assert "The Board" in mail.body
        assert not FOREIGN.search(mail.subject + mail.body), mail.body
        links = re.findall(r"https?://[^\s<]+", mail.body)
        assert {each for each in links if not each.startswith("https://board.example/")} <= {"http://evil.example"}
        assert not re.search(r"^Bcc", mail.body, re.MULTILINE)
        text = mail.body.replace("\n-- \n", "\n")
        assert not re.search(r"\n\n\n|^ | $|  | [,.;:]", text, re.MULTILINE), mail.body
        assert all(re.search(r"\d$", before) for before in re.findall(r"(\S+) days?\b", text)), mail.body
        assert mail.message()["Bcc"] is None
        assert mail.to == ["ada@example.org"]
        assert "\u202e" not in mail.body
        assert mail.message().get_content_type() == "text/plain"
        if "From: " in mail.body:
            assert "From: an unknown program, IP address 192.0.2.1" in mail.body


def test_signing_up_is_answered_in_our_words(settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    client = Client()
    fields = {"email": "words@example.org", "team_name": "New Lab", "password1": PASSWORD, "password2": PASSWORD}
    page = client.post("/account/signup/", fields, follow=True).content.decode()
    assert "Check your email" in page
    (mail,) = account_mail()
    assert mail.subject == f"Verify your email address at {settings.SITE_NAME}"
    (path,) = re.findall(r"https?://[^/]+(/account/confirm-email/\S+)", mail.body)
    page = client.get(path).content.decode()
    assert "Confirm your email address" in page
    assert "words@example.org" in page
    assert "words@example.org is verified." in client.post(path, follow=True).content.decode()
    assert "This link has expired" in client.get("/account/confirm-email/made-up/").content.decode()


def test_a_site_without_a_mail_server_says_where_its_mail_is(settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    fields = {"email": "console@example.org", "team_name": "New Lab", "password1": PASSWORD, "password2": PASSWORD}
    assert "printed on its console" in Client().post("/account/signup/", fields, follow=True).content.decode()


def test_no_form_speaks_otherwise(person: User) -> None:
    visitor, client = Client(), Client()
    client.post("/account/login/", {"login": person.email, "password": PASSWORD})
    show_again(client, person)
    anonymous = ("login", "signup", "password/reset", "password/reset/key/1-x", "inactive")
    own = ("email", "password/change", "2fa", "2fa/totp/activate", "reauthenticate", "logout", "sessions")
    for browser, names in ((visitor, anonymous), (client, own)):
        for name in names:
            page = browser.get(f"/account/{name}/", follow=True).content.decode()
            text = re.sub(r"<[^>]*>", " ", page)
            assert not FOREIGN.search(text), (name, FOREIGN.search(text))
            assert 'placeholder="' not in page.partition("<main")[2], name


def test_what_is_refused_is_said_in_our_words(person: User) -> None:
    client = Client()

    def said(path: str, **fields: str) -> str:
        return client.post(f"/account/{path}/", fields, follow=True).content.decode()

    assert "No account has this email address and password" in said("login", login=person.email, password="no")
    new = {"email": "no address", "password1": "password1234", "password2": "password1234"}
    page = said("signup", **new)
    assert "Enter one like name@example.org" in page
    page = said("signup", **{**new, "email": "marianne@example.org"})
    assert "This password is too common" in page
    close = {"password1": "marianne@example", "password2": "marianne@example"}
    assert "too similar to your e" in said("signup", email="marianne@example.org", **close)
    page = said("login", login=person.email, password=PASSWORD)
    assert "You are signed in." in page
    show_again(client, person)
    assert "already in your list" in said("email", action_add="", email=person.email)
