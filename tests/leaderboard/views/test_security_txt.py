"""/.well-known/security.txt is what RFC 9116 asks for, where the operator has named a contact, and 404 elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone

from leaderboard.settings.security import contact_uris, policy

pytestmark = pytest.mark.django_db
ADDRESS = "/.well-known/security.txt"


def test_there_is_none_until_the_operator_names_a_contact(client: Client) -> None:
    assert client.get(ADDRESS).status_code == 404


def test_it_names_contacts_expiry_its_own_address_and_the_policy(client: Client, settings: Any) -> None:
    settings.SECURITY_CONTACT = contact_uris(["security@example.org", " https://example.org/report"])
    settings.SECURITY_POLICY = "https://example.org/policy"
    settings.SITE_ADDRESS = "https://leaderboard.example.org"
    answer = client.get(ADDRESS)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    lines = [line.split(": ", 1) for line in answer.content.decode().splitlines()]
    expires = [datetime.fromisoformat(value) for name, value in lines if name == "Expires"]
    assert [line for line in lines if line[0] != "Expires"] == [
        ["Contact", "mailto:security@example.org"],
        ["Contact", "https://example.org/report"],
        ["Preferred-Languages", "en"],
        ["Canonical", f"https://leaderboard.example.org{ADDRESS}"],
        ["Policy", "https://example.org/policy"],
    ]
    (until,) = expires
    assert until.tzinfo == UTC
    assert timedelta(days=170) < until - timezone.now() < timedelta(days=365)


def test_without_https_it_claims_no_address_of_its_own(client: Client, settings: Any) -> None:
    settings.SECURITY_CONTACT = ["mailto:security@example.org"]
    said = client.get(ADDRESS).content.decode()
    assert "Contact: mailto:security@example.org\n" in said
    assert "Canonical" not in said
    assert "Policy" not in said


@pytest.mark.parametrize(
    "wrong",
    ["somebody", "http://example.org/", "mailto:x", "x@example.org\nPolicy: https://evil", "https://"],
)
def test_a_contact_that_nobody_could_use_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="SECURITY_CONTACT"):
        contact_uris([wrong])
    with pytest.raises(ImproperlyConfigured, match="SECURITY_POLICY"):
        policy(wrong)
    assert contact_uris(["", " "]) == []
    assert policy("") == ""
