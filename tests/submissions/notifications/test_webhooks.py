"""Webhooks: signed, tried again, and never a way into the network that the site stands in."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import time
from datetime import timedelta
from typing import Any

import pytest
import standardwebhooks
from django.utils import timezone

from leaderboard.core.work_requests import request_notice
from leaderboard.models import Dataset, Entry, Membership, Rescore, User
from submissions.models import Delivery, Notice, NoticeKind, Webhook
from submissions.notifications import webhook_client
from submissions.notifications.events import notify_finished, process_events
from submissions.notifications.webhooks import (
    ATTEMPTS,
    delete_old_deliveries,
    deliveries_are_due,
    send_deliveries,
    send_test,
)
from tests.factories import make_user
from tests.servers.worker import WorkerProcesses
from tests.submissions.clients import Api
from tests.submissions.receiver import Receiver
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.database]

FOREVER = float("inf")


def due_now() -> None:
    """As if the time until the next attempt had gone by."""
    Delivery.objects.update(not_before=None)


def scored(api: Api, **fields: Any) -> str:
    """The id of a submission that was scored, and told of."""
    identifier = str(api.submit(**fields).body["id"])
    work()
    notify_finished()
    return identifier


# --- what is sent


def test_a_secret_made_before_standard_webhooks_still_signs(
    demo: Dataset, baseline: None, api: Api, receiver: Receiver, webhook: Webhook
) -> None:
    Webhook.objects.update(secret="rbw_an-older_secret")
    scored(api)
    assert send_deliveries(FOREVER) == 1
    headers, body = receiver.received[0]
    standardwebhooks.Webhook(b"rbw_an-older_secret").verify(body, headers)


def test_a_finished_submission_arrives_signed(
    demo: Dataset, baseline: None, api: Api, receiver: Receiver, webhook: Webhook
) -> None:
    identifier = scored(api)
    assert send_deliveries(FOREVER) == 1
    headers, body = receiver.received[0]
    # What docs/api.md tells receivers to do.
    message = standardwebhooks.Webhook(webhook.secret).verify(body, headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(webhook.secret).verify(body + b" ", headers)
    key = base64.b64decode(webhook.secret.removeprefix("whsec_"))
    signed = f"{message['id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    assert headers["webhook-signature"] == expected
    assert headers["X-Runboard-Event"] == "finished"
    assert headers["Content-Type"] == "application/json"
    assert headers["webhook-id"] == message["id"]
    entry = Entry.objects.get(submission_reference=identifier)
    assert {name: message[name] for name in ("event", "submission", "system", "state", "datasets")} == {
        "event": "finished",
        "submission": identifier,
        "system": "my-system",
        "state": "done",
        "datasets": ["demo"],
    }
    assert message["scores"] == {"demo": entry.scores}
    assert message["outcome"].startswith("Demo: nDCG@10 ")
    assert message["url"].endswith(f"/submissions/{identifier}/")
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.answer, delivery.attempts) == ("sent", "answered 204", 1)


def test_a_held_result_goes_out_without_its_score(
    secret: Dataset, api: Api, receiver: Receiver, webhook: Webhook
) -> None:
    identifier = str(api.submit(dataset="secret").body["id"])
    work()
    score = Entry.objects.get(submission_reference=identifier).scores["nDCG@10"]
    Entry.objects.update(visibility=Entry.Visibility.HELD, scores={})
    notify_finished()
    send_deliveries(FOREVER)
    message = receiver.json()
    assert message["scores"] == {"secret": {}}
    assert "no significant change" in message["outcome"].casefold()
    assert str(score) not in json.dumps(message)
    assert f"{score:.3f}" not in json.dumps(message)


def test_rescored_results_arrive_each(demo: Dataset, api: Api, receiver: Receiver, webhook: Webhook) -> None:
    first, second = scored(api), scored(api, system="Another", configuration="b")
    Delivery.objects.all().delete()
    qrels = demo.current_qrels
    rescore = Rescore.objects.create(dataset=demo, from_qrels=qrels, to_qrels=qrels, state="switched")
    request_notice("rescored", rescore=rescore.pk)
    process_events()
    send_deliveries(FOREVER)
    assert {receiver.json(number)["submission"] for number in (0, 1)} == {first, second}
    assert receiver.json()["event"] == "rescored"
    assert receiver.json()["datasets"] == ["demo"]


def test_other_teams_hear_nothing(demo: Dataset, api: Api, stranger: Api, webhook: Webhook) -> None:
    scored(stranger)
    assert not Delivery.objects.exists()
    assert not deliveries_are_due()


def test_an_operator_can_switch_webhooks_off(
    demo: Dataset, api: Api, webhook: Webhook, receiver: Receiver, settings: Any
) -> None:
    send_test(webhook)
    settings.WEBHOOKS_ENABLED = False
    scored(api)
    assert Delivery.objects.count() == 1
    assert send_deliveries(FOREVER) == 0
    assert receiver.received == []


# --- what does not arrive


def test_a_failed_attempt_is_repeated_with_the_same_id(webhook: Webhook, receiver: Receiver) -> None:
    receiver.status = 500
    send_test(webhook)
    assert send_deliveries(FOREVER) == 0
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts, delivery.answer) == ("waiting", 1, "answered 500")
    assert delivery.not_before is not None
    assert not deliveries_are_due()
    receiver.status = 200
    due_now()
    assert send_deliveries(FOREVER) == 1
    assert receiver.json(0)["id"] == receiver.json(1)["id"]


def test_after_five_attempts_it_is_given_up(webhook: Webhook, receiver: Receiver) -> None:
    receiver.status = 503
    send_test(webhook)
    for _ in range(ATTEMPTS + 2):
        send_deliveries(FOREVER)
        due_now()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("failed", ATTEMPTS)
    assert len(receiver.received) == ATTEMPTS
    webhook.refresh_from_db()
    assert webhook.active  # for today


def test_a_webhook_that_takes_nothing_for_days_is_switched_off_and_its_owners_told(
    webhook: Webhook, receiver: Receiver, alice: User
) -> None:
    mate = make_user("Mate")
    Membership.objects.create(team=webhook.team, user=mate)
    receiver.status = 404
    Webhook.objects.update(active_since=timezone.now() - timedelta(days=9))
    for _ in range(3):
        send_test(webhook)
    Delivery.objects.update(created_at=timezone.now() - timedelta(days=4), attempts=ATTEMPTS - 1)
    send_deliveries(FOREVER)
    webhook.refresh_from_db()
    assert not webhook.active
    notice = Notice.objects.get()
    assert (notice.person, notice.kind) == (alice, NoticeKind.WEBHOOK_OFF)
    assert notice.path == f"/teams/{webhook.team.slug}/webhooks/"
    assert receiver.url not in notice.text


def test_a_redirect_is_not_followed(webhook: Webhook, receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"Location": receiver.url}
    send_test(webhook)
    send_deliveries(FOREVER)
    assert len(receiver.received) == 1
    assert Delivery.objects.get().answer == "answered 307: redirects are not followed"


def test_an_answer_that_never_ends_is_cut_off(
    webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_client, "EXCHANGE_SECONDS", 0.4)
    receiver.drip = True
    send_test(webhook)
    send_deliveries(FOREVER)
    assert not receiver.dripped_to_the_end
    assert Delivery.objects.get().answer.startswith("no response within")


def test_who_dies_while_sending_leaves_the_message_to_another(webhook: Webhook, receiver: Receiver) -> None:
    send_test(webhook)
    Delivery.objects.update(attempts=1, not_before=timezone.now() + timedelta(minutes=2))  # claimed, then killed
    assert send_deliveries(FOREVER) == 0
    due_now()
    assert send_deliveries(FOREVER) == 1


def test_neither_secret_nor_body_is_logged(
    webhook: Webhook, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for receiver.status in (200, 500):
        send_test(webhook)
        send_deliveries(FOREVER)
    lines = caplog.text
    assert "answered 500" in lines
    assert webhook.secret not in lines
    assert "This is a test" not in lines
    assert "sha256=" not in lines


def test_old_messages_are_forgotten(webhook: Webhook, receiver: Receiver) -> None:
    send_test(webhook)
    send_deliveries(FOREVER)
    send_test(webhook)
    Delivery.objects.update(created_at=timezone.now() - timedelta(days=91))
    assert delete_old_deliveries() == 1
    assert Delivery.objects.get().state == "waiting"


@pytest.mark.long
@pytest.mark.long_on_postgresql
@pytest.mark.django_db(transaction=True)
def test_a_running_site_tells_by_itself(
    worker: WorkerProcesses, demo: Dataset, api: Api, webhook: Webhook, receiver: Receiver
) -> None:
    """By a process of its own: the worker here scores and dispatches."""
    worker.start_notifier()
    identifier = str(api.submit().body["id"])
    deadline = time.monotonic() + 180
    while not receiver.received and time.monotonic() < deadline:
        time.sleep(0.1)
    assert receiver.json()["submission"] == identifier
    notice = Notice.objects.get()
    assert (notice.kind, notice.mail_state) == (NoticeKind.FINISHED, "sent")
