"""Webhooks: signed, tried again, and never a way into the network that the site stands in."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Membership, Rescore, Team, User
from leaderboard.work import request_notice
from submissions.models import Delivery, Notice, NoticeKind, Webhook
from submissions.notices import posting
from submissions.notices.addresses import AddressRefused, resolve, target_of
from submissions.notices.deliveries import (
    ATTEMPTS,
    deliveries_are_due,
    forget_old,
    send_deliveries,
    send_test,
)
from submissions.notices.ended import tell_of_ended
from submissions.notices.events import take_events
from submissions.notices.webhooks import LIMIT, TooManyWebhooks, add_webhook, rotate_secret
from submissions.people.teams import personal_team
from tests.factories import make_user
from tests.servers.worker import WorkerProcesses
from tests.submissions.conftest import Api, work

pytestmark = [pytest.mark.django_db, pytest.mark.database]

FOREVER = float("inf")


class Receiver:
    """A program that takes messages on this machine, and answers as told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.status, self.headers, self.drip = 204, {}, False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append((dict(self.headers), body))
                if receiver.drip:
                    receiver.drip_slowly(self)
                    return
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?from=runboard"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def drip_slowly(self, handler: BaseHTTPRequestHandler) -> None:
        """An answer that never ends, a byte at a time."""
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(100):
                handler.wfile.write(b"z")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return

    def json(self, number: int = -1) -> dict[str, Any]:
        """The body of a message."""
        found: dict[str, Any] = json.loads(self.received[number][1])
        return found


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A running one, on the loopback address, which the embedded site may send to."""
    settings.WEBHOOKS_LOOPBACK = True
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def webhook(receiver: Receiver, alice: User) -> Webhook:
    """Alice's team's."""
    return add_webhook(personal_team(alice), receiver.url, alice)


def due_now() -> None:
    """As if the time until the next attempt had gone by."""
    Delivery.objects.update(not_before=None)


def scored(api: Api, **fields: Any) -> str:
    """The id of a submission that was scored, and told of."""
    identifier = str(api.submit(**fields).body["id"])
    work()
    tell_of_ended()
    return identifier


# --- what is sent


def test_a_finished_submission_arrives_signed(
    demo: Dataset, baseline: None, api: Api, receiver: Receiver, webhook: Webhook
) -> None:
    identifier = scored(api)
    assert send_deliveries(FOREVER) == 1
    headers, body = receiver.received[0]
    # What docs/api.md tells receivers to do.
    signed = headers["X-Runboard-Timestamp"].encode() + b"." + body
    expected = "sha256=" + hmac.new(webhook.secret.encode(), signed, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(headers["X-Runboard-Signature"], expected)
    assert abs(int(headers["X-Runboard-Timestamp"]) - time.time()) < 60
    assert headers["X-Runboard-Event"] == "finished"
    assert headers["Content-Type"] == "application/json"
    message = json.loads(body)
    assert headers["X-Runboard-Delivery"] == message["id"]
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
    tell_of_ended()
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
    take_events()
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
    monkeypatch.setattr(posting, "ALTOGETHER", 0.4)
    receiver.drip = True
    send_test(webhook)
    began = time.monotonic()
    send_deliveries(FOREVER)
    assert time.monotonic() - began < 3
    assert Delivery.objects.get().answer.startswith("no answer within")


def test_who_dies_while_sending_leaves_the_message_to_another(webhook: Webhook, receiver: Receiver) -> None:
    send_test(webhook)
    Delivery.objects.update(
        attempts=1, not_before=timezone.now() + timedelta(minutes=2)
    )  # claimed, then killed
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
    assert forget_old() == 1
    assert Delivery.objects.get().state == "waiting"


# --- where nothing is sent


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "https://user:pass@example.org/",
        "https://example.org:22/",
        "https://example.org:6379/",
        "https://example.org/#fragment",
        "https://example.org/a b",
        "https://example.org/\r\nHost: x",
        "https://exämple.org/",
        "https:///path",
        "https://[::1/",
        "http://127.0.0.1:8000/",
        "http://localhost:8000/",
        "javascript:alert(1)",
        "",
    ],
)
def test_such_an_address_is_refused_at_once(url: str, settings: Any) -> None:
    settings.WEBHOOKS_LOOPBACK = False
    with pytest.raises(AddressRefused):
        target_of(url)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.0.170",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:93.184.216.34",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
    ],
)
def test_a_name_of_such_an_address_is_refused(
    address: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WEBHOOKS_LOOPBACK = True
    names = {"hook.example.org": ["93.184.216.34", address]}  # one good one does not help
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: resolved(names[host], port))
    with pytest.raises(AddressRefused, match="not on the internet"):
        resolve(target_of("https://hook.example.org/"))


def resolved(addresses: list[str], port: int) -> list[Any]:
    """What `getaddrinfo` returns."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]"])
def test_ways_to_write_this_machine_lead_nowhere(host: str, settings: Any) -> None:
    settings.WEBHOOKS_LOOPBACK = False
    try:
        target = target_of(f"https://{host}/")
        addresses = socket.getaddrinfo(target.host, 443)
    except (AddressRefused, OSError, RuntimeError):
        return
    assert addresses
    with pytest.raises(AddressRefused):
        resolve(target)


def test_a_name_that_changes_its_address_gains_nothing(
    webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is resolved once, and the connection goes to what was judged."""
    asked: list[str] = []
    connected: list[Any] = []

    def rebinding(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return resolved(["93.184.216.34" if len(asked) == 1 else "127.0.0.1"], port)

    def connect(address: Any, **_: Any) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", connect)
    Webhook.objects.update(url="https://rebind.example.org/")
    send_test(webhook)
    send_deliveries(FOREVER)
    assert connected == [("93.184.216.34", 443)]
    assert asked == ["rebind.example.org"]
    assert Delivery.objects.get().answer == "no connection (ConnectionRefusedError)"


def test_an_address_that_turned_private_later_is_not_sent_to(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: resolved(["10.0.0.7"], port))
    Webhook.objects.update(url="https://inner.example.org/")
    send_test(webhook)
    send_deliveries(FOREVER)
    assert Delivery.objects.get().answer == "not sent: The host is not on the internet."


# --- who may


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


def test_a_bad_address_is_refused_on_the_page_with_what_would_be_right(
    signed_in: Client, alice: User
) -> None:
    answer = signed_in.post(page_of(personal_team(alice)), {"url": "http://example.org/"})
    assert answer.status_code == 400
    assert "Only https is sent to" in answer.content.decode()


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
    assert headers["X-Runboard-Signature"] == posting.signature(secret, headers["X-Runboard-Timestamp"], body)


@pytest.mark.django_db(transaction=True)
def test_a_running_site_tells_by_itself(
    worker: WorkerProcesses, demo: Dataset, api: Api, webhook: Webhook, receiver: Receiver
) -> None:
    identifier = str(api.submit().body["id"])
    deadline = time.monotonic() + 60
    while not receiver.received and time.monotonic() < deadline:
        time.sleep(0.1)
    assert receiver.json()["submission"] == identifier
    notice = Notice.objects.get()
    assert (notice.kind, notice.mail_state) == (NoticeKind.FINISHED, "sent")
