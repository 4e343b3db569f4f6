"""Passkeys in a real browser with a virtual authenticator, and what the server accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.mfa.models import Authenticator
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client, RequestFactory
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect

from leaderboard.models import User
from submissions.accounts.forms import AddPasskeyForm
from tests.factories import make_curator, make_user
from tests.submissions.clients import show_again
from tests.submissions.outbox import account_mail

PASSWORD = "a long passphrase"


def make_person(name: str) -> User:
    """A user with a password and a verified address."""
    person = make_user(name)
    person.set_password(PASSWORD)
    person.save()
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    return person


@pytest.fixture
def devices(page: Page) -> Iterator[CDPSession]:
    """A virtual authenticator that verifies its user, in the page's browser."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    yield session
    session.detach()


def sign_in_by_password(page: Page, person: User) -> None:
    page.goto("/account/login/")
    page.get_by_label("Email address").fill(person.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def add_passkey(page: Page, *, passwordless: bool = True) -> None:
    """Add a passkey as a user who has just signed in by password and confirms it."""
    page.goto("/account/2fa/")
    page.get_by_role("link", name="Add a passkey").click()
    if page.get_by_role("heading", name="Confirm your identity").is_visible():
        page.get_by_label("Current password").or_(page.get_by_label("Password")).fill(PASSWORD)
        page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("heading", name="Add a passkey")).to_be_visible()
    page.get_by_label("Name").fill("Laptop")
    page.get_by_label("Sign in with this passkey instead of a password").set_checked(passwordless)
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()


def _cookies(page: Page) -> str:
    return "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())


def sign_out(page: Page) -> None:
    page.goto("/account/logout/")
    page.get_by_role("main").get_by_role("button", name="Sign out").click()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_passkey_is_added_used_renamed_and_removed(page: Page, devices: CDPSession, live_server: Any) -> None:
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    person = make_person("Pia")
    sign_in_by_password(page, person)
    add_passkey(page)
    expect(page.get_by_text("The passkey was added.")).to_be_visible()
    sign_out(page)

    # It replaces password and second factor, and leads to the requested page.
    page.goto("/account/login/?next=/account/2fa/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("link", name="Rename Laptop")).to_be_visible()
    expect(page.get_by_text("replaces the password")).to_be_visible()
    assert page.url.endswith("/account/2fa/")
    assert Axe().run(page).response["violations"] == []
    sign_out(page)

    # After a password, it is the second factor.
    sign_in_by_password(page, person)
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/submissions/")

    # Changes require the passkey again, not the password.
    page.goto("/account/2fa/")
    page.get_by_role("link", name="Rename Laptop").click()
    page.get_by_role("button", name="Use a passkey").click()
    page.get_by_label("Name").fill("Phone")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Remove Phone").click()
    expect(page.get_by_role("heading", name="Remove “Phone”")).to_be_visible()
    page.get_by_role("button", name="Remove the passkey").click()
    expect(page.get_by_text("You have no second factor yet.")).to_be_visible()
    assert not Authenticator.objects.exists()  # the recovery codes are deleted too
    subjects = [mail.subject for mail in account_mail()]
    assert [subject.partition(" to ")[0].partition(" from ")[0] for subject in subjects] == [
        "A passkey was added", "A passkey was removed",
    ]  # fmt: skip
    assert refused == []


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_passkey_of_another_user_or_a_removed_one_does_not_sign_in(
    page: Page, devices: CDPSession, live_server: Any
) -> None:
    owner, other = make_person("Olga"), make_person("Otto")
    for person in (owner, other):
        sign_in_by_password(page, person)
        add_passkey(page)
        sign_out(page)
    passkeys = Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN)
    ids = {each.user_id: each.data["credential"]["id"] for each in passkeys}

    # A browser that uses the passkey of another account is refused by the server.
    sign_in_by_password(page, other)
    expect(page.get_by_role("button", name="Use a passkey")).to_be_visible()
    switch = "([own, another]) => { const e = document.getElementById('passkey-options'); "
    switch += "e.textContent = e.textContent.replace(own, another); }"
    page.evaluate(switch, [ids[other.pk], ids[owner.pk]])
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("This passkey was not accepted.")).to_be_visible()
    assert Client(headers={"cookie": _cookies(page)}).get("/account/").status_code == 302

    passkeys.delete()
    page.get_by_role("button", name="Sign in with another account").click()
    page.goto("/account/login/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("This passkey was not accepted.")).to_be_visible()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_key_without_the_right_to_replace_the_password_is_a_second_factor_only(
    page: Page, devices: CDPSession, live_server: Any
) -> None:
    person = make_person("Kai")
    sign_in_by_password(page, person)
    add_passkey(page, passwordless=False)
    page.goto("/account/2fa/")
    expect(page.get_by_text("replaces the password")).to_have_count(0)
    sign_out(page)
    page.goto("/account/login/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("No passkey was used.")).to_be_visible()
    sign_in_by_password(page, person)
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/submissions/")


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_pages_say_when_the_browser_cannot_use_passkeys(browser: Browser, live_server: Any) -> None:
    person = make_person("Nora")
    client = Client()
    client.force_login(person)
    show_again(client, person)
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    for address, scripts, reason in (
        (live_server.url, False, "Passkeys require JavaScript"),
        (live_server.url.replace("localhost", "127.0.0.1"), True, "only at addresses with a name"),
    ):
        window: BrowserContext = browser.new_context(base_url=address, java_script_enabled=scripts)
        page = window.new_page()
        page.goto("/account/login/")
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Sign in with a passkey")).to_be_hidden()
        expect(page.get_by_text("Using a passkey requires JavaScript.")).to_have_count(int(not scripts))
        window.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": address}])
        page.goto("/account/2fa/webauthn/add/")
        expect(page.get_by_text(reason)).to_be_visible()
        expect(page.get_by_role("button", name="Add the passkey")).to_be_hidden()
        window.close()


_SHORT = {"id": "AA", "rawId": "AA", "type": "public-key"}
_ADDED = {"clientDataJSON": "AA", "attestationObject": "AA"}
_USED = {"clientDataJSON": "e30", "authenticatorData": "AA", "signature": "AA", "userHandle": "9" * 60}
BROKEN: list[str | None] = [
    None, "", "x", "{", "null", "[]", "1", '"text"', "{}", '{"id": "x"}', '{"id": 1, "rawId": null}',
    *(json.dumps({**_SHORT, "response": response}) for response in ({}, _ADDED, _USED)),
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("credential", BROKEN)
def test_a_credential_that_no_browser_sends_is_refused(credential: str | None) -> None:
    person = make_person("Fay")
    client, visitor = Client(), Client()
    client.force_login(person)
    show_again(client, person)
    fields = {} if credential is None else {"credential": credential}
    visitor.get("/account/2fa/webauthn/login/", headers={"accept": "application/json"})
    page = visitor.post("/account/2fa/webauthn/login/", fields, follow=True).content.decode()
    assert "This passkey was not accepted." in page
    client.get("/account/2fa/webauthn/add/")
    page = client.post("/account/2fa/webauthn/add/", {**fields, "name": "x"}).content.decode()
    assert "This passkey was not accepted." in page
    assert not Authenticator.objects.exists()


def _passkey(person: User, name: str = "Key") -> Authenticator:
    data = {"name": name, "credential": {}}
    return Authenticator.objects.create(user=person, type=Authenticator.Type.WEBAUTHN, data=data)


@pytest.mark.django_db
def test_curators_keep_their_last_second_factor(settings: Any) -> None:
    settings.STAFF_MFA_REQUIRED = True
    person = make_person("Cora")
    make_curator(person)
    client = Client()
    client.force_login(person)
    key = _passkey(person)
    show_again(client, person, "mfa")
    assert person_curates(client)
    address = f"/account/2fa/webauthn/keys/{key.pk}/remove/"
    assert "this passkey is your only one" in client.get(address).content.decode()
    assert "this passkey is your only one" in client.post(address).content.decode()
    other = _passkey(person, "Other")
    assert client.post(address).status_code == 302
    assert list(Authenticator.objects.all()) == [other]
    assert client.post(f"/account/2fa/webauthn/keys/{_passkey(make_user('Bo')).pk}/remove/").status_code == 404
    assert person_curates(client)


def person_curates(client: Client) -> bool:
    """Whether the admin lets this session in."""
    return client.get("/admin/").status_code == 200


@pytest.mark.django_db
def test_staff_confirm_with_a_passkey_and_not_with_the_password(settings: Any) -> None:
    settings.STAFF_MFA_REQUIRED = True
    person = make_person("Cora")
    make_curator(person)
    client = Client()
    client.force_login(person)
    assert client.get("/admin/", follow=True).redirect_chain[-1][0] == "/account/2fa/"
    _passkey(person)
    asked = client.get("/admin/", follow=True).redirect_chain[-1][0]
    assert asked.startswith("/account/2fa/webauthn/reauthenticate/?next=")
    answer = client.post("/account/reauthenticate/", {"password": PASSWORD})
    assert answer["Location"].startswith("/account/2fa/webauthn/reauthenticate/")


@pytest.mark.django_db
def test_an_account_has_at_most_ten_passkeys(rf: RequestFactory) -> None:
    person = make_person("Max")
    for number in range(10):
        _passkey(person, f"Key {number}")
    with context.request_context(rf.get("/")):
        form = AddPasskeyForm(user=person, data={"credential": '{"id": "x"}'})
        problems = form.non_field_errors()
    assert problems == ["You have 10 passkeys, which is the maximum. Remove one first."]


@pytest.mark.django_db
def test_passkeys_do_not_replace_services_where_these_are_required(settings: Any) -> None:
    settings.SIGN_IN = "services"
    client = Client()
    assert client.post("/account/2fa/webauthn/login/", {"credential": "{}"}).status_code == 404
    assert "passkey" not in client.get("/account/login/").content.decode()


@pytest.mark.django_db
def test_sign_ins_by_passkey_are_limited(settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "passkey": "2/h/ip"}
    client = Client()
    answers = [client.get("/account/2fa/webauthn/login/", headers={"accept": "application/json"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    options = json.loads(answers[0].content)["request_options"]["publicKey"]
    assert options["rpId"] == "testserver"
    assert options["userVerification"] == "required"
