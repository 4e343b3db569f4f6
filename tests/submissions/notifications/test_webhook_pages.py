"""Owners of a team manage its webhooks, on the page and by the API; for everybody else there are none."""

from __future__ import annotations

import pytest
import standardwebhooks
from django.test import Client

from leaderboard.models import Membership, Team, User
from submissions.accounts.teams import personal_team
from submissions.models import Webhook
from submissions.notifications.webhooks import (
    LIMIT,
    TooManyWebhooks,
    add_webhook,
    rotate_secret,
    send_deliveries,
    send_test,
)
from tests.factories import make_user
from tests.submissions.clients import Api
from tests.submissions.receiver import Receiver

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

FOREVER = float("inf")


def page_of(team: Team) -> str:
    """The page of the team's webhooks."""
    return f"/teams/{team.slug}/webhooks/"


def test_an_owner_adds_one_on_the_page_and_sees_the_secret_once(
    signed_in: Client, alice: User, receiver: Receiver
) -> None:
    team = personal_team(alice)
    shown = signed_in.post(page_of(team), {"url": receiver.url}).content.decode()
    webhook = Webhook.objects.get()
    assert webhook.secret in shown
    later = signed_in.get(page_of(team)).content.decode()
    assert webhook.secret not in later
    assert receiver.url.replace("&", "&amp;") in later
    signed_in.post(f"{page_of(team)}{webhook.pk}/", {"action": "test"})
    send_deliveries(FOREVER)
    assert "answered 204" in signed_in.get(page_of(team)).content.decode()
    rotated = signed_in.post(f"{page_of(team)}{webhook.pk}/", {"action": "rotate"}).content.decode()
    old, webhook = webhook.secret, Webhook.objects.get()
    assert webhook.secret != old
    assert webhook.secret in rotated
    signed_in.post(f"{page_of(team)}{webhook.pk}/", {"action": "switch-off"})
    assert not Webhook.objects.get().active
    signed_in.post(f"{page_of(team)}{webhook.pk}/", {"action": "switch-on"})
    assert Webhook.objects.get().active
    signed_in.post(f"{page_of(team)}{webhook.pk}/", {"action": "remove"})
    assert not Webhook.objects.exists()


def test_a_bad_address_is_refused_on_the_page_with_what_would_be_right(signed_in: Client, alice: User) -> None:
    answer = signed_in.post(page_of(personal_team(alice)), {"url": "http://example.org/"})
    assert answer.status_code == 400
    assert "Webhooks require https" in answer.content.decode()


def test_only_owners_see_and_change_webhooks(webhook: Webhook, receiver: Receiver, alice: User) -> None:
    mate, curator = make_user("Mate"), make_user("Curator", is_staff=True)
    Membership.objects.create(team=webhook.team, user=mate)
    for person in (mate, curator):
        client, api = Client(), Api(person)
        client.force_login(person)
        assert client.get(page_of(webhook.team)).status_code == 404
        assert client.post(page_of(webhook.team), {"url": receiver.url}).status_code == 404
        assert client.post(f"{page_of(webhook.team)}{webhook.pk}/", {"action": "rotate"}).status_code == 404
        assert api.get(f"teams/{webhook.team.slug}/webhooks/").status == 404
        assert api.post(f"teams/{webhook.team.slug}/webhooks/{webhook.pk}/rotate/").status == 404
    own = make_user("Other")
    assert Api(own).get(f"teams/{personal_team(own).slug}/webhooks/{webhook.pk}/").status == 404
    assert Webhook.objects.get().secret == webhook.secret


def test_webhooks_by_the_api(api: Api, alice: User, receiver: Receiver) -> None:
    base = f"teams/{personal_team(alice).slug}/webhooks/"
    refused = api.post(base, url="https://example.org:22/")
    assert refused.status == 400
    assert "Port 22" in refused.problem("invalid_webhook")["message"]
    added = api.post(base, url=receiver.url)
    assert added.status == 201
    one = f"{base}{added.body['id']}/"
    assert api.get(base).body == [{name: added.body[name] for name in ("id", "url", "active", "created")}]
    sent = api.post(f"{one}test/")
    assert sent.status == 202
    send_deliveries(FOREVER)
    (delivery,) = api.get(one).body["deliveries"]
    assert (delivery["id"], delivery["state"]) == (sent.body["id"], "sent")
    rotated = api.post(f"{one}rotate/")
    assert rotated.body["secret"] != added.body["secret"]
    assert "secret" not in api.get(one).body
    assert api.client.delete(f"/api/v1/{one}", headers=api.headers).status_code == 204
    assert api.get(base).body == []


def test_a_team_has_a_few_webhooks(alice: User, receiver: Receiver) -> None:
    team = personal_team(alice)
    for _ in range(LIMIT):
        add_webhook(team, receiver.url, alice)
    with pytest.raises(TooManyWebhooks, match="at most 5"):
        add_webhook(team, receiver.url, alice)


def test_a_new_secret_signs_what_already_waits(webhook: Webhook, receiver: Receiver) -> None:
    send_test(webhook)
    secret = rotate_secret(webhook)
    send_deliveries(FOREVER)
    headers, body = receiver.received[0]
    standardwebhooks.Webhook(secret).verify(body, headers)
