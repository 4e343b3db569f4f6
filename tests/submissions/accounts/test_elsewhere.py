"""Signing in with another service, against an OpenID Connect provider on this machine."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.totp.internal.auth import TOTP
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.github.views import GitHubOAuth2Adapter
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from leaderboard.models import User
from leaderboard.settings.security import sign_in_services
from submissions.models import AccountMail
from tests.factories import make_user

pytestmark = pytest.mark.django_db

LOGIN = "/account/oidc/university/login/"


class Provider(ThreadingHTTPServer):
    """Says of whoever comes what `claims` has."""

    claims: dict[str, Any] = {}
    emails: list[dict[str, Any]] = []
    asked: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        here = self.server.address
        if self.path == "/.well-known/openid-configuration":
            self._say({
                "issuer": here, "authorization_endpoint": f"{here}/authorize", "token_endpoint": f"{here}/token",
                "userinfo_endpoint": f"{here}/userinfo", "jwks_uri": f"{here}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            })  # fmt: skip
        elif self.path == "/user/emails":
            self._say(self.server.emails)
        elif self.path in ("/userinfo", "/user") and "let-in" in self.headers["Authorization"]:
            self._say(self.server.claims)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked = {name: values[0] for name, values in parse_qs(body).items()}
        claims = {
            "iss": self.server.address,
            "aud": "runboard",
            "exp": time.time() + 60,
            **self.server.claims,
        }
        parts = ({"alg": "HS256", "typ": "JWT"}, claims, "signature")
        token = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
        self._say({"access_token": "let-in", "token_type": "Bearer", "id_token": token.decode()})

    def _say(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    with Provider(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        app = {
            "provider_id": "university", "name": "University", "client_id": "runboard", "secret": "s",
            "settings": {"server_url": server.address, "oauth_pkce_enabled": True},
        }  # fmt: skip
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}
        settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
        yield server
        server.shutdown()


def come(provider: Provider, client: Client, **claims: Any) -> Any:
    """Sign in there as somebody, and come back."""
    provider.claims = {"sub": "7", **claims}
    there = client.post(LOGIN)
    assert there.status_code == 302, there.content.decode()
    query = parse_qs(urlsplit(there["Location"]).query)
    assert there["Location"].startswith(f"{provider.address}/authorize?")
    assert query["code_challenge_method"] == ["S256"]
    return client.get(f"{LOGIN}callback/", {"code": "c", "state": query["state"][0]}, follow=True)


@pytest.fixture
def github(provider: Provider, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The same server as GitHub: accounts there have several addresses, and the primary one may be unverified."""
    app = {"client_id": "runboard", "secret": "s"}
    settings.SOCIALACCOUNT_PROVIDERS = {"github": {"APPS": [app]}}
    monkeypatch.setattr(GitHubOAuth2Adapter, "access_token_url", f"{provider.address}/token")
    monkeypatch.setattr(GitHubOAuth2Adapter, "profile_url", f"{provider.address}/user")
    monkeypatch.setattr(GitHubOAuth2Adapter, "emails_url", f"{provider.address}/user/emails")
    return provider


def come_from_github(github: Provider, client: Client, *addresses: str) -> Any:
    """Sign in there with addresses of which `!` marks a verified and `*` the primary one."""
    github.claims = {"id": 7, "login": "ada", "email": None}
    github.emails = [
        {"email": each.strip("!*"), "verified": "!" in each[-2:], "primary": "*" in each[-2:]} for each in addresses
    ]
    there = client.post("/account/github/login/")
    state = parse_qs(urlsplit(there["Location"]).query)["state"][0]
    return client.get("/account/github/login/callback/", {"code": "c", "state": state}, follow=True)


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def test_a_verified_address_makes_an_account_and_comes_in_again(provider: Provider, client: Client) -> None:
    assert "Continue with University" in client.get("/account/login/").content.decode()
    come(provider, client, email="ada@example.org", email_verified=True, name="Ada L.")
    assert is_in(client)
    assert provider.asked["code_verifier"]
    person = User.objects.get()
    assert (person.email, person.name, person.teams.get().name) == (
        "ada@example.org",
        "",
        f"Team {person.pk}",
    )
    assert EmailAddress.objects.get().verified
    again = Client()
    come(provider, again, email="ada@elsewhere.example", email_verified=True)
    assert is_in(again)
    assert User.objects.get().email == "ada@example.org"
    assert "University" in again.get("/account/3rdparty/").content.decode()


def test_an_address_that_the_service_has_not_verified_is_verified_here(provider: Provider, client: Client) -> None:
    come(provider, client, email="ada@example.org", email_verified=False)
    assert not is_in(client)
    assert not EmailAddress.objects.get().verified
    assert AccountMail.objects.get().address == "ada@example.org"


@pytest.mark.parametrize("verified", [True, False])
def test_no_address_lets_anybody_into_an_account_that_is_here(
    provider: Provider, client: Client, verified: bool
) -> None:
    ada = make_user("Ada", email="ada@example.org")
    EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
    come(provider, client, email="ada@example.org", email_verified=verified)
    assert not is_in(client)
    assert User.objects.count() == 1
    assert not SocialAccount.objects.exists()


def test_who_names_no_address_is_asked_for_one(provider: Provider, client: Client, settings: Any) -> None:
    settings.SIGNUP_DOMAINS = ["example.org"]
    assert "needs an email address" in come(provider, client).content.decode()
    refused = client.post("/account/3rdparty/signup/", {"email": "ada@example.net"})
    assert "require an address at example.org" in refused.content.decode()
    client.post("/account/3rdparty/signup/", {"email": "ada@example.org"})
    assert not is_in(client)  # before the mail is answered
    assert not EmailAddress.objects.get(email="ada@example.org").verified


@pytest.mark.parametrize(
    ("addresses", "stored", "enters"),
    [
        (["ada@uni.example*", "eve@gmail.example!"], {"ada@uni.example": False}, False),
        (["eve@gmail.example!*", "ada@uni.example!"], {"ada@uni.example": True}, True),
        (["eve@gmail.example*", "ada@uni.example!"], {"ada@uni.example": True}, True),
        (["bob@uni.example*", "ada@cs.uni.example!"], {"ada@cs.uni.example": True}, True),
        (["ADA@UNI.EXAMPLE!*"], {"ada@uni.example": True}, True),
        (["ada+1@uni.example!*", "ada@uni.example!"], {"ada+1@uni.example": True, "ada@uni.example": True}, True),
        (["eve@gmail.example!*"], {}, False),
        (["eve@uni.example.evil.example!*"], {}, False),
        (["eve@evil-uni.example!*"], {}, False),
        (["eve@uni.example.!*"], {}, False),
        (["eve@ünı.example!*"], {}, False),
        (['"ada@uni.example"@evil.example!*'], {}, False),
        ([], {}, False),
    ],
)  # fmt: skip
def test_only_verified_addresses_at_allowed_domains_let_somebody_in(
    github: Provider,
    client: Client,
    settings: Any,
    addresses: list[str],
    stored: dict[str, bool],
    enters: bool,
) -> None:
    settings.SIGNUP_DOMAINS = ["uni.example"]
    come_from_github(github, client, *addresses)
    assert is_in(client) is enters
    assert dict(EmailAddress.objects.values_list("email", "verified")) == stored
    assert User.objects.count() == bool(stored)
    if stored:
        assert User.objects.get().email == next(iter(stored))


def test_an_address_that_is_typed_does_not_let_in_one_at_another_domain(
    github: Provider, client: Client, settings: Any
) -> None:
    settings.SIGNUP_DOMAINS = ["uni.example"]
    come_from_github(github, client, "eve@gmail.example!*")
    client.post("/account/3rdparty/signup/", {"email": "ada@uni.example"})
    assert not is_in(client)
    assert list(EmailAddress.objects.values_list("email", "verified")) == [("ada@uni.example", False)]


def test_an_account_keeps_no_unverified_address_beside_a_verified_one(github: Provider, client: Client) -> None:
    come_from_github(github, client, "stranger@example.org*", "ada@example.net!", "ada@example.org!")
    assert is_in(client)
    assert set(EmailAddress.objects.values_list("email", "verified")) == {
        ("ada@example.net", True),
        ("ada@example.org", True),
    }


def test_an_account_gets_no_further_address_at_another_domain(client: Client, settings: Any) -> None:
    settings.SIGNUP_DOMAINS = ["uni.example"]
    ada = make_user("Ada", email="ada@uni.example")
    EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
    client.post("/account/login/", {"login": ada.email, "password": "a long passphrase"})
    client.post("/account/reauthenticate/", {"password": "a long passphrase"})
    for address in ("ada@gmail.example", "ada@uni.example.evil.example"):
        answer = client.post("/account/email/", {"action_add": "", "email": address})
        assert "require an address at uni.example" in answer.content.decode()
    client.post("/account/email/", {"action_add": "", "email": "ada@cs.uni.example"})
    assert set(EmailAddress.objects.values_list("email", flat=True)) == {ada.email, "ada@cs.uni.example"}


def test_an_address_that_a_provider_calls_unverified_in_text_is_not_verified(
    provider: Provider, client: Client, settings: Any
) -> None:
    ada = make_user("Ada", email="ada@example.org")
    EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
    settings.SIGN_IN = "services"
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["email_authentication"] = True
    come(provider, client, email="ada@example.org", email_verified="false")
    assert not is_in(client)
    come(provider, client, sub="8", email="eve@example.org", email_verified="false")
    assert not EmailAddress.objects.get(email="eve@example.org").verified
    come(provider, client, email="ada@example.org", email_verified="true")
    assert is_in(client)


def test_closed_sign_up_approval_and_the_second_factor_hold(provider: Provider, settings: Any) -> None:
    verified = {"email": "ada@example.org", "email_verified": True}
    settings.SIGNUP = "closed"
    refused = come(provider, Client(), **verified)
    assert "account/signup_closed.html" in [each.name for each in refused.templates]
    assert not User.objects.exists()
    settings.SIGNUP = "approval"
    client = Client()
    come(provider, client, **verified)
    assert not is_in(client)
    person = User.objects.get()
    assert person.approval_awaited
    User.objects.update(approval_awaited=False)
    TOTP.activate(person, "A" * 32)
    asked = come(provider, client, **verified)
    assert asked.redirect_chain[-1][0].startswith("/account/2fa/authenticate/")
    assert not is_in(client)


def test_somebody_signed_in_connects_a_service(provider: Provider, client: Client) -> None:
    ada = make_user("Ada", email="ada@example.org")
    ada.set_password("correct horse battery")
    ada.save()
    EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
    client.force_login(ada)
    provider.claims = {"sub": "7", "email": "other@example.org", "email_verified": True}
    there = client.post(f"{LOGIN}?process=connect")
    state = parse_qs(urlsplit(there["Location"]).query)["state"][0]
    back = client.get(f"{LOGIN}callback/", {"code": "c", "state": state})
    assert not SocialAccount.objects.exists()  # it asks first who one is
    client.post(back["Location"], {"password": "correct horse battery"})
    assert SocialAccount.objects.get().user == ada
    again = Client()
    come(provider, again, email="other@example.org")
    assert again.get("/account/").context["user"] == ada


def test_who_has_no_password_downloads_their_data(provider: Provider, client: Client) -> None:
    come(provider, client, email="ada@example.org", email_verified=True)
    assert client.get("/account/data/", follow=True)["Content-Type"] == "application/zip"
    assert client.post("/account/close/", {"email": "ada@example.org"}).status_code == 302
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize(
    ("method", "address", "back"),
    [
        ("get", "/account/data/", "/account/data/"),
        ("get", "/account/close/", "/account/close/"),
        ("post", "/account/close/", "/account/"),
        ("get", "/account/2fa/totp/activate/", "/account/2fa/totp/activate/"),
        ("post", "/account/email/", "/account/"),
    ],
)
def test_an_old_session_of_a_service_signs_in_again(
    provider: Provider, client: Client, monkeypatch: pytest.MonkeyPatch, method: str, address: str, back: str
) -> None:
    come(provider, client, email="ada@example.org", email_verified=True)
    form = {"email": "further@example.org", "action_add": ""}
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 301)
    answer = getattr(client, method)(address, form if method == "post" else {})
    assert answer.headers["Location"] == f"/account/login/?next={back}"
    assert not is_in(client)
    assert "again with your service" in client.get(answer.headers["Location"]).content.decode()
    assert EmailAddress.objects.count() == 1
    come(provider, client, email="ada@example.org", email_verified=True)
    assert client.get("/account/data/")["Content-Type"] == "application/zip"


def test_a_service_may_be_the_only_way_in(provider: Provider, client: Client, settings: Any) -> None:
    ada = make_user("Ada", email="ada@example.org")
    ada.set_password("correct horse battery")
    ada.save()
    EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
    settings.SIGN_IN = "services"
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["email_authentication"] = True
    page = client.get("/account/login/").content.decode()
    assert "Continue with University" in page
    assert "password" not in page.lower()
    assert "/account/signup/" not in page
    known = {"login": ada.email, "password": "correct horse battery"}
    assert client.post("/account/login/", known).status_code == 404
    assert client.get("/account/signup/").status_code == 404
    assert client.get("/account/password/reset/").status_code == 404
    assert not client.login(username=ada.email, password="correct horse battery")
    # The operator's provider is the way into accounts that were made with a password, and asks nothing of it again.
    come(provider, client, email="ada@example.org", email_verified=True)
    assert client.get("/account/").context["user"] == ada
    assert "password" not in client.get("/account/").content.decode().lower()
    for address in ("/account/password/change/", "/account/password/set/"):
        assert client.get(address).status_code == 404
    assert client.get("/account/data/")["Content-Type"] == "application/zip"
    assert client.get("/account/sessions/").status_code == 200
    stranger = Client()
    come(provider, stranger, sub="8", email="eve@example.org", email_verified=True)
    assert User.objects.count() == 2
    settings.SIGN_IN = "all"
    assert Client().login(username=ada.email, password="correct horse battery")


def test_nothing_is_shown_or_there_without_keys(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Continue with" not in client.get("/account/login/").content.decode()
    assert client.get("/account/github/login/").status_code == 404
    monkeypatch.setenv("ORCID_CLIENT_ID", "APP-1")
    with pytest.raises(ImproperlyConfigured, match="ORCID_CLIENT_SECRET"):
        sign_in_services()
    monkeypatch.setenv("ORCID_CLIENT_SECRET", "s")
    providers, origins = sign_in_services()
    assert providers["openid_connect"]["APPS"][0]["settings"]["server_url"] == "https://orcid.org"
    assert origins == ["https://orcid.org"]
