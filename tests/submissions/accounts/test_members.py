"""ACCESS=members: who is asked to sign in, how each kind of program is told, and what is open all the same."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from submissions.accounts.access import make_token
from submissions.models import Scope
from tests.factories import make_dataset, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def closed(settings: Any) -> None:
    settings.ACCESS = "members"


def test_a_stranger_is_led_to_sign_in_and_back(client: Client) -> None:
    make_dataset(slug="ours")
    for address in (
        "/",
        "/datasets/ours/?sort=AP",
        "/datasets/ours/board.csv",
        "/news/atom.xml",
        "/docs/",
        "/terms/",
    ):
        answer = client.get(address)
        assert answer.status_code == 302, address
        assert answer.headers["Location"].startswith("/account/login/?next=/"), address
    answer = client.get("/datasets/ours/?sort=AP")
    assert answer.headers["Location"].endswith("?next=/datasets/ours/%3Fsort%3DAP")


def test_strangers_get_no_names_of_boards_for_a_mistyped_address(client: Client) -> None:
    make_dataset(slug="quokka-questions")
    answer = client.get("/dataset/quokka-questions/")
    assert answer.status_code == 404
    assert "/datasets/quokka-questions/" not in answer.content.decode()
    client.force_login(make_user())
    assert 'href="/datasets/quokka-questions/"' in client.get("/dataset/quokka-questions/").content.decode()


def test_programs_are_told_in_their_own_way(client: Client) -> None:
    answer = client.get("/api/v1/datasets/")
    assert answer.status_code == 401
    assert answer.json()["code"] == "members_only"
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    part = client.get("/datasets/", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["HX-Redirect"]) == (401, "/account/login/?next=/datasets/")


def test_health_and_signing_in_are_open(client: Client) -> None:
    for address in ("/healthz", "/account/login/", "/account/password/reset/", "/robots.txt"):
        assert client.get(address).status_code == 200, address


def test_members_and_their_tokens_are_let_in_and_nothing_is_kept_for_others(client: Client) -> None:
    person = make_user()
    token = make_token(person, "test", scopes=[Scope.READ])
    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/v1/datasets/", headers=bearer).status_code == 200
    assert client.get("/api/v1/datasets/", headers={"Authorization": "Bearer rb_wrong"}).status_code == 401
    client.force_login(person)
    answer = client.get("/datasets/")
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "private, no-cache"


def test_a_public_site_is_as_it_was(client: Client, settings: Any) -> None:
    settings.ACCESS = "public"
    assert client.get("/datasets/").status_code == 200
