"""Tokens do what they were made for, as long as they were made for, and no call forgets to ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from rest_framework.views import APIView

from leaderboard.models import AuditRecord, User
from submissions.accounts.access import TokenRefused, make_token
from submissions.accounts.authentication import TokenAuthentication
from submissions.models import ApiToken, Scope
from tests.factories import make_user
from tests.pages import one_line
from tests.submissions.clients import show_again

pytestmark = pytest.mark.django_db


@pytest.fixture
def person() -> User:
    """Somebody with an account."""
    return make_user("Tina")


def bearer(person: User, *scopes: str, **options: Any) -> dict[str, str]:
    """The header with a new token."""
    return {"Authorization": f"Bearer {make_token(person, 'x', scopes=scopes, **options)}"}


def views() -> Iterator[tuple[str, Any]]:
    """Every address with the class that answers it."""
    waiting: list[tuple[str, URLPattern | URLResolver]] = [("", each) for each in get_resolver().url_patterns]
    while waiting:
        prefix, each = waiting.pop()
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            waiting += [(path, inner) for inner in each.url_patterns]
        else:
            yield path, getattr(each.callback, "cls", None)


def test_every_call_of_the_api_says_which_scope_each_method_needs() -> None:
    found = [(path, view) for path, view in views() if isinstance(view, type) and issubclass(view, APIView)]
    assert len(found) > 20
    for path, view in found:
        declared = getattr(view, "required_scope", None)
        assert declared, f"{path}: say in required_scope what a token needs"
        assert TokenAuthentication in view.authentication_classes, path
        methods = {name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view, name)}
        scopes = declared if isinstance(declared, dict) else dict.fromkeys(methods, declared)
        assert methods <= set(scopes), path
        assert set(scopes.values()) <= set(Scope.values), path
        changing = {scope for method, scope in scopes.items() if method != "GET"}
        assert Scope.READ not in changing, f"{path}: a token that reads changes nothing"


@pytest.mark.parametrize(
    ("path", "method", "scope"),
    [
        ("submissions/", "get", "read"),
        ("submissions/", "post", "submit"),
        ("check/", "post", "submit"),
        ("submissions/x/cancel/", "post", "submit"),
        ("submissions/x/withdraw/", "post", "manage"),
        ("submissions/x/visibility/", "post", "manage"),
        ("teams/x/webhooks/", "post", "manage"),
        ("notices/read/", "post", "manage"),
    ],
)
def test_a_token_without_the_scope_is_told_which(
    person: User, client: Client, path: str, method: str, scope: str
) -> None:
    others = [each for each in Scope.values if each != scope]
    ask = getattr(client, method)
    answer = ask(f"/api/v1/{path}", headers=bearer(person, *others))
    assert answer.status_code == 403
    body = answer.json()
    assert body["code"] == "missing_scope"
    assert body["required_scope"] == scope
    assert f"“{scope}”" in body["detail"]
    assert body["problems"][0]["hint"]
    allowed = ask(f"/api/v1/{path}", headers=bearer(person, scope))
    assert allowed.status_code in (200, 400, 404)


def test_a_call_that_says_nothing_takes_no_token(person: User, client: Client, monkeypatch: Any) -> None:
    from submissions.api.views import QuotasView

    monkeypatch.delattr(QuotasView, "required_scope")
    answer = client.get("/api/v1/quotas/", headers=bearer(person, *Scope.values))
    assert (answer.status_code, answer.json()["code"]) == (403, "no_tokens")
    client.force_login(person)
    assert client.get("/api/v1/quotas/").status_code == 200


def test_pages_that_take_tokens_need_the_scope_to_read(person: User, client: Client) -> None:
    path = "/submissions/nothing/runs/demo/"
    assert client.get(path, headers=bearer(person, "submit")).status_code == 403
    assert client.get(path, headers=bearer(person, "read")).status_code == 404
    assert client.get(path, headers={"Authorization": "Bearer rb_wrong"}).status_code == 401


def test_an_expired_token_is_told_so_each_time(person: User, client: Client) -> None:
    headers = bearer(person, "read", days=7)
    ApiToken.objects.update(expiry=timezone.now() - timedelta(days=1))
    for _ in range(2):
        answer = client.get("/api/v1/submissions/", headers=headers)
        assert answer.status_code == 401
        assert "expired on" in answer.json()["detail"]


def test_a_closed_account_has_no_tokens_that_work(person: User, client: Client) -> None:
    headers = bearer(person, "read")
    User.objects.update(is_active=False)
    assert client.get("/api/v1/submissions/", headers=headers).status_code == 401


def test_on_a_public_site_the_address_is_verified_first(person: User, client: Client, settings: Any) -> None:
    headers = bearer(person, "read")
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    answer = client.get("/api/v1/submissions/", headers=headers)
    assert answer.status_code == 401
    assert "verif" in answer.json()["detail"]
    with pytest.raises(TokenRefused, match="Verify"):
        make_token(person, "another")
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    assert client.get("/api/v1/submissions/", headers=headers).status_code == 200


def test_what_was_chosen_on_the_page_is_what_the_token_has(person: User, client: Client) -> None:
    client.force_login(person)
    show_again(client, person)
    fields = {"name": "cluster", "scopes": ["submit"], "days": "7"}
    assert client.post("/account/tokens/", fields, follow=True).status_code == 200
    token = ApiToken.objects.get()
    assert token.scopes == ["submit"]
    assert timedelta(days=6) < token.expiry - timezone.now() <= timedelta(days=7)
    page = one_line(client.get("/account/").content.decode())
    assert "· scopes: submit ·" in page
    for wrong in ({"scopes": ["admin"]}, {"days": "365"}, {"scopes": []}):
        assert client.post("/account/tokens/", {**fields, **wrong}, follow=True).status_code == 400
    assert ApiToken.objects.count() == 1


def test_making_one_asks_again_who_it_is(person: User, client: Client) -> None:
    person.set_password("a long passphrase")
    person.save()
    client.force_login(person)
    asked = client.post("/account/tokens/", {"name": "x", "scopes": ["read"], "days": "7"})
    assert (asked.status_code, asked["Location"]) == (302, "/account/tokens/")
    answer = client.get("/account/tokens/")
    assert answer.status_code == 302
    assert answer["Location"].startswith("/account/reauthenticate/")
    shown = client.post(answer["Location"], {"password": "a long passphrase", "next": "/account/tokens/"}, follow=True)
    assert shown.redirect_chain == [("/account/tokens/", 302)]  # not at the address that asked who it is
    assert "Your new token" in shown.content.decode()  # what was asked for is done, not asked for again
    again = client.get("/account/tokens/", follow=True)
    assert again.redirect_chain == [("/account/#tokens", 302)]
    assert "Your new token" not in again.content.decode()
    assert ApiToken.objects.count() == 1


def test_the_command_makes_narrow_tokens(person: User, capsys: Any) -> None:
    call_command("api_token", person.email, "--scopes", "read", "--days", "7")
    assert ApiToken.objects.get().scopes == ["read"]
    with pytest.raises(CommandError, match="1 to 90 days"):
        call_command("api_token", person.email, "--days", "365")
    record, text = AuditRecord.objects.get(), capsys.readouterr().out.strip()
    assert (record.action, record.subject) == ("token made", f"account {person.pk}")
    assert record.after == {"scopes": ["read"], "days": 7}
    assert text not in json.dumps([record.subject, record.before, record.after, record.reason])


def test_expired_tokens_do_not_count_and_are_forgotten(person: User) -> None:
    for _ in range(10):
        make_token(person, "old")
    ApiToken.objects.update(expiry=timezone.now() - timedelta(days=31))
    make_token(person, "new")
    assert [token.name for token in ApiToken.objects.all()] == ["new"]


def test_the_schema_names_the_scope(client: Client) -> None:
    schema = client.get("/api/v1/schema/?format=json", headers={"accept": "application/json"}).content.decode()
    assert '"x-required-scope":"submit"' in schema.replace(" ", "") or "x-required-scope: submit" in schema
